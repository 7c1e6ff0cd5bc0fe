package transfer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/mongotransfer/transfer"
)

// What is there is moved, up to the amount: the record says how much that was. Where nothing is there, the transfer is refused.
func ExampleRequest_atMost() {
	ctx := context.Background()
	coord, end := exampleBank(ctx) // alice has 100, bob has nothing
	defer end()

	for _, id := range []string{"sweep-1", "sweep-2"} {
		rec, err := coord.Transfer(ctx, transfer.Request{
			ID: id, From: "alice", To: "bob", Amount: transfer.Units(250), AtMost: true,
		})
		switch {
		case err == nil:
			fmt.Println(rec.ID, rec.State, rec.Legs[1].Amount) // the second leg is bob's
		case errors.Is(err, transfer.ErrInsufficientFunds):
			fmt.Println(rec.ID, rec.State, rec.Failure.Message)
		default:
			fmt.Println(err)
		}
	}
	// Output:
	// sweep-1 Success 100
	// sweep-2 Fail insufficient funds
}
