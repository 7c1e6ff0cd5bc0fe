package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every load draws two different accounts that exist, and the same ones for each
// contender.
// The hot load takes nine of ten transfers from one account, and Zipf's prefers the first
// accounts.
func TestLoads(t *testing.T) {
	t.Parallel()
	const n, draws = 1000, 20_000
	for _, load := range loads() {
		a, err := newStream(load, n, 7, 'r', 1, 3)
		require.NoError(t, err)
		b, err := newStream(load, n, 7, 'r', 2, 3)
		require.NoError(t, err)
		ours, theirs := make([]order, draws), make([]order, draws)
		a.fill(ours)
		b.fill(theirs)
		debits := make([]int, n)
		for i, o := range ours {
			require.NotEqual(t, o.from, o.to, load)
			require.True(t, min(o.from, o.to) >= 0 && max(o.from, o.to) < n, load)
			require.True(t, o.amount >= 1 && o.amount <= maxAmount, load)
			require.Equal(t, []any{o.from, o.to, o.amount}, []any{theirs[i].from, theirs[i].to, theirs[i].amount}, load)
			debits[o.from]++
		}
		first := float64(debits[0]) / draws
		switch load {
		case "uniform":
			assert.InDelta(t, 0.001, first, 0.001)
		case "zipf":
			assert.InDelta(t, 0.18, first, 0.02)
			assert.Greater(t, debits[1], debits[10])
		case "hot":
			assert.InDelta(t, hotShare, first, 0.01)
		}
	}
	_, err := newStream("cold", n, 7, 'r', 1, 3)
	assert.ErrorContains(t, err, `no load "cold"`)
}

// All IDs have one length, and no ID occurs twice, for any purpose, round and caller.
func TestIDs(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, purpose := range []byte("rto") {
		for _, round := range []int{0, 1, 100_000} {
			for _, caller := range []int{0, 1, maxCallers - 1} {
				s, err := newStream("uniform", 10, 0, purpose, round, caller)
				require.NoError(t, err)
				orders := make([]order, 50)
				s.fill(orders)
				// To the end of the caller's range.
				s.next += callerRange - 2*uint64(len(orders))
				s.fill(orders[25:])
				for _, o := range orders {
					require.Len(t, o.id, idWidth)
					require.False(t, seen[o.id], o.id)
					seen[o.id] = true
				}
			}
		}
	}
}
