package transfer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/mongotransfer/transfer"
)

// A payment is refunded once. Whoever tries again, under another ID, is told by which transfer that was.
func ExampleCoordinator_Reverse() {
	ctx := context.Background()
	coord, end := exampleBank(ctx) // alice has 100, bob has nothing
	defer end()

	payment := transfer.Request{ID: "payment-1", From: "alice", To: "bob", Amount: transfer.Units(60)}
	if _, err := coord.Transfer(ctx, payment); err != nil {
		fmt.Println(err)
		return
	}
	for _, id := range []string{"refund-1", "refund-2"} {
		rec, err := coord.Reverse(ctx, "payment-1", id)
		switch {
		case err == nil:
			fmt.Println(rec.ID, rec.State)
		case errors.Is(err, transfer.ErrInsufficientFunds): // the money is spent: try again later, under another ID
			fmt.Println(rec.ID, rec.State)
		case errors.Is(err, transfer.ErrAlreadyReversed): // the record is the payment's
			fmt.Printf("%s: %s was reversed by %s\n", id, rec.ID, rec.ReversedBy)
		default:
			fmt.Println(err)
		}
	}
	alice, err := coord.GetAccount(ctx, "alice")
	fmt.Println("alice has", alice.Balance, err)
	// Output:
	// refund-1 Success
	// refund-2: payment-1 was reversed by refund-1
	// alice has 100 <nil>
}
