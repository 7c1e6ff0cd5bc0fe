package patterns

import (
	"context"

	"github.com/mongotransfer/transfer"
)

// quote is what a customer was shown, and has accepted.
type quote struct {
	ID       string
	Customer string
	// Pays is in euro cents, and Gets in dollar cents. Who rounds, and how, was decided
	// when the quote was made.
	Pays, Gets int64
}

// exchange carries a quote out: in both currencies, or in none.
func exchange(ctx context.Context, coord *transfer.Coordinator, q quote) error {
	_, err := coord.Transfer(ctx, transfer.Request{ID: q.ID, Legs: []transfer.Leg{
		{Account: q.Customer + ":EUR", Amount: transfer.Units(-q.Pays), Currency: "EUR"},
		{Account: "dealer:EUR", Amount: transfer.Units(q.Pays), Currency: "EUR"},
		{Account: "dealer:USD", Amount: transfer.Units(-q.Gets), Currency: "USD"},
		{Account: q.Customer + ":USD", Amount: transfer.Units(q.Gets), Currency: "USD"},
	}})
	return err
}
