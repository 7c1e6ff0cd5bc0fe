package simulate

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// TestMergedIsWhatItsMembersDo promises that a merged update does what its members do one
// right after the other, the clears first, then the prepares of credits, then those of
// debits, if each of them matches then.
// Otherwise it does nothing.
// So whatever is true of executions that send single updates is true of those that merge
// them.
// Some of the transfers are partly posted holds.
func TestMergedIsWhatItsMembersDo(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	matched, not := [mixtures]int{}, [mixtures]int{}
	for range 200_000 {
		w := drawWorld(random)
		members := drawMembers(random, w)
		if len(members) < 2 {
			continue
		}
		whole, one := w.fork(), w.fork()
		slices.SortStableFunc(members, func(a, b Message) int { return cmp.Compare(w.turn(a), w.turn(b)) })
		each := true
		for _, m := range members {
			each = each && one.apply(m)
		}
		what := mixtureOf(members)
		require.Equal(t, each, whole.applyMerged(members), "%s in %+v", w.describeAll(members), w.Accounts[0])
		if each {
			matched[what]++
			require.Equal(t, one.Version, whole.Version, "%s", w.describeAll(members))
		} else {
			not[what]++
			require.Equal(t, w.Version, whole.Version, "%s", w.describeAll(members))
		}
	}
	for m := range mixtures {
		require.Greater(t, matched[m], 1000, "%s", m)
		require.Greater(t, not[m], 1000, "%s", m)
	}
}

// turn returns when it is a member's turn.
func (w *World) turn(m Message) int {
	switch {
	case m.Op.Kind != protocol.Prepare:
		return 0
	case w.leg(m).Amount > 0:
		return 1
	}
	return 2
}

// drawWorld draws an account and transfers with small numbers, so that the bounds are
// sometimes met exactly.
func drawWorld(random *rand.Rand) *World {
	rare := func() bool { return random.IntN(16) == 0 }
	a := Account{
		Balance: random.Int64N(14) - 4, Floor: random.Int64N(5) - 2, Fence: "f0",
		Missing: rare(), Closed: rare(), Foreign: rare(), Odd: rare(),
	}
	var plans [][]Leg
	for t := range MaxTransfers {
		amount := 1 + random.Int64N(4)
		if random.IntN(2) == 0 {
			amount = -amount
		}
		plans = append(plans, []Leg{{Account: 0, Amount: amount}, {Account: 1, Amount: -amount}})
		a.Markers[t] = random.IntN(2) == 0
	}
	w := NewWorld([]Account{a, {}}, nil, plans...)
	for t := range plans {
		// Of a hold; 0: all of it.
		w.Transfers[t].Posted = random.Int64N(1 + max(plans[t][0].Amount, -plans[t][0].Amount))
	}
	w.MostBalance = 5 + random.Int64N(5)
	return w
}

// drawMembers draws writes that may travel together, most of which find their markers as
// they need them.
func drawMembers(random *rand.Rand, w *World) []Message {
	var members []Message
	for t := range MaxTransfers {
		op := protocol.Operation{Kind: protocol.Prepare, Fence: "f0"}
		if w.Accounts[0].Markers[t] != (random.IntN(8) == 0) {
			op = protocol.Operation{Kind: protocol.Settle, ReplaceFence: random.IntN(3) == 0}
			if random.IntN(2) == 0 {
				op.Kind = protocol.Undo
			}
		} else if random.IntN(8) == 0 {
			op.Fence = "f1"
		}
		m := w.Send(t, t+1, op)
		if !slices.ContainsFunc(members, func(other Message) bool { return !w.Merges(other, m) }) {
			members = append(members, m)
		}
	}
	return members
}
