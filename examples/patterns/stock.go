package patterns

import (
	"context"
	"time"

	"github.com/mongotransfer/transfer"
)

// reserve takes the goods of a basket off the stock for a quarter of an hour: all of
// them, or none. Post ships them; Void, or the end of that time, puts them back.
func reserve(ctx context.Context, coord *transfer.Coordinator, basket string, goods map[string]int64) error {
	var legs []transfer.Leg
	for sku, pieces := range goods {
		legs = append(legs,
			transfer.Leg{Account: "stock:" + sku, Amount: transfer.Units(-pieces), Currency: sku},
			transfer.Leg{Account: "shipped:" + sku, Amount: transfer.Units(pieces), Currency: sku},
		)
	}
	_, err := coord.Hold(ctx, transfer.Request{ID: basket, Legs: legs}, 15*time.Minute)
	return err
}

// sell moves money and goods against each other: nobody pays for what is not there.
func sell(ctx context.Context, coord *transfer.Coordinator, id, buyer, sku string, pieces, cents int64) error {
	_, err := coord.Transfer(ctx, transfer.Request{ID: id, Legs: []transfer.Leg{
		{Account: "stock:" + sku, Amount: transfer.Units(-pieces), Currency: sku},
		{Account: "shipped:" + sku, Amount: transfer.Units(pieces), Currency: sku},
		{Account: buyer, Amount: transfer.Units(-cents), Currency: "EUR"},
		{Account: "shop", Amount: transfer.Units(cents), Currency: "EUR"},
	}})
	return err
}
