// Command refund gives a buyer the money back. A refund reverses the payment: all of it,
// and at most once, whoever asks and how often. It is a transfer like any other, so it is
// refused while the shop has spent the money, and can be tried again when there is some.
//
// The environment variable MONGODB_URI names the MongoDB server. With one just for the
// occasion:
//
//	go run ./internal/mongotest/withmongo go run ./examples/refund
//
// It plays in a database of its own, and tells what is in output.txt. The story is in
// story.go; play.go connects, and cleans up.
package main

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
)

// payment is the transfer that is to be refunded.
const payment = "payment-1"

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

type shop struct{ coord *transfer.Coordinator }

func (s shop) pay(ctx context.Context, id, from, to string, units int64) error {
	_, err := s.coord.Transfer(ctx, transfer.Request{ID: id, From: from, To: to, Amount: transfer.Units(units)})
	return err
}

// refund reverses the payment and tells how that went. It fails if it did not go as expected.
func (s shop) refund(ctx context.Context, id string, expected error) error {
	rec, err := s.coord.Reverse(ctx, payment, id)
	switch {
	case !errors.Is(err, expected):
		return errors.Join(fmt.Errorf("%s did not go as expected", id), err)
	case err != nil:
		fmt.Printf("  %s: %v\n", id, err)
	default:
		fmt.Printf("  %s: %s, it reverses %s\n", id, rec.State, rec.Reverses)
	}
	return nil
}

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
