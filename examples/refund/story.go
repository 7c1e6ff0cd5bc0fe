// Command refund gives buyers their money back.
// A refund reverses a payment.
// It reverses all of it, and at most once, no matter who asks and how often.
// It is a transfer like any other, so it is refused if the shop has spent the money.
// Later, when the shop has money again, another refund can be made.
//
// The environment variable MONGODB_URI is the connection string of the MongoDB server.
// This command starts the program with a server that ends with it:
//
//	go run ./internal/mongotest/withmongo go run ./examples/refund
//
// The program uses a database of its own, and prints what is in output.txt.
// The story is in story.go.
// The code in play.go connects to the server and drops the database at the end.
package main

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
)

// payment is the ID of the transfer that is refunded.
const payment = "payment-1"

// story makes a payment and refunds it.
func story(ctx context.Context, db *mongo.Database) error {
	coord, err := transfer.NewCoordinator(db)
	if err != nil {
		return err
	}
	defer func() { _ = coord.Close(ctx) }()
	if err := coord.Setup(ctx); err != nil {
		return err
	}
	for _, account := range []transfer.Account{
		{ID: "ann", Balance: transfer.Units(100)}, {ID: "ben", Balance: transfer.Units(100)}, {ID: "shop"}, {ID: "supplier"},
	} {
		if _, err := coord.OpenAccount(ctx, account); err != nil {
			return err
		}
	}
	sh := shop{coord}

	fmt.Println("Ann buys a lamp for 60, and the shop spends 50 of it on another lamp.")
	if err := sh.pay(ctx, payment, "ann", "shop", 60); err != nil {
		return err
	}
	if err := sh.pay(ctx, "restocking-1", "shop", "supplier", 50); err != nil {
		return err
	}

	fmt.Println("Ann brings the lamp back, and the shop tries to refund the payment.")
	if err := sh.refund(ctx, "refund-1", transfer.ErrInsufficientFunds); err != nil {
		return err
	}

	fmt.Println("Ben buys a lamp for 60, and the shop tries again. What has failed stays failed: it takes another ID.")
	if err := sh.pay(ctx, "payment-2", "ben", "shop", 60); err != nil {
		return err
	}
	if err := sh.refund(ctx, "refund-1", transfer.ErrInsufficientFunds); err != nil {
		return err
	}
	if err := sh.refund(ctx, "refund-2", nil); err != nil {
		return err
	}

	fmt.Println("A colleague, who has not heard of that, refunds the payment as well.")
	if err := sh.refund(ctx, "refund-3", transfer.ErrAlreadyReversed); err != nil {
		return err
	}
	return sh.balances(ctx, "ann", "ben", "shop", "supplier")
}

// shop is a shop that keeps its money in an account.
type shop struct{ coord *transfer.Coordinator }

// pay moves money between two accounts.
func (s shop) pay(ctx context.Context, id, from, to string, units int64) error {
	_, err := s.coord.Transfer(ctx, transfer.Request{ID: id, From: from, To: to, Amount: transfer.Units(units)})
	return err
}

// refund reverses the payment and prints the outcome.
// It returns an error if the outcome is not the expected one.
func (s shop) refund(ctx context.Context, id string, expected error) error {
	rec, err := s.coord.Reverse(ctx, transfer.Reversal{ID: id, Of: payment, All: true})
	switch {
	case !errors.Is(err, expected):
		return errors.Join(fmt.Errorf("%s did not go as expected", id), err)
	case err != nil:
		fmt.Printf("  %s: %v\n", id, err)
	default:
		fmt.Printf("  %s: the money is back, it reverses %s\n", id, rec.Reverses)
	}
	return nil
}

// balances prints the balances of the given accounts.
func (s shop) balances(ctx context.Context, ids ...string) error {
	fmt.Println("The balances:")
	for _, id := range ids {
		account, err := s.coord.GetAccount(ctx, id)
		if err != nil {
			return err
		}
		fmt.Printf("  %-8s %3s\n", id, account.Balance)
	}
	return nil
}
