package simulate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// newHold returns a play in which the transfer is a hold.
func newHold(t *testing.T) play {
	t.Helper()
	p := newPlay(t, 200, 1)
	p.r.w.Holds[0] = true
	return p
}

// post adds an executor that posts an amount of the hold; 0: all of it.
func (p play) post(amount int64) int {
	p.t.Helper()
	who := p.r.enroll(0, postHold())
	p.r.executors[who].posted = amount
	require.NoError(p.t, p.r.join(who))
	return who
}

// A hold whose debit may arrive a second time is posted under new fences.
//
//  1. A's debit hangs in the network; A finds no marker, prepares again, and holds.
//  2. B posts a part of it, and sets new fences with what it settles.
//  3. The first debit arrives.
func TestPostOfADirtyHold(t *testing.T) {
	p := newHold(t)
	a := p.join(0, hold())
	p.until(a, protocol.Prepare)
	p.next(a, delayed)
	p.end(a, protocol.Held, protocol.Preparing)
	require.False(t, p.r.w.Transfers[0].Clean)
	b := p.post(20)
	p.end(b, protocol.Finished, protocol.Success)
	p.arrives()
	p.over(180, 20)
}

// A hold whose prepares were all answered is posted and voided under the present fences,
// so executions that know them go on.
func TestCleanHoldKeepsTheFences(t *testing.T) {
	for _, start := range []protocol.Start{postHold(), void()} {
		p := newHold(t)
		p.r.w.Accounts[0].Fence = "f0"
		p.end(p.join(0, hold()), protocol.Held, protocol.Preparing)
		p.r.executors[p.join(0, start)].own()
		require.NoError(t, p.r.finish(1))
		require.Equal(t, protocol.Finished, p.r.executors[1].x.Outcome())
		require.Equal(t, protocol.Fence("f0"), p.r.w.Accounts[0].Fence)
		require.Empty(t, p.r.w.Accounts[1].Fence)
	}
}

// A post has to be first.
//
//  1. B's post hangs in the network.
//  2. The hold expires, C voids it, and the money goes back.
//  3. B's post arrives.
func TestPostThatComesAfterTheExpiry(t *testing.T) {
	p := newHold(t)
	p.end(p.join(0, hold()), protocol.Held, protocol.Preparing)
	b := p.post(0)
	p.next(b, delayed)
	require.NoError(t, p.r.take(move{kind: elapse, who: 0}))
	c := p.join(0, expire())
	p.end(c, protocol.Finished, protocol.Fail)
	p.arrives()
	p.end(b, protocol.NotClaimed, "")
	require.True(t, p.r.executors[b].x.ClaimInDoubt(), "it was sent, and may have arrived before the expiry")
	p.over(200, 0)
}

// A void has to be first.
//
//  1. C takes the hold over, since it has expired, and stalls.
//  2. B's post, which was on its way, arrives: too late, by the same clock.
//  3. C rolls back.
func TestExpiryKeepsOutThePost(t *testing.T) {
	p := newHold(t)
	p.end(p.join(0, hold()), protocol.Held, protocol.Preparing)
	b := p.post(0)
	p.next(b, delayed)
	require.NoError(t, p.r.take(move{kind: elapse, who: 0}))
	c := p.join(0, expire())
	p.until(c, protocol.Decide)
	p.arrives()
	require.Equal(t, protocol.Preparing, p.r.w.Transfers[0].State)
	p.end(c, protocol.Finished, protocol.Fail)
	p.over(200, 0)
}

// A post that is first wins over an expiry, whose decision comes too late.
//
//  1. C wants to void the hold, which has a minute left by the database's clock: C does
//     not get it.
//  2. B posts.
//  3. The minute is over; C tries again.
func TestPostThatComesBeforeTheExpiry(t *testing.T) {
	p := newHold(t)
	p.end(p.join(0, hold()), protocol.Held, protocol.Preparing)
	early := p.join(0, expire())
	p.end(early, protocol.NotClaimed, "")
	b := p.post(0)
	p.next(b, answered)
	require.NoError(t, p.r.take(move{kind: elapse, who: 0}))
	late := p.join(0, expire())
	p.end(late, protocol.NotClaimed, "")
	p.end(b, protocol.Finished, protocol.Success)
	p.over(140, 60)
}

// A hold that was extended is not voided as expired.
//
//  1. C takes the hold over, since it has expired, and stalls. Or C hears no answer.
//  2. The primary falls, and by the clock of the next one the hold has not expired. There
//     it is extended.
//  3. C goes on.
//  4. B posts the hold.
func TestExtensionOvertakesTheExpiry(t *testing.T) {
	for fate, outcome := range map[Fate]protocol.Outcome{answered: protocol.Overtaken, answerLost: protocol.NotClaimed} {
		p := newHold(t)
		p.end(p.join(0, hold()), protocol.Held, protocol.Preparing)
		require.NoError(t, p.r.take(move{kind: elapse, who: 0}))
		c := p.join(0, expire())
		p.next(c, fate)
		require.NoError(t, p.r.take(move{kind: extend, who: 0}))
		require.NoError(t, p.r.finish(c))
		require.Equal(t, outcome, p.r.executors[c].x.Outcome())
		p.end(p.post(0), protocol.Finished, protocol.Success)
		p.over(140, 60)
	}
}

// An order is paid once.
//
//  1. A's payment reserves the order and stalls.
//  2. B's payment of the same order is refused.
//  3. A's is cancelled, which frees the order.
//  4. C's payment goes through, and sets the order to paid.
//  5. A wakes up, and finds that it has lost its payment.
func TestTwoPaymentsOfOneOrder(t *testing.T) {
	pays := []Leg{{Account: 0, Amount: -60}, {Account: 1, Amount: 60}, {Account: 2}}
	p := play{t: t, r: &run{w: *NewWorld([]Account{{Balance: 200}, {}, {}}, nil, pays, pays, pays)}}
	order := &p.r.w.Accounts[2]
	a := p.join(0, fromInsert())
	p.until(a, protocol.Prepare)
	p.next(a, answered)
	require.True(t, order.marked())
	b := p.join(1, fromInsert())
	p.end(b, protocol.Finished, protocol.Fail)
	require.Equal(t, protocol.Refusal{Reason: protocol.RequirementFailed, Participant: 2}, p.r.executors[b].x.Refusal())
	require.Zero(t, order.Value, "nothing shows of a payment that is not committed")
	p.end(p.join(0, cancel()), protocol.Finished, protocol.Fail)
	c := p.join(2, fromInsert())
	p.end(c, protocol.Finished, protocol.Success)
	p.end(a, protocol.Overtaken, protocol.Preparing)
	require.Equal(t, setBy(2), order.Value)
	require.False(t, order.marked())
	p.over(140, 60)
}
