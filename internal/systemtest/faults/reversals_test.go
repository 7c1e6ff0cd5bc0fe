package faults

import (
	"context"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// reversalScenarios reverse a transfer of 60: all of it, a part, and all that a part has
// left after the reversal was stored.
func reversalScenarios() []scenario {
	moved := func(b *bank.Bank) {
		_, err := b.Transfer(b.T.Context(), bank.Move("o", "b", "a", 60))
		require.NoError(b.T, err)
	}
	reversing := func(r transfer.Reversal) func(context.Context, *transfer.Coordinator) (transfer.Record, error) {
		r.ID, r.Of = "t", "o"
		return func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) { return c.Reverse(ctx, r) }
	}
	all, part := transfer.Reversal{All: true}, transfer.Reversal{Amount: transfer.Units(25)}
	outdated := func(b *bank.Bank) {
		moved(b)
		b.Dying(bank.Prepares, bank.Lost, func(ctx context.Context, c *transfer.Coordinator) error {
			_, err := c.Reverse(ctx, transfer.Reversal{ID: "t", Of: "o", All: true})
			return err
		})
		_, err := b.Reverse(b.T.Context(), transfer.Reversal{ID: "part", Of: "o", Amount: transfer.Units(25)})
		require.NoError(b.T, err)
	}
	split := func(b *bank.Bank) {
		_, err := b.Transfer(b.T.Context(), transfer.Request{ID: "o", Legs: []transfer.Leg{
			{Account: "b", Amount: transfer.Units(-60)},
			{Account: "a", Amount: transfer.Units(50)},
			{Account: "c", Amount: transfer.Units(10)},
		}})
		require.NoError(b.T, err)
	}
	legs := transfer.Reversal{Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-20)},
		{Account: "c", Amount: transfer.Units(-4)},
		{Account: "b", Amount: transfer.Units(24)},
	}}
	return []scenario{
		{
			name: "a reversal by legs", balances: []int64{40, 60, 0}, policy: transfer.Resume, prepare: split, run: reversing(legs),
			check: func(b *bank.Bank) { requireReversedLegs(b, 20, 4) },
		},
		{
			name: "a reversal", balances: []int64{40, 60}, at: transfer.AtCommit, prepare: moved, run: reversing(all),
			check: func(b *bank.Bank) { requireReversed(b, 60, 0) },
		},
		{
			name: "a reversal of a part", balances: []int64{40, 60}, policy: transfer.Resume, prepare: moved, run: reversing(part),
			check: func(b *bank.Bank) { requireReversed(b, 25, 0) },
		},
		{
			name: "a reversal that is planned anew", balances: []int64{40, 60}, stall: atOnce, policy: transfer.Resume,
			prepare: outdated, run: reversing(all),
			check: func(b *bank.Bank) { requireReversed(b, 35, 25) },
		},
	}
}

// requireReversed requires that the original counts what the reversal t has moved, if it
// has succeeded, besides what was reversed before.
func requireReversed(b *bank.Bank, units, before int64) {
	b.T.Helper()
	original, err := b.Get(b.T.Context(), "o")
	require.NoError(b.T, err)
	if succeeded(b, "t") {
		before += units
	}
	require.Equal(b.T, before, bank.Units(b.T, original.Reversed))
	require.Equal(b.T, before == 60, original.ReversedBy == "t")
}

// requireReversedLegs requires that what is left of the original is what the reversal t,
// if it has succeeded, has not taken from a and c.
func requireReversedLegs(b *bank.Bank, fromA, fromC int64) {
	b.T.Helper()
	if !succeeded(b, "t") {
		fromA, fromC = 0, 0
	}
	rest, err := b.Reverse(b.T.Context(), transfer.Reversal{ID: "rest", Of: "o", All: true})
	require.NoError(b.T, err)
	moved := map[string]int64{}
	for _, leg := range rest.Legs {
		moved[leg.Account] = bank.Units(b.T, leg.Amount)
	}
	require.Equal(b.T, map[string]int64{"a": fromA - 50, "c": fromC - 10, "b": 60 - fromA - fromC}, moved)
}
