// Package checkout is a part of a shop: it takes the customers' money for their orders.
// It is here for its tests, which need no MongoDB: see checkout_test.go.
//
// A checkout holds the price while the goods are packed, takes it once they are sent, and
// gives it back where an order is cancelled. A hold that is forgotten expires.
package checkout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongotransfer/transfer"
)

// patience is for how long money is held for an order.
const patience = 7 * 24 * time.Hour

// tries is how often a call is repeated whose outcome is not known.
const tries = 3

// Payments are the verbs that a checkout uses. A *transfer.Coordinator has them, and in
// tests a *transfertest.Fake does.
type Payments interface {
	Hold(ctx context.Context, req transfer.Request, expiresIn time.Duration) (transfer.Record, error)
	Post(ctx context.Context, id string, opts ...transfer.PostOption) (transfer.Record, error)
	Void(ctx context.Context, id string) (transfer.Record, error)
}

// ErrNoMoney is returned to a customer who has less than the price.
var ErrNoMoney = errors.New("not enough money")

// ErrTooLate is returned for an order whose money is not held any more: the hold has
// expired, or the order was cancelled.
var ErrTooLate = errors.New("the money is not held any more")

// Checkout takes the money for orders.
type Checkout struct{ payments Payments }

// New returns a checkout that uses the given verbs.
func New(payments Payments) *Checkout { return &Checkout{payments} }

// Order holds the price of an order.
func (c *Checkout) Order(ctx context.Context, order, customer string, price transfer.Amount) error {
	req := transfer.Request{ID: "order-" + order, From: customer, To: "shop", Amount: price}
	err := untilKnown(ctx, func() error {
		_, err := c.payments.Hold(ctx, req, patience)
		return err
	})
	if errors.Is(err, transfer.ErrInsufficientFunds) {
		return fmt.Errorf("order %s: %w", order, ErrNoMoney)
	}
	return err
}

// Send takes the money that is held for an order.
func (c *Checkout) Send(ctx context.Context, order string) error {
	err := untilKnown(ctx, func() error {
		_, err := c.payments.Post(ctx, "order-"+order)
		return err
	})
	if errors.Is(err, transfer.ErrExpired) || errors.Is(err, transfer.ErrCancelled) {
		return fmt.Errorf("order %s: %w", order, ErrTooLate)
	}
	return err
}

// Cancel gives the money back that is held for an order.
func (c *Checkout) Cancel(ctx context.Context, order string) error {
	return untilKnown(ctx, func() error {
		_, err := c.payments.Void(ctx, "order-"+order)
		return err
	})
}

// untilKnown repeats a call until its outcome is known, or nobody waits for it any more.
// The ID is the same each time, and so the money moves once.
//
// A repeated call that has stored nothing, since the server is away, says nothing about
// the one before: that may have moved the money, and its outcome stays in doubt.
func untilKnown(ctx context.Context, call func() error) error {
	err := call()
	for n := 1; n < tries && transfer.OutcomeOf(err) == transfer.InDoubt && ctx.Err() == nil; n++ {
		if again := call(); transfer.OutcomeOf(again) != transfer.NothingStored {
			err = again
		}
	}
	return err
}
