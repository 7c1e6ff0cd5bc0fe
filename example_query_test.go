package transfer_test

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
)

// A list is shown page by page, newest first.
// Each page goes on behind the last record of the page before.
func ExampleQuery_pages() {
	err := inBank(func(ctx context.Context, _ *mongo.Database, coord *transfer.Coordinator) error {
		for _, id := range []string{"order-1", "order-2", "order-3", "order-4", "order-5"} {
			_, err := coord.Transfer(ctx, transfer.Request{ID: id, From: "alice", To: "bob", Amount: transfer.Units(100)})
			if err != nil {
				return err
			}
		}
		query := transfer.Query{Account: "alice", Limit: 2}
		n, err := coord.Count(ctx, query)
		if err != nil {
			return err
		}
		fmt.Println(n, "transfers")
		for page := 1; ; page++ {
			var last string
			for rec, err := range coord.List(ctx, query) {
				if err != nil {
					return err
				}
				fmt.Println("page", page, rec.ID)
				last = rec.ID
			}
			if last == "" {
				return nil
			}
			query.Beyond = last
		}
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// 5 transfers
	// page 1 order-5
	// page 1 order-4
	// page 2 order-3
	// page 2 order-2
	// page 3 order-1
}

// Holds that soon give their money back are found by the time when they expire.
func ExampleCoordinator_Count() {
	err := inBank(func(ctx context.Context, _ *mongo.Database, coord *transfer.Coordinator) error {
		for id, expiresIn := range map[string]time.Duration{"taxi": time.Hour, "hotel": 7 * 24 * time.Hour} {
			_, err := coord.Hold(ctx, transfer.Request{ID: id, From: "alice", To: "bob", Amount: transfer.Units(100)}, expiresIn)
			if err != nil {
				return err
			}
		}
		tomorrow := time.Now().Add(24 * time.Hour)
		for name, query := range map[string]transfer.Query{
			"held": {Holds: true}, "expiring": {ExpiresBefore: tomorrow}, "overdue": {ExpiresBefore: time.Now()},
		} {
			n, err := coord.Count(ctx, query)
			if err != nil {
				return err
			}
			fmt.Println(name, n)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// held 2
	// expiring 1
	// overdue 0
}
