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
	return []scenario{
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
