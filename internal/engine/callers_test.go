package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What one more call takes is learnt from those that end. A few that hang don't count,
// and while all hang only few are let in.
func TestPaceOfCallersIsLearnt(t *testing.T) {
	for name, row := range map[string]struct {
		took  func(n int) time.Duration // of the n-th call, divided by the number under way
		fit   int64                     // callers who would be served within five seconds
		unfit int64
	}{
		"quick":                 {func(int) time.Duration { return time.Millisecond }, 3300, 3400},
		"one of five is slower": {func(n int) time.Duration { return time.Duration(1+n%5/4) * time.Millisecond }, 1600, 3400},
		"one of two is slower":  {func(n int) time.Duration { return time.Duration(1+n%2) * time.Millisecond }, 1600, 1700},
		"quick, and some hang":  {func(n int) time.Duration { return hangs(n%50 == 0) }, 2000, 4500},
		"all hang":              {func(int) time.Duration { return hangs(true) }, fewInProgress - 1, fewInProgress},
		"all hang, and recover": {func(n int) time.Duration { return hangs(n < 100) }, 2500, 4000},
	} {
		t.Run(name, func(t *testing.T) {
			var callers Callers
			for n := range 1000 {
				callers.record(row.took(n)*fewInProgress, fewInProgress, false)
			}
			callers.crowd.admitted.Store(row.fit)
			require.True(t, callers.crowd.hasTime(5*time.Second), "%s each", time.Duration(callers.crowd.each.Load()))
			callers.crowd.admitted.Store(row.unfit)
			require.False(t, callers.crowd.hasTime(5*time.Second), "%s each", time.Duration(callers.crowd.each.Load()))
		})
	}
}

func hangs(hangs bool) time.Duration {
	if hangs {
		return 30 * time.Second / fewInProgress
	}
	return time.Millisecond
}

// Each caller counts until it leaves. How long it took counts unless it gave up.
func TestCallersAreCounted(t *testing.T) {
	now := time.Now()
	e := idle(t)
	e.now = func() time.Time { return now }
	var callers Callers
	leave, err := e.Admit(t.Context(), &callers)
	require.NoError(t, err)
	for range 127 {
		_, err := e.Admit(t.Context(), &callers)
		require.NoError(t, err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	leaveEarly, err := e.Admit(canceled, &callers)
	require.NoError(t, err)
	leaveIdle, err := e.Admit(t.Context(), &callers)
	require.NoError(t, err)
	require.Equal(t, int64(130), callers.crowd.admitted.Load())
	now = now.Add(time.Second)
	cancel()
	leaveEarly(true)
	require.Equal(t, int64(129), callers.crowd.admitted.Load())
	require.Zero(t, callers.crowd.each.Load())
	leaveIdle(false)
	require.Zero(t, callers.crowd.each.Load(), "it had nothing to do")
	leave(true)
	require.Equal(t, int64(127), callers.crowd.admitted.Load())
	require.Equal(t, int64(time.Second), callers.crowd.alone.Load(), "it was alone when it came")
	require.Zero(t, callers.crowd.each.Load())

	e.now = time.Now
	limited, cancelLimited := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancelLimited()
	_, err = e.Admit(limited, &callers)
	require.NoError(t, err, "the first one shows how long it takes")
	_, err = e.Admit(limited, &callers)
	require.ErrorIs(t, err, ErrNothingSent)
	require.Equal(t, int64(128), callers.crowd.admitted.Load())
}

// Callers whose time is over are not let in: as probes they would keep out the others.
func TestNoProbeIsSpentOnCallersWithoutTime(t *testing.T) {
	e := idle(t)
	var callers Callers
	callers.crowd.admitted.Store(100)
	callers.crowd.each.Store(int64(time.Hour))
	over, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	_, err := e.Admit(over, &callers)
	require.ErrorIs(t, err, ErrNothingSent)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, int64(100), callers.crowd.admitted.Load())
	require.Zero(t, callers.probed.Load())
}

// Calls that are far quicker than expected show what the next one takes, if there are
// several in a row, beside slow ones. Those that ran out of time do not.
func TestQuickCallsDisproveTheExpectation(t *testing.T) {
	var callers Callers
	callers.record(time.Second, 0, true)
	require.Zero(t, callers.crowd.alone.Load(), "it would have taken longer")
	callers.crowd.each.Store(0)
	callers.record(time.Minute, 100, true)
	expected := int64(900 * time.Millisecond)
	require.Equal(t, expected, callers.crowd.each.Load())
	callers.record(time.Millisecond, 100, true)
	require.Equal(t, expected, callers.crowd.each.Load())
	callers.record(-time.Second, 100, false) // the clock went back
	require.Equal(t, expected, callers.crowd.each.Load())
	quick := func(n int) {
		for range n {
			callers.record(10*time.Millisecond, 100, false)
			callers.record(time.Minute, 100, false)
		}
	}
	quick(7)
	callers.record(30*time.Second, 100, false)
	expected -= expected / 128
	quick(7)
	require.InEpsilon(t, expected, callers.crowd.each.Load(), 0.01, "others take about as long as is expected")
	callers.record(10*time.Millisecond, 100, false)
	require.Equal(t, int64(300*time.Microsecond), callers.crowd.each.Load(), "twice what it took, and half as much again")
}

// A probe is let in eight times in the time that a caller is expected to take, and twenty
// times a second at the least, whatever the clock does.
func TestProbesAreFew(t *testing.T) {
	var callers Callers
	callers.crowd.admitted.Store(100)
	now := time.Now()
	for each, apart := range map[time.Duration]time.Duration{
		time.Millisecond: 12500 * time.Microsecond,
		time.Second:      50 * time.Millisecond,
	} {
		callers.crowd.each.Store(int64(each))
		callers.probed.Store(0)
		require.True(t, callers.probe(now))
		require.False(t, callers.probe(now))
		require.False(t, callers.probe(now.Add(apart-time.Millisecond)))
		require.True(t, callers.probe(now.Add(apart)))
		require.True(t, callers.probe(now))
		require.False(t, callers.probe(now))
	}
}
