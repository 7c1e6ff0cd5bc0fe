package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// The first day: set up, recover, start a worker, open accounts, move money and shut
// down.
func Example() {
	if err := firstDay(context.Background(), mongotest.URI()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// deposit-1 moved: true
	// order-17 moved: true
	// order-17 moved: true
	// order-18 Fail, nothing moved: insufficient funds
	// alice has 4000
}

func firstDay(ctx context.Context, uri string) (err error) {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	db := client.Database("example_" + bson.NewObjectID().Hex())
	coord, err := transfer.NewCoordinator(db) // collections "accounts" and "transfers"
	if err != nil {
		return err
	}
	working, stopWorking := context.WithCancel(ctx)
	var worker sync.WaitGroup
	defer func() {
		stopWorking()
		worker.Wait()
		closing, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		// Close finishes what the coordinator has begun. What it can't finish, another
		// process recovers.
		err = errors.Join(err, coord.Close(closing), db.Drop(closing), client.Disconnect(closing))
	}()
	if err := coord.Setup(ctx); err != nil {
		return err
	}
	if _, err := coord.Recover(ctx); err != nil { // finishes what has stalled so far
		return err
	}
	worker.Go(func() { // and what stalls later
		if err := coord.Run(working); err != nil {
			fmt.Println("worker:", err)
		}
	})
	return moveMoney(ctx, coord)
}

func moveMoney(ctx context.Context, coord *transfer.Coordinator) error {
	for _, account := range []transfer.Account{{ID: "world", NoFloor: true}, {ID: "alice"}, {ID: "bob"}} {
		if _, err := coord.OpenAccount(ctx, account); err != nil {
			return err
		}
	}
	deposit := transfer.Request{ID: "deposit-1", From: "world", To: "alice", Amount: transfer.Units(10_000)}
	order := transfer.Request{ID: "order-17", From: "alice", To: "bob", Amount: transfer.Units(6_000)}
	another := transfer.Request{ID: "order-18", From: "alice", To: "bob", Amount: transfer.Units(6_000)}
	for _, req := range []transfer.Request{deposit, order, order, another} {
		rec, err := coord.Transfer(ctx, req)
		switch {
		case err == nil:
			fmt.Println(rec.ID, "moved:", rec.State.Decided())
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
