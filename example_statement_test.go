package transfer_test

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// An account's statement, and the balance it was opened with.
func ExampleCoordinator_Statement() {
	if err := printStatement(context.Background(), mongotest.URI()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// order-17  -6000  13000
	// order-18  -2500  10500
	// refund     +500  11000
	// opened with 19000
}

func printStatement(ctx context.Context, uri string) error {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(ctx) }()
	db := client.Database("example_" + bson.NewObjectID().Hex())
	defer func() { _ = db.Drop(ctx) }()
	coord, err := transfer.NewCoordinator(db)
	if err != nil {
		return err
	}
	defer func() { _ = coord.Close(ctx) }()
	if err := coord.Setup(ctx); err != nil {
		return err
	}
	for _, a := range []transfer.Account{{ID: "alice", Balance: transfer.Units(19_000)}, {ID: "shop"}} {
		if _, err := coord.OpenAccount(ctx, a); err != nil {
			return err
		}
	}
	for _, req := range []transfer.Request{
		{ID: "order-17", From: "alice", To: "shop", Amount: transfer.Units(6_000)},
		{ID: "order-18", From: "alice", To: "shop", Amount: transfer.Units(2_500)},
		{ID: "refund", From: "shop", To: "alice", Amount: transfer.Units(500)},
	} {
		if _, err := coord.Transfer(ctx, req); err != nil {
			return err
		}
	}

	var first transfer.Entry
	for entry, err := range coord.Statement(ctx, "alice", transfer.StatementQuery{}) {
		if err != nil {
			return err
		}
		sign := ""
		if entry.Amount.Cmp(transfer.Units(0)) > 0 {
			sign = "+"
		}
		fmt.Printf("%-9s %5s  %s\n", entry.TransferID, sign+entry.Amount.String(), entry.Balance)
		if first.TransferID == "" {
			first = entry
		}
	}
	opened, err := coord.BalanceAt(ctx, "alice", first.At.Add(-1))
	if err != nil {
		return err
	}
	fmt.Println("opened with", opened)
	return nil
}
