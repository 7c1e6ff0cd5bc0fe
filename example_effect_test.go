package transfer_test

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
)

// An order is paid as its payment is committed. The second payment is refused: the order is not unpaid any more.
func ExampleEffect() {
	ctx := context.Background()
	db, drop := exampleDatabase(ctx)
	defer drop()

	orders := db.Collection("orders") // it may be in another database or cluster
	if _, err := orders.InsertOne(ctx, bson.D{{Key: "_id", Value: "order-17"}, {Key: "status", Value: "unpaid"}}); err != nil {
		fmt.Println(err)
		return
	}
	coord, err := transfer.NewCoordinator(db, transfer.WithDocuments("orders", orders))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = coord.Close(ctx) }()
	exampleAccounts(ctx, coord) // alice has 100, bob has nothing

	for _, id := range []string{"payment-1", "payment-2"} {
		rec, err := coord.Transfer(ctx, transfer.Request{
			ID: id, From: "alice", To: "bob", Amount: transfer.Units(40),
			Effects: []transfer.Effect{{
				Documents: "orders", ID: "order-17",
				Require: bson.D{{Key: "status", Value: "unpaid"}},
				Set:     bson.D{{Key: "status", Value: "paid"}, {Key: "paidBy", Value: id}},
			}},
		})
		var unmet *transfer.RequirementError
		switch {
		case err == nil:
			fmt.Println(rec.ID, rec.State)
		case errors.As(err, &unmet):
			fmt.Printf("%s %s, nothing moved: %s of %v is %v\n", rec.ID, rec.State, unmet.Field, unmet.ID, unmet.Got)
		default:
			fmt.Println(err)
		}
	}
	var order struct{ Status string }
	err = orders.FindOne(ctx, bson.D{{Key: "_id", Value: "order-17"}}).Decode(&order)
	fmt.Println("order-17 is", order.Status, err)
	// Output:
	// payment-1 Success
	// payment-2 Fail, nothing moved: status of order-17 is paid
	// order-17 is paid <nil>
}
