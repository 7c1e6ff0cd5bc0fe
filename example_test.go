package transfer_test

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// The first day: set up, recover, open accounts, move money.
func Example() {
	if err := firstDay(context.Background(), mongotest.URI()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// order-17 Success
	// order-17 Success
	// order-18 Fail, nothing moved: insufficient funds
	// alice has 4000
}

func firstDay(ctx context.Context, uri string) error {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(ctx) }()
	db := client.Database("example_" + bson.NewObjectID().Hex())
	defer func() { _ = db.Drop(ctx) }()

	coord, err := transfer.NewCoordinator(db) // collections "accounts" and "transfers"
	if err != nil {
		return err
	}
	defer func() { _ = coord.Close(ctx) }() // finishes what it has begun
	if err := coord.Setup(ctx); err != nil {
		return err
	}
	if _, err := coord.Recover(ctx); err != nil { // finishes what others left behind
		return err
	}
	for _, a := range []transfer.Account{{ID: "alice", Balance: transfer.Units(10_000)}, {ID: "bob"}} {
		if _, err := coord.OpenAccount(ctx, a); err != nil {
			return err
		}
	}
	for _, id := range []string{"order-17", "order-17", "order-18"} {
		rec, err := coord.Transfer(ctx, transfer.Request{
			ID: id, From: "alice", To: "bob", Amount: transfer.Units(6_000),
		})
		switch {
		case err == nil:
			fmt.Println(rec.ID, rec.State)
		case errors.Is(err, transfer.ErrInsufficientFunds):
			fmt.Printf("%s %s, nothing moved: %s\n", rec.ID, rec.State, rec.Failure.Message)
		default: // for ErrInDoubt: ask again with the same ID
			return err
		}
	}
	alice, err := coord.GetAccount(ctx, "alice")
	if err != nil {
		return err
	}
	fmt.Println("alice has", alice.Balance)
	return nil
}
