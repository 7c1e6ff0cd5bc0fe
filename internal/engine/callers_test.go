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
		"quick":                 {func(int) time.Duration { return time.Millisecond }, 2500, 4000},
		"quick, and some hang":  {func(n int) time.Duration { return hangs(n%50 == 0) }, 2000, 4500},
		"all hang":              {func(int) time.Duration { return hangs(true) }, fewInProgress - 1, fewInProgress},
		"all hang, and recover": {func(n int) time.Duration { return hangs(n < 100) }, 2500, 4000},
	} {
		t.Run(name, func(t *testing.T) {
			var callers Callers
			for n := range 1000 {
				callers.record(row.took(n))
			}
			callers.crowd.served.Store(row.fit)
			require.True(t, callers.crowd.hasTime(5*time.Second), "%s each", time.Duration(callers.crowd.each.Load()))
			callers.crowd.served.Store(row.unfit)
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
	require.Equal(t, int64(129), callers.crowd.served.Load())
	now = now.Add(time.Second)
	cancel()
	leaveEarly()
	require.Equal(t, int64(128), callers.crowd.served.Load())
	require.Zero(t, callers.crowd.each.Load())
	leave()
	require.Equal(t, int64(127), callers.crowd.served.Load())
	require.Equal(t, int64(time.Second/fewInProgress*3/2), callers.crowd.each.Load(), "it was alone when it came")

	e.now = time.Now
	limited, cancelLimited := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancelLimited()
	_, err = e.Admit(limited, &callers)
	require.ErrorIs(t, err, ErrNothingSent)
	require.Equal(t, int64(127), callers.crowd.served.Load())
}
