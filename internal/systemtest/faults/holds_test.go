package faults

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

func holdScenarios() []scenario {
	holding := func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
		return c.Hold(ctx, bank.Move("t", "a", "b", 60), time.Hour)
	}
	held := func(b *bank.Bank) { b.MustHold("t", 60, time.Hour) }
	dirty := func(b *bank.Bank) { // one of its prepares may come again
		b.StallHold("t", bank.Prepares)
		c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0))
		_, err := c.Hold(b.T.Context(), bank.Move("t", "a", "b", 60), time.Hour)
		require.NoError(b.T, err)
	}
	posting := func(opts ...transfer.PostOption) func(context.Context, *transfer.Coordinator) (transfer.Record, error) {
		return func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
			return c.Post(ctx, "t", opts...)
		}
	}
	extending := func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
		return c.Extend(ctx, "t", 3*time.Hour)
	}
	voiding := func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) { return c.Void(ctx, "t") }
	return []scenario{
		{name: "a hold", balances: []int64{100, 0}, run: holding},
		{name: "a refused hold", balances: []int64{50, 0}, run: holding, calm: transfer.ErrInsufficientFunds},
		{name: "a hold whose answer is lost", balances: []int64{100, 0}, also: steps{bank.HeldMark: bank.AnswerLost}, run: holding},
		{
			name: "a hold, asked for again", balances: []int64{100, 0}, stall: atOnce, run: holding, policy: transfer.Resume,
			prepare: func(b *bank.Bank) { b.StallHold("t", bank.Prepares) },
		},
		{name: "a post", balances: []int64{100, 0}, at: transfer.AtCommit, prepare: held, run: posting()},
		{name: "a post of a part", balances: []int64{100, 0}, prepare: held, run: posting(transfer.PostAmount(transfer.Units(20)))},
		{name: "a post of what was held again", balances: []int64{100, 0}, prepare: dirty, run: posting()},
		{
			name: "a post whose answer is lost", balances: []int64{100, 0}, prepare: held,
			also: steps{bank.Claim: bank.AnswerLost}, run: posting(),
		},
		{name: "an extension", balances: []int64{100, 0}, prepare: held, run: extending},
		{name: "an extension of what was held again", balances: []int64{100, 0}, prepare: dirty, run: extending},
		{
			name: "an extension that comes too late", balances: []int64{100, 0}, run: extending, calm: transfer.ErrExpired,
			prepare: func(b *bank.Bank) {
				held(b)
				b.Expire("t")
			},
		},
		{name: "a void", balances: []int64{100, 0}, prepare: held, run: voiding},
		{name: "a void of what was held again", balances: []int64{100, 0}, prepare: dirty, run: voiding},
		{
			name: "an expiry", balances: []int64{100, 0}, stall: atOnce, run: recovering, calm: transfer.ErrExpired, policy: transfer.Resume,
			prepare: func(b *bank.Bank) {
				held(b)
				b.Expire("t")
			},
		},
	}
}

func effectScenarios() []scenario {
	ordered := func(b *bank.Bank) { b.Insert("orders", bank.Order("o-1")) }
	paying := func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
		return c.Transfer(ctx, bank.Payment("t", "o-1", 60))
	}
	// The order is paid exactly by the payments that have succeeded.
	paid := func(b *bank.Bank) {
		b.T.Helper()
		status := "unpaid"
		if succeeded(b, "t") {
			status = "paid"
		}
		b.RequireOrder("o-1", status, false)
	}
	return []scenario{
		{name: "a payment", balances: []int64{100, 0}, at: transfer.AtCommit, ledgers: bank.Orders, prepare: ordered, run: paying, check: paid},
		{
			name: "a payment that can't be made", balances: []int64{50, 0}, ledgers: bank.Orders, prepare: ordered, run: paying, check: paid,
			calm: transfer.ErrInsufficientFunds,
		},
		{
			name: "a payment of a paid order", balances: []int64{100, 0}, ledgers: bank.Orders, run: paying, calm: transfer.ErrRequirementFailed,
			prepare: func(b *bank.Bank) {
				b.Insert("orders", bson.D{{Key: "_id", Value: "o-1"}, {Key: "status", Value: "paid"}})
			},
		},
	}
}

// succeeded reports whether a transfer exists and has succeeded.
func succeeded(b *bank.Bank, id string) bool {
	b.T.Helper()
	for rec, err := range b.List(b.T.Context(), transfer.Query{States: []transfer.State{transfer.StateSuccess}}) {
		require.NoError(b.T, err)
		if rec.ID == id {
			return true
		}
	}
	return false
}
