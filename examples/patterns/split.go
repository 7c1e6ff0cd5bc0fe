package patterns

import (
	"context"

	"github.com/mongotransfer/transfer"
)

// paySeller pays a seller less a fee of 2.9 percent. The fee is rounded to the cent, and
// the seller has what is left, so that no cent is lost or made.
func paySeller(ctx context.Context, coord *transfer.Coordinator, id, buyer, seller string, cents int64) error {
	fee := (cents*29 + 500) / 1000
	legs := []transfer.Leg{
		{Account: buyer, Amount: transfer.Units(-cents)},
		{Account: seller, Amount: transfer.Units(cents - fee)},
	}
	if fee > 0 {
		legs = append(legs, transfer.Leg{Account: "fees", Amount: transfer.Units(fee)})
	}
	_, err := coord.Transfer(ctx, transfer.Request{ID: id, Legs: legs, Currency: "EUR"})
	return err
}
