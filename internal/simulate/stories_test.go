package simulate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// play is one interleaving, step by step.
type play struct {
	t *testing.T
	r *run
}

// newPlay returns a play between alice, who has some money, and bob, with transfers of
// 60.
func newPlay(t *testing.T, balance int64, transfers int) play {
	t.Helper()
	plans := make([][]Leg, transfers)
	for i := range plans {
		plans[i] = []Leg{{Account: 0, Amount: -60}, {Account: 1, Amount: 60}}
	}
	return play{t: t, r: &run{w: *NewWorld([]Account{{Balance: balance}, {}}, nil, plans...)}}
}

// join adds an executor and returns its index.
func (p play) join(transfer int, start protocol.Start) int {
	p.t.Helper()
	who := p.r.enroll(transfer, start)
	require.NoError(p.t, p.r.join(who))
	return who
}

// until lets an executor go on without faults up to an operation that it wants next.
func (p play) until(who int, kind protocol.Kind) {
	p.t.Helper()
	for {
		batch := p.r.executors[who].batch
		require.NotEmpty(p.t, batch, "the executor ends before %s", kind)
		if batch[0].Kind == kind {
			return
		}
		p.next(who, answered)
	}
}

// next lets the next operation of an executor meet a fate.
func (p play) next(who int, fate Fate) {
	p.t.Helper()
	op := p.r.executors[who].batch[0]
	require.NoError(p.t, p.r.take(move{kind: perform, who: who, op: op.Kind, at: op.Participant, fate: fate}))
}

// end lets an executor go on without faults until it ends.
func (p play) end(who int, outcome protocol.Outcome, state protocol.State) {
	p.t.Helper()
	require.NoError(p.t, p.r.finish(who))
	require.Equal(p.t, outcome, p.r.executors[who].x.Outcome())
	require.Equal(p.t, state, p.r.executors[who].x.State())
}

// arrives lets the message in flight arrive.
func (p play) arrives() {
	p.t.Helper()
	require.NotEmpty(p.t, p.r.w.flight)
	require.NoError(p.t, p.r.take(p.r.delivery(0)))
}

// over requires the balances of alice and bob, and that nothing is left to do.
func (p play) over(alice, bob int64) {
	p.t.Helper()
	for _, policy := range policies() {
		require.NoError(p.t, p.r.recovers(policy))
	}
	require.Equal(p.t, alice, p.r.w.Accounts[0].Balance)
	require.Equal(p.t, bob, p.r.w.Accounts[1].Balance)
	require.False(p.t, p.r.w.Accounts[0].marked())
	require.False(p.t, p.r.w.Accounts[1].marked())
}

// No caller hears of a refusal that is not stored.
//
//  1. A finds too little money and stalls.
//  2. Money comes in.
//  3. B takes over and commits.
//  4. A's decision does not match: A is overtaken, and reports no refusal.
func TestRefusedThenCommittedByRecovery(t *testing.T) {
	p := newPlay(t, 50, 1)
	a := p.join(0, fromInsert())
	p.until(a, protocol.Decide)
	require.Equal(t, protocol.InsufficientFunds, p.r.executors[a].x.Refusal().Reason)
	require.NoError(t, p.r.take(move{kind: deposit, who: 0}))
	b := p.join(0, resume())
	p.end(b, protocol.Finished, protocol.Success)
	p.end(a, protocol.Overtaken, protocol.Preparing)
	p.over(50, 60)
}

// A debit that hangs in the network does no harm, however late it arrives.
//
//  1. A's debit hangs, and A dies.
//  2. B takes over, finds no marker, rolls back, replaces the fence and finishes.
//  3. The debit arrives.
func TestLatePrepareMeetsANewFence(t *testing.T) {
	p := newPlay(t, 100, 1)
	a := p.join(0, fromInsert())
	p.until(a, protocol.Prepare)
	p.next(a, delayed)
	b := p.join(0, rollBack())
	p.end(b, protocol.Finished, protocol.Fail)
	p.arrives()
	p.over(100, 0)
}

// A fence that is learned after the claim is used only if nobody had taken over by then.
//
//  1. A claims and stalls.
//  2. B takes over, rolls back, replaces the fences and finishes.
//  3. A prepares, is refused, and reads the new fence.
func TestFenceLearnedAfterATakeover(t *testing.T) {
	p := newPlay(t, 100, 1)
	a := p.join(0, fromInsert())
	p.until(a, protocol.Prepare)
	b := p.join(0, rollBack())
	p.end(b, protocol.Finished, protocol.Fail)
	p.until(a, protocol.Verify)
	p.end(a, protocol.Overtaken, protocol.Preparing)
	p.over(100, 0)
}

// No participant sees a token a second time.
//
//  1. B's fence-only hangs, is repeated, and the repeat arrives.
//  2. C pins its token for another transfer, sends a debit, which hangs, and dies.
//  3. D cancels C's transfer and replaces the fence.
//  4. B's first fence-only arrives, then C's debit.
func TestNoTokenComesBack(t *testing.T) {
	p := newPlay(t, 100, 2)
	a := p.join(0, fromInsert())
	p.until(a, protocol.Prepare)
	b := p.join(0, cancel())
	p.until(b, protocol.FenceOnly)
	p.next(b, delayed)
	p.end(b, protocol.Finished, protocol.Fail)
	c := p.join(1, fromInsert())
	p.until(c, protocol.Prepare)
	p.next(c, delayed)
	d := p.join(1, cancel())
	p.end(d, protocol.Finished, protocol.Fail)
	p.arrives()
	p.arrives()
	p.over(100, 0)
}

// No execution builds on what only the primary has performed.
//
//  1. B rolls A's transfer back; only the primary stores its new fences.
//  2. C reads the fences for another transfer: it sees those from before.
//  3. The primary fails, and the new fences are gone.
//  4. C goes on with what it has read.
func TestFailoverTakesNothingBackThatWasBelieved(t *testing.T) {
	p := newPlay(t, 100, 2)
	a := p.join(0, fromInsert())
	p.until(a, protocol.Prepare)
	b := p.join(0, cancel())
	p.until(b, protocol.FenceOnly)
	p.next(b, unreplicated)
	p.next(b, unreplicated)
	changed := p.r.w.Accounts[0].Fence
	c := p.join(1, fromInsert())
	p.until(c, protocol.Claim)
	require.NoError(t, p.r.take(move{kind: failOver}))
	require.NotEqual(t, changed, p.r.w.Accounts[0].Fence)
	p.end(c, protocol.Finished, protocol.Success)
	p.end(b, protocol.Finished, protocol.Fail)
	p.over(40, 60)
}
