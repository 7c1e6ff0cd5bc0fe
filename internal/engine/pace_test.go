package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// The more executions are in progress, the longer the next one is expected to take.
// Executions that hang without slowing others down don't count.
func TestPace(t *testing.T) {
	p := pace{inProgress: 1000}
	require.Zero(t, p.expected(p.inProgress), "nothing is known")
	near := float64(10 * time.Millisecond)
	for range 100 {
		p.record(8*time.Second, 1000)
	}
	require.InDelta(t, 12*time.Second, p.expected(p.inProgress), near, "half as much on top")
	p.inProgress = 100
	require.InDelta(t, 1200*time.Millisecond, p.expected(p.inProgress), near)
	for range 100 {
		p.record(20*time.Millisecond, 1000)
	}
	p.inProgress = 1000
	require.InDelta(t, 30*time.Millisecond, p.expected(p.inProgress), near, "the others hang")
}

// What an execution takes alone it takes once, however many there are. Only what it takes
// longer is due to the others, though one in more than a few is not known to be alone.
func TestPaceOnASlowLink(t *testing.T) {
	ms := time.Millisecond
	var p pace
	of1000 := func() time.Duration { return p.expected(1000) }
	p.record(300*ms, nearlyAlone)
	require.Zero(t, p.alone)
	require.Equal(t, 300*ms/fewInProgress, p.mean)
	p = pace{}
	p.record(300*ms, nearlyAlone-1)
	require.Equal(t, 300*ms, of1000())
	p.record(250*ms, 500)
	require.Equal(t, 250*ms, of1000(), "alone it takes no longer than among others")
	for range 100 {
		p.record(1250*ms, 1000)
	}
	require.InDelta(t, 1750*ms, of1000(), float64(10*ms), "half as much on top")
	for n := range 100 {
		p.record(time.Duration(250+n%2*2000)*ms, 1000)
	}
	require.InDelta(t, 3250*ms, of1000(), float64(200*ms), "and twice the deviation, where that is more")
	p.record(time.Hour, 0)
	require.InDelta(t, 254*ms, time.Duration(p.alone), float64(ms), "it hangs")
}

// pretendBusy makes an engine believe that some executions are in progress, and that they
// take a minute together.
func pretendBusy(e *Engine, inProgress int) *pace {
	p := &e.gate.waitlistFor(nil).pace
	p.inProgress, p.mean, p.deviation = inProgress, time.Minute/time.Duration(max(inProgress, 1)), 0
	return p
}

// When many executions are in progress, a claim that can't end before its caller leaves
// is not sent.
// The execution asks again, because the load may have gone down.
func TestClaimThatComesTooLateIsNotSent(t *testing.T) {
	e := idle(t)
	e.now = time.Now
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	j := enqueueAlone(t, e, "late", insert())
	enqueueAlone(t, e, "patient", insert())
	j.caller = ctx
	s := idleServer(e)
	p := pretendBusy(e, 100)
	require.Equal(t, []string{"patient"}, transfersOf(e.takeCommand(s, false)))
	require.Equal(t, 101, p.inProgress)
	pretendBusy(e, 0)
	require.Eventually(t, func() bool { return j.unanswered.Load() > 0 }, eventually, tick, "it asks again")
	require.False(t, j.abandon(), "nothing was sent")
	require.Empty(t, j.replied)
}

// No claim comes too late when few executions are in progress, or when it takes over a
// stored transfer.
// The load of other clusters doesn't matter.
func TestClaimsThatAreInTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	takeOver := insert()
	takeOver.Claim = protocol.TakeOver
	for name, row := range map[string]struct {
		op      protocol.Operation
		begun   int
		prepare func(*pace)
		late    bool
	}{
		"many":            {insert(), fewInProgress, func(*pace) {}, true},
		"few":             {insert(), fewInProgress - 1, func(*pace) {}, false},
		"quick":           {insert(), fewInProgress, func(p *pace) { p.mean = time.Millisecond }, false},
		"others are slow": {insert(), fewInProgress, func(p *pace) { p.inProgress = 0 }, false},
		"a takeover":      {takeOver, fewInProgress, func(*pace) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := idle(t)
			e.now = time.Now
			j := enqueueAlone(t, e, "t", row.op)
			j.caller = ctx
			row.prepare(pretendBusy(e, row.begun))
			require.Equal(t, row.late, e.claimTooLate(&j.tasks[0]))
		})
	}
}

// A claim that came too late once passes when there is twice the expected time.
func TestClaimThatWasLate(t *testing.T) {
	e := idle(t)
	e.now = time.Now
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	j := enqueueAlone(t, e, "t", insert())
	j.caller = ctx
	p := pretendBusy(e, 1000)
	for _, row := range []struct {
		mean time.Duration
		late bool
	}{{25 * time.Second, false}, {time.Minute, true}, {25 * time.Second, true}, {10 * time.Second, false}, {25 * time.Second, false}} {
		p.mean = row.mean / 1000
		require.Equal(t, row.late, e.claimTooLate(&j.tasks[0]))
	}
}
