package transfer_test

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// inBank runs a story over a database of its own, in which alice has 10,000 and bob nothing.
func inBank(story func(context.Context, *mongo.Database, *transfer.Coordinator) error, opts ...transfer.Option) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client, err := mongo.Connect(options.Client().ApplyURI(mongotest.URI()))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(ctx) }()
	db := client.Database("example_" + bson.NewObjectID().Hex())
	defer func() { _ = db.Drop(ctx) }()
	coord, err := transfer.NewCoordinator(db, opts...)
	if err != nil {
		return err
	}
	defer func() { _ = coord.Close(ctx) }()
	if err := coord.Setup(ctx); err != nil {
		return err
	}
	for _, a := range []transfer.Account{{ID: "alice", Balance: transfer.Units(10_000)}, {ID: "bob"}} {
		if _, err := coord.OpenAccount(ctx, a); err != nil {
			return err
		}
	}
	return story(ctx, db, coord)
}

// A payment that is scheduled waits for its time by the server's clock, and a worker, in this process or another, runs it then.
func ExampleCoordinator_Submit() {
	err := inBank(func(ctx context.Context, _ *mongo.Database, coord *transfer.Coordinator) error {
		working, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- coord.Run(working) }()
		for id, wait := range map[string]time.Duration{"soon": 200 * time.Millisecond, "tomorrow": 24 * time.Hour} {
			_, err := coord.Submit(ctx, transfer.Request{
				ID: id, From: "alice", To: "bob", Amount: transfer.Units(100), NotBefore: time.Now().Add(wait),
			})
			if err != nil {
				return err
			}
		}
		rec, err := coord.Wait(ctx, "soon")
		if err != nil {
			return err
		}
		fmt.Println(rec.ID, rec.State)
		rec, err = coord.Get(ctx, "tomorrow")
		if err != nil {
			return err
		}
		fmt.Println(rec.ID, rec.State)
		rec, err = coord.Cancel(ctx, "tomorrow", "paid in cash")
		if err != nil {
			return err
		}
		fmt.Println(rec.ID, rec.State, rec.Failure.Message)
		stop()
		return <-ended
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// soon Success
	// tomorrow Initiated
	// tomorrow Fail paid in cash
}

// Transfers are found by what was stored with them.
func ExampleCoordinator_List() {
	err := inBank(func(ctx context.Context, _ *mongo.Database, coord *transfer.Coordinator) error {
		for i, order := range []string{"A7", "B2", "A7"} {
			_, err := coord.Transfer(ctx, transfer.Request{
				ID: fmt.Sprint("payment-", i+1), From: "alice", To: "bob", Amount: transfer.Units(100),
				Metadata: map[string]any{"order": order},
			})
			if err != nil {
				return err
			}
		}
		query := transfer.Query{Account: "alice", Metadata: map[string]any{"order": "A7"}}
		for rec, err := range coord.List(ctx, query) {
			if err != nil {
				return err
			}
			fmt.Println(rec.ID, rec.Metadata["order"])
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// payment-3 A7
	// payment-1 A7
}

// A payment is stuck because somebody has deleted bob's account in the middle of it. It is listed with the reason; once the
// document is back a worker finishes it, or a sweep that doesn't wait.
func ExampleQuery_stuck() {
	err := inBank(func(ctx context.Context, db *mongo.Database, coord *transfer.Coordinator) error {
		accounts := db.Collection("accounts")
		_, err := coord.Transfer(ctx, transfer.Request{ID: "order-17", From: "alice", To: "bob", Amount: transfer.Units(6_000)})
		if err != nil {
			return err
		}
		document, err := inTheMiddle(ctx, db, "order-17", "bob")
		if err != nil {
			return err
		}
		atOnce, err := transfer.NewCoordinator(db, transfer.WithStallThreshold(0))
		if err != nil {
			return err
		}
		defer func() { _ = atOnce.Close(ctx) }()
		report, err := atOnce.Recover(ctx)
		if err != nil {
			return err
		}
		fmt.Println("stuck:", report.Stuck)
		for rec, err := range coord.List(ctx, transfer.Query{Stuck: true}) {
			if err != nil {
				return err
			}
			fmt.Println(rec.ID, rec.State, rec.Stuck.Message)
		}
		if _, err := accounts.InsertOne(ctx, document); err != nil {
			return err
		}
		report, err = atOnce.Recover(ctx)
		fmt.Println("succeeded:", report.Succeeded)
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// stuck: 1
	// order-17 Committed account "bob" is gone
	// succeeded: 1
}

// inTheMiddle makes a transfer look as if its process had died after it was committed, and deletes an account, which it returns.
func inTheMiddle(ctx context.Context, db *mongo.Database, id, account string) (bson.Raw, error) {
	open := bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: "Committed"}, {Key: "open", Value: true}}}}
	if _, err := db.Collection("transfers").UpdateByID(ctx, id, open); err != nil {
		return nil, err
	}
	due := bson.D{
		{Key: "$set", Value: bson.D{{Key: "pending." + id, Value: int64(6_000)}}}, {Key: "$inc", Value: bson.D{{Key: "balance", Value: -6_000}}},
	}
	if _, err := db.Collection("accounts").UpdateByID(ctx, account, due); err != nil {
		return nil, err
	}
	return db.Collection("accounts").FindOneAndDelete(ctx, bson.D{{Key: "_id", Value: account}}).Raw()
}

// What is final is removed by the server after ninety days. The ID is forgotten then: nobody may ask for the same transfer so late.
func ExampleWithRetention() {
	const ninetyDays = 90 * 24 * time.Hour
	err := inBank(func(ctx context.Context, _ *mongo.Database, coord *transfer.Coordinator) error {
		rec, err := coord.Transfer(ctx, transfer.Request{ID: "order-17", From: "alice", To: "bob", Amount: transfer.Units(6_000)})
		if err != nil {
			return err
		}
		fmt.Println(rec.State, "and kept for", rec.PurgeAt.Sub(rec.LastModified))
		return nil
	}, transfer.WithRetention(ninetyDays))
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// Success and kept for 2160h0m0s
}
