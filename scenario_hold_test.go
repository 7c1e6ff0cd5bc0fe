package transfer_test

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
)

func holdScenarios() []scenario {
	holding := func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
		return c.Hold(ctx, move("t", "a", "b", 60), time.Hour)
	}
	held := func(b *bank) { b.hold("t", 60, time.Hour) }
	dirty := func(b *bank) { // one of its prepares may come again
		b.stallHold("t", 2)
		c := b.coordinator(b.db, transfer.WithStallThreshold(0))
		_, err := c.Hold(b.t.Context(), move("t", "a", "b", 60), time.Hour)
		require.NoError(b.t, err)
	}
	posting := func(opts ...transfer.PostOption) func(context.Context, *transfer.Coordinator) (transfer.Record, error) {
		return func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
			return c.Post(ctx, "t", opts...)
		}
	}
	voiding := func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) { return c.Void(ctx, "t") }
	return []scenario{
		{name: "a hold", balances: []int64{100, 0}, run: holding},
		{name: "a refused hold", balances: []int64{50, 0}, run: holding, calm: transfer.ErrInsufficientFunds},
		{name: "a hold whose answer is lost", balances: []int64{100, 0}, also: map[int]fault{3: answerLost}, run: holding},
		{
			name: "a hold, asked for again", balances: []int64{100, 0}, stall: atOnce, run: holding, policy: transfer.Resume,
			prepare: func(b *bank) { b.stallHold("t", 2) },
		},
		{name: "a post", balances: []int64{100, 0}, prepare: held, run: posting()},
		{name: "a post of a part", balances: []int64{100, 0}, prepare: held, run: posting(transfer.PostAmount(transfer.Units(20)))},
		{name: "a post of what was held again", balances: []int64{100, 0}, prepare: dirty, run: posting()},
		{name: "a post whose answer is lost", balances: []int64{100, 0}, prepare: held, also: map[int]fault{1: answerLost}, run: posting()},
		{name: "a void", balances: []int64{100, 0}, prepare: held, run: voiding},
		{name: "a void of what was held again", balances: []int64{100, 0}, prepare: dirty, run: voiding},
		{
			name: "an expiry", balances: []int64{100, 0}, stall: atOnce, run: recovering, calm: transfer.ErrExpired, policy: transfer.Resume,
			prepare: func(b *bank) {
				held(b)
				b.expire("t")
			},
		},
	}
}

func effectScenarios() []scenario {
	ordered := func(b *bank) { b.insert("orders", order("o-1")) }
	paying := func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
		return c.Transfer(ctx, payment("t", "o-1", 60))
	}
	// The order is paid by exactly those payments that have succeeded.
	paid := func(b *bank) {
		b.t.Helper()
		status := "unpaid"
		if b.succeeded("t") {
			status = "paid"
		}
		b.order("o-1", status, false)
	}
	return []scenario{
		{name: "a payment", balances: []int64{100, 0}, ledgers: orders, prepare: ordered, run: paying, check: paid},
		{
			name: "a payment that can't be made", balances: []int64{50, 0}, ledgers: orders, prepare: ordered, run: paying, check: paid,
			calm: transfer.ErrInsufficientFunds,
		},
		{
			name: "a payment of a paid order", balances: []int64{100, 0}, ledgers: orders, run: paying, calm: transfer.ErrRequirementFailed,
			prepare: func(b *bank) { b.insert("orders", bson.D{{Key: "_id", Value: "o-1"}, {Key: "status", Value: "paid"}}) },
		},
		{
			name: "a reversal", balances: []int64{40, 60},
			prepare: func(b *bank) {
				_, err := b.Transfer(b.t.Context(), move("o", "b", "a", 60))
				require.NoError(b.t, err)
			},
			run: func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
				return c.Reverse(ctx, "o", "t")
			},
			check: func(b *bank) {
				b.t.Helper()
				original, err := b.Get(b.t.Context(), "o")
				require.NoError(b.t, err)
				require.Equal(b.t, b.succeeded("t"), original.ReversedBy == "t")
			},
		},
	}
}

// succeeded reports whether a transfer is there and has succeeded.
func (b *bank) succeeded(id string) bool {
	b.t.Helper()
	for rec, err := range b.List(b.t.Context(), transfer.Query{States: []transfer.State{transfer.StateSuccess}}) {
		require.NoError(b.t, err)
		if rec.ID == id {
			return true
		}
	}
	return false
}
