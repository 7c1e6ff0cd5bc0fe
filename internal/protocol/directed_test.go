package protocol

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// play is one interleaving, told step by step. The first violation ends it: what follows does nothing.
type play struct {
	t *testing.T
	r *run
	// err is the first violation.
	err error
}

func newPlay(t *testing.T, bend *mutant, w world) *play {
	t.Helper()
	w.bend = bend
	return &play{t: t, r: &run{w: w, faults: 100}}
}

// join adds an executor and returns its index.
func (p *play) join(transfer int, start Start) int {
	if p.err == nil {
		p.err = p.r.join(transfer, start)
	}
	return len(p.r.executors) - 1
}

// until lets an executor go on without faults up to an operation that it wants next.
func (p *play) until(who int, kind Kind) {
	p.t.Helper()
	for p.err == nil {
		batch := p.r.executors[who].batch
		require.NotEmpty(p.t, batch, "executor %d ends before %s", who, kindName(kind))
		if batch[0].Kind == kind {
			return
		}
		p.take(move{kind: perform, who: who, fate: answered})
	}
}

// meets lets the next operation of an executor meet a fate.
func (p *play) meets(who int, kind Kind, f fate) {
	p.t.Helper()
	if p.err == nil {
		batch := p.r.executors[who].batch
		require.NotEmpty(p.t, batch)
		require.Equal(p.t, kindName(kind), kindName(batch[0].Kind))
		p.take(move{kind: perform, who: who, fate: f})
	}
}

// end lets an executor go on without faults until it ends.
func (p *play) end(who int, outcome Outcome, state State) {
	p.t.Helper()
	const patience = 100
	for step := 0; p.err == nil && len(p.r.executors[who].batch) > 0; step++ {
		require.Less(p.t, step, patience, "executor %d goes round in circles", who)
		p.take(move{kind: perform, who: who, fate: answered})
	}
	if p.err == nil {
		x := p.r.executors[who].x
		require.Equal(p.t, outcome, x.Outcome())
		require.Equal(p.t, state, x.State())
	}
}

// arrives lets the oldest message in flight arrive.
func (p *play) arrives() {
	p.t.Helper()
	if p.err == nil {
		require.NotEmpty(p.t, p.r.w.flight)
		p.take(move{kind: deliver})
	}
}

func (p *play) take(m move) {
	if p.err == nil {
		p.err = p.r.take(m)
	}
}

// over checks that a recovery ends what is left.
func (p *play) over() error {
	if p.err == nil {
		p.err = p.r.w.recovers()
	}
	return p.err
}

// tokenComesBack promises that no participant sees a token for the second time. 1. B's fence-only hangs, is repeated, and the
// repeat arrives. 2. C pins its token for another transfer, sends a debit, which hangs, and dies. 3. D cancels C's transfer and
// replaces the fence. 4. B's first fence-only arrives, then C's debit.
func tokenComesBack(t *testing.T, bend *mutant) error {
	t.Helper()
	p := newPlay(t, bend, newWorld([worldAccounts]int64{100, 0}, 60, 60))
	a := p.join(0, Start{Claiming: Insert})
	p.until(a, Prepare)
	b := p.join(0, Start{Claiming: TakeToCancel, RollBack: Cancelled})
	p.until(b, FenceOnly)
	p.meets(b, FenceOnly, delayed)
	p.end(b, Finished, Fail)
	c := p.join(1, Start{Claiming: Insert})
	p.until(c, Prepare)
	p.meets(c, Prepare, delayed)
	d := p.join(1, Start{Claiming: TakeToCancel, RollBack: Cancelled})
	p.end(d, Finished, Fail)
	p.arrives()
	p.arrives()
	return p.over()
}

// fenceAfterTakeover promises that a fence which is learned after the claim is used only if nobody had taken over by then.
// 1. A claims and stalls. 2. B takes over, rolls back, replaces the fences and finishes. 3. A prepares, is refused, and reads
// the new fence.
func fenceAfterTakeover(t *testing.T, bend *mutant) error {
	t.Helper()
	p := newPlay(t, bend, newWorld([worldAccounts]int64{100, 0}, 60))
	a := p.join(0, Start{Claiming: Insert})
	p.until(a, Prepare)
	b := p.join(0, Start{Claiming: TakeOver, RollBack: Stalled})
	p.end(b, Finished, Fail)
	p.until(a, Verify)
	p.end(a, Overtaken, Preparing)
	return p.over()
}

// driverRepeats promises that nothing but the execution repeats a prepare. 1. The first attempt of a debit hangs. 2. Another
// transfer takes the money; the driver's second attempt finds too little, and the transfer fails, clean. 3. Money comes in.
// 4. The first attempt arrives.
func driverRepeats(t *testing.T, bend *mutant) error {
	t.Helper()
	p := newPlay(t, bend, newWorld([worldAccounts]int64{100, 0}, 60, 60))
	a := p.join(0, Start{Claiming: Insert})
	p.until(a, Prepare)
	b := p.join(1, Start{Claiming: Insert})
	p.end(b, Finished, Success)
	attempt := delayed
	if bend != nil {
		attempt = repeated
	}
	p.meets(a, Prepare, attempt)
	p.end(a, Finished, Fail)
	p.take(move{kind: deposit, who: 0})
	p.arrives()
	return p.over()
}

// TestRefusedThenCommittedByRecovery promises that nobody is told of a refusal that is not stored. 1. A finds too little
// money and stalls. 2. Money comes in. 3. B takes over and commits. 4. A's decision does not match: it is overtaken, and
// says nothing.
func TestRefusedThenCommittedByRecovery(t *testing.T) {
	p := newPlay(t, nil, newWorld([worldAccounts]int64{50, 0}, 60))
	a := p.join(0, Start{Claiming: Insert})
	p.until(a, Decide)
	require.Equal(t, InsufficientFunds, p.r.executors[a].x.Refusal().Reason)
	p.take(move{kind: deposit, who: 0})
	b := p.join(0, Start{Claiming: TakeOver})
	p.end(b, Finished, Success)
	p.end(a, Overtaken, Preparing)
	require.NoError(t, p.over())
	require.Equal(t, int64(50), p.r.w.accounts[0].balance)
	require.Equal(t, int64(60), p.r.w.accounts[1].balance)
}

// TestLatePrepareMeetsANewFence promises that a debit which hangs in the network does no harm, however late it comes. 1. A's
// debit hangs, and A dies. 2. B takes over, finds no marker, rolls back, replaces the fence and finishes. 3. The debit
// arrives.
func TestLatePrepareMeetsANewFence(t *testing.T) {
	p := newPlay(t, nil, newWorld([worldAccounts]int64{100, 0}, 60))
	a := p.join(0, Start{Claiming: Insert})
	p.until(a, Prepare)
	p.meets(a, Prepare, delayed)
	b := p.join(0, Start{Claiming: TakeOver, RollBack: Stalled})
	p.end(b, Finished, Fail)
	p.arrives()
	require.NoError(t, p.over())
	require.Equal(t, int64(100), p.r.w.accounts[0].balance)
	require.False(t, p.r.w.accounts[0].marked())
	require.False(t, p.r.w.accounts[1].marked())
}
