package simulate

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// meets lets an operation that an executor wants next meet a fate.
func (p play) meets(who int, kind protocol.Kind, fate Fate) {
	p.t.Helper()
	batch := p.r.executors[who].batch
	at := slices.IndexFunc(batch, func(op protocol.Operation) bool { return op.Kind == kind })
	require.GreaterOrEqual(p.t, at, 0, "%s is not wanted", kind)
	require.NoError(p.t, p.r.take(move{kind: perform, who: who, op: kind, at: batch[at].Participant, fate: fate}))
}

// upToTheFact lets an executor go on without faults until it can report the transfer as
// committed.
func (p play) upToTheFact(who int) {
	p.t.Helper()
	p.until(who, protocol.Pay)
	require.Equal(p.t, protocol.Decided, p.r.executors[who].x.Progress())
	require.Equal(p.t, protocol.Preparing, p.r.w.Transfers[0].State)
}

// What was reported before its record was stored stays true.
//
//  1. A prepares everything, and reports the commit; pay and record hang.
//  2. B cancels: it finds a trace at every participant, and goes forward.
//  3. A's pay and A's record arrive.
func TestCancelAfterTheFact(t *testing.T) {
	p := newPlay(t, 100, 1)
	a := p.join(0, fromInsert())
	p.upToTheFact(a)
	p.meets(a, protocol.Pay, delayed)
	p.meets(a, protocol.Decide, delayed)
	b := p.join(0, cancel())
	p.end(b, protocol.Finished, protocol.Success)
	require.Zero(t, p.r.executors[b].x.Refusal().Reason)
	p.arrives()
	p.arrives()
	p.end(a, protocol.Overtaken, protocol.Preparing)
	p.over(40, 60)
}

// A roll-back that comes before the fact keeps it from ever being one.
//
//  1. A's credit hangs.
//  2. B takes over to roll back, and sets a new fence at bob, who has no trace.
//  3. The credit arrives, and is refused: A can't come to know a fact.
//  4. B stores the roll-back.
func TestRollBackBeforeTheFact(t *testing.T) {
	p := newPlay(t, 100, 1)
	a := p.join(0, fromInsert())
	p.until(a, protocol.Prepare)
	p.next(a, answered)
	p.next(a, delayed)
	b := p.join(0, rollBack())
	p.until(b, protocol.Decide)
	require.NotEmpty(t, p.r.w.Accounts[1].Fence)
	p.arrives()
	require.Equal(t, protocol.NoTrace, p.r.w.Accounts[1].Traces[0])
	p.end(a, protocol.Overtaken, protocol.Preparing)
	p.end(b, protocol.Finished, protocol.Fail)
	p.over(100, 0)
}

// Who was overtaken clears nothing, and what it has paid is not paid again.
//
//  1. A concludes the fact and pays; its record hangs.
//  2. B takes over, prepares nothing, since all is there, and stores its own record.
//  3. A finds that the transfer is B's, and stops: it keeps no fence for B.
//  4. B clears under new fences.
func TestOvertakenBeforeItsRecord(t *testing.T) {
	p := newPlay(t, 100, 1)
	a := p.join(0, fromInsert())
	p.upToTheFact(a)
	p.meets(a, protocol.Pay, answered)
	p.meets(a, protocol.Decide, delayed)
	b := p.join(0, resume())
	p.until(b, protocol.Decide)
	p.next(b, answered)
	p.end(a, protocol.Overtaken, protocol.Preparing)
	require.Equal(t, protocol.Done, p.r.w.Accounts[1].Traces[0])
	p.end(b, protocol.Finished, protocol.Success)
	require.NotEmpty(t, p.r.w.Accounts[0].Fence)
	require.NotEmpty(t, p.r.w.Accounts[1].Fence)
	p.arrives()
	p.over(40, 60)
}

// One who takes over what is committed finds out what is paid.
//
//  1. A stores its record; its pay hangs, and A dies.
//  2. B takes over, finds no done mark, and settles.
//  3. The pay arrives.
func TestPayThatComesAfterTheTakeover(t *testing.T) {
	p := newPlay(t, 100, 1)
	a := p.join(0, fromInsert())
	p.upToTheFact(a)
	p.meets(a, protocol.Pay, delayed)
	p.meets(a, protocol.Decide, answered)
	b := p.join(0, resume())
	p.end(b, protocol.Finished, protocol.Success)
	p.arrives()
	p.over(40, 60)
}

// A done mark reserves nothing: the account takes part in other transfers, even if only
// one may be in flight on it, and can be closed.
func TestDoneMarkReservesNothing(t *testing.T) {
	p := newPlay(t, 120, 2)
	p.r.w.MarkerLimit = 1
	a := p.join(0, fromInsert())
	p.upToTheFact(a)
	p.meets(a, protocol.Pay, answered)
	p.meets(a, protocol.Decide, answered)
	p.meets(a, protocol.Settle, answered)
	require.Equal(t, protocol.Done, p.r.w.Accounts[1].Traces[0])
	b := p.join(1, fromInsert())
	p.end(b, protocol.Finished, protocol.Success)
	require.NoError(t, p.r.take(move{kind: closeAccount, who: 1}))
	require.True(t, p.r.w.Accounts[1].Closed)
	p.end(a, protocol.Finished, protocol.Success)
	p.over(0, 120)
}

// What is due on a frozen account is paid, and it takes no new transfer.
//
//  1. A prepares everything, and learns that it is committed.
//  2. Bob is frozen. The fence of his account is another one from then on.
//  3. A pays bob, and clears. B, of another transfer, has pinned the old fence, and is
//     refused.
//  4. Bob is unfrozen. C, of a third transfer, goes through.
func TestFrozenAccountIsPaid(t *testing.T) {
	p := newPlay(t, 180, 3)
	a, b := p.join(0, fromInsert()), p.join(1, fromInsert())
	p.upToTheFact(a)
	p.until(b, protocol.Prepare)
	fence := p.r.w.Accounts[1].Fence
	require.NoError(t, p.r.take(move{kind: freeze, who: 1}))
	require.True(t, p.r.w.Accounts[1].Frozen)
	require.NotEqual(t, fence, p.r.w.Accounts[1].Fence)
	p.end(a, protocol.Finished, protocol.Success)
	p.end(b, protocol.Finished, protocol.Fail)
	require.Equal(t, protocol.Refusal{Reason: protocol.Frozen, Participant: 1}, p.r.executors[b].x.Refusal())
	require.NoError(t, p.r.take(move{kind: thaw, who: 1}))
	p.end(p.join(2, fromInsert()), protocol.Finished, protocol.Success)
	p.over(60, 120)
}

// A reversal is reported as committed once that is stored, and not before: nothing would
// be left to show it.
//
//  1. A reserves the original and prepares the money.
//  2. The original is purged, and A dies.
//  3. B takes over, finds no original, and rolls back.
func TestPurgedOriginalOfAReversal(t *testing.T) {
	reversal := []Leg{{Account: 0, Amount: -60}, {Account: 1, Amount: 60}, {Account: 2, MayBeGone: true}}
	p := play{t: t, r: &run{w: *NewWorld([]Account{{Balance: 100}, {}, {}}, nil, reversal)}}
	a := p.join(0, fromInsert())
	p.until(a, protocol.Decide)
	require.Equal(t, protocol.Undecided, p.r.executors[a].x.Progress())
	require.NoError(t, p.r.take(move{kind: purge, who: 2}))
	b := p.join(0, resume())
	p.end(b, protocol.Finished, protocol.Fail)
	p.end(a, protocol.Overtaken, protocol.Preparing)
	p.over(100, 0)
}
