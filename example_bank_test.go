package transfer_test

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// exampleDatabase returns a database for an example, and a function that drops it. Examples have no test that could fail: this panics.
func exampleDatabase(ctx context.Context) (db *mongo.Database, end func()) {
	client, err := mongo.Connect(options.Client().ApplyURI(mongotest.URI()))
	if err != nil {
		panic(err)
	}
	db = client.Database("example_" + bson.NewObjectID().Hex())
	return db, func() {
		_ = db.Drop(ctx)
		_ = client.Disconnect(ctx)
	}
}

// exampleAccounts opens accounts for an example: alice has 100, bob has nothing.
func exampleAccounts(ctx context.Context, coord *transfer.Coordinator) {
	if err := coord.Setup(ctx); err != nil {
		panic(err)
	}
	for _, account := range []transfer.Account{{ID: "alice", Balance: transfer.Units(100)}, {ID: "bob"}} {
		if _, err := coord.OpenAccount(ctx, account); err != nil {
			panic(err)
		}
	}
}

// exampleBank returns a coordinator over a database for an example, in which alice has 100 and bob has nothing.
func exampleBank(ctx context.Context) (coord *transfer.Coordinator, end func()) {
	db, drop := exampleDatabase(ctx)
	coord, err := transfer.NewCoordinator(db)
	if err != nil {
		panic(err)
	}
	exampleAccounts(ctx, coord)
	return coord, func() {
		_ = coord.Close(ctx)
		drop()
	}
}
