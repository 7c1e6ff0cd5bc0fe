package faults

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// exchange moves 60 from a to b, and 66 dollars from d to c.
func exchange() transfer.Request {
	return transfer.Request{ID: "t", Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-60)},
		{Account: "b", Amount: transfer.Units(60)},
		{Account: "d", Amount: transfer.Units(-66), Currency: "USD"},
		{Account: "c", Amount: transfer.Units(66), Currency: "USD"},
	}}
}

// exchangeBack moves what exchange does back.
func exchangeBack(id string) transfer.Request {
	req := exchange()
	req.ID = id
	for i := range req.Legs {
		req.Legs[i].Amount = req.Legs[i].Amount.Neg()
	}
	return req
}

// requireReversedExchange requires that the original is reversed once if the reversal t
// has succeeded, and that all of it can be reversed if not.
func requireReversedExchange(b *bank.Bank) {
	b.T.Helper()
	original, err := b.Get(b.T.Context(), "o")
	require.NoError(b.T, err)
	_, err = b.Reverse(b.T.Context(), transfer.Reversal{ID: "again", Of: "o", All: true})
	if succeeded(b, "t") {
		require.Equal(b.T, "t", original.ReversedBy)
		require.ErrorIs(b.T, err, transfer.ErrAlreadyReversed)
		return
	}
	require.Empty(b.T, original.ReversedBy)
	require.NoError(b.T, err)
}

func exchangeScenarios() []scenario {
	// Accounts c and d have dollars, and the others have no currency.
	dollars := func(then func(b *bank.Bank)) func(b *bank.Bank) {
		return func(b *bank.Bank) {
			b.T.Helper()
			for _, account := range []string{"c", "d"} {
				b.SetField("accounts", account, "currency", "USD")
			}
			if then != nil {
				then(b)
			}
		}
	}
	exchanging := func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
		return c.Transfer(ctx, exchange())
	}
	return []scenario{
		{name: "an exchange", balances: []int64{100, 0, 0, 100}, prepare: dollars(nil), run: exchanging},
		{
			name: "a refused exchange", balances: []int64{100, 0, 0, 50}, prepare: dollars(nil), run: exchanging, policy: transfer.Resume,
			calm: transfer.ErrInsufficientFunds,
		},
		{
			name: "a post of a held exchange", balances: []int64{100, 0, 0, 100}, policy: transfer.Resume,
			run: func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
				return c.Post(ctx, "t")
			},
			prepare: dollars(func(b *bank.Bank) {
				_, err := b.Hold(b.T.Context(), exchange(), time.Hour)
				require.NoError(b.T, err)
			}),
		},
		{
			name: "a reversal of an exchange", balances: []int64{40, 60, 66, 34}, policy: transfer.Resume,
			prepare: dollars(func(b *bank.Bank) {
				_, err := b.Transfer(b.T.Context(), exchangeBack("o"))
				require.NoError(b.T, err)
			}),
			run: func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
				return c.Reverse(ctx, transfer.Reversal{ID: "t", Of: "o", All: true})
			},
			check: requireReversedExchange,
		},
		{
			name: "recovery of an exchange", balances: []int64{100, 0, 0, 100}, stall: atOnce, run: recovering, policy: transfer.Resume,
			prepare: dollars(func(b *bank.Bank) { b.StallRequest(exchange(), bank.Prepares, bank.Held) }),
		},
	}
}
