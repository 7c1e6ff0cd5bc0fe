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
// right after the other, the prepares of credits last but one, those of debits last, if
// each of them matches then.
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
		Missing: rare(), Closed: rare(), Frozen: rare(), Foreign: rare(), Odd: rare(),
	}
	var plans [][]Leg
	for t := range MaxTransfers {
		amount := 1 + random.Int64N(4)
		if random.IntN(2) == 0 {
			amount = -amount
		}
		plans = append(plans, []Leg{{Account: 0, Amount: amount}, {Account: 1, Amount: -amount}})
		a.Traces[t] = protocol.Trace(random.IntN(3))
	}
	w := NewWorld([]Account{a, {}}, nil, plans...)
	for t := range plans {
		// Of a hold; 0: all of it.
		w.Transfers[t].Posted = random.Int64N(1 + max(plans[t][0].Amount, -plans[t][0].Amount))
	}
	w.MostBalance = 5 + random.Int64N(5)
	return w
}

// drawMember draws a write that mostly finds the trace as it needs it.
func drawMember(random *rand.Rand, trace protocol.Trace) protocol.Operation {
	kinds := []protocol.Kind{protocol.Prepare, protocol.Settle, protocol.Pay, protocol.Undo, protocol.Clear}
	suitable := [][]protocol.Kind{protocol.NoTrace: kinds[:1], protocol.Reserved: kinds[1:4], protocol.Done: kinds[4:]}[trace]
	if random.IntN(8) == 0 {
		suitable = kinds
	}
	op := protocol.Operation{Kind: suitable[random.IntN(len(suitable))]}
	switch op.Kind {
	case protocol.Prepare:
		op.Fence = "f0"
		if random.IntN(8) == 0 {
			op.Fence = "f1"
		}
	case protocol.Pay:
	default:
		op.ReplaceFence = random.IntN(3) == 0
	}
	return op
}

// drawMembers draws writes that may travel together.
func drawMembers(random *rand.Rand, w *World) []Message {
	var members []Message
	for t := range MaxTransfers {
		op := drawMember(random, w.Accounts[0].Traces[t])
		m := w.Send(t, t+1, op)
		if !slices.ContainsFunc(members, func(other Message) bool { return !w.Merges(other, m) }) {
			members = append(members, m)
		}
	}
	return members
}
