package patterns

import (
	"context"
	"errors"
	"fmt"

	"github.com/mongotransfer/transfer"
)

// pointsOf is the account of the points that a customer has earned in a year.
func pointsOf(customer string, year int) string { return fmt.Sprintf("points:%d:%s", year, customer) }

// buy pays for a basket and grants a point for each euro, both or neither.
func buy(ctx context.Context, coord *transfer.Coordinator, id, customer string, year int, cents int64) error {
	legs := []transfer.Leg{
		{Account: "wallet:" + customer, Amount: transfer.Units(-cents), Currency: "EUR"},
		{Account: "shop", Amount: transfer.Units(cents), Currency: "EUR"},
	}
	if points := cents / 100; points > 0 {
		legs = append(legs,
			transfer.Leg{Account: "points:issued", Amount: transfer.Units(-points), Currency: "PTS"},
			transfer.Leg{Account: pointsOf(customer, year), Amount: transfer.Units(points), Currency: "PTS"},
		)
	}
	_, err := coord.Transfer(ctx, transfer.Request{ID: id, Legs: legs})
	return err
}

// expirePoints takes back what is left of a customer's points of a past year. A job may
// call it as often as it likes: points that have come back since are taken as well.
func expirePoints(ctx context.Context, coord *transfer.Coordinator, customer string, year int) error {
	account := pointsOf(customer, year)
	for attempt := 1; ; attempt++ {
		_, err := coord.Transfer(ctx, transfer.Request{
			ID: fmt.Sprintf("expiry:%d:%s", attempt, account), From: account, To: "points:issued",
			Amount: transfer.Units(1 << 40), AtMost: true, Currency: "PTS",
		})
		// Nil may be an earlier call's answer, and the customer may be spending now.
		if err != nil && !errors.Is(err, transfer.ErrInsufficientFunds) {
			return err
		}
		left, err := coord.GetAccount(ctx, account)
		if err != nil || left.Available.Cmp(left.Floor) <= 0 {
			return err
		}
	}
}
