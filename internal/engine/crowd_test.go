package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A caller of something new that would not be served in time is refused, and is not
// counted among those who are before others.
func TestTurnsThatWouldNotCome(t *testing.T) {
	for name, row := range map[string]struct {
		before  int64
		each    time.Duration
		left    time.Duration
		refused bool
	}{
		"many":                 {fewInProgress, time.Minute, 20 * time.Millisecond, true},
		"few":                  {fewInProgress - 1, time.Minute, 20 * time.Millisecond, false},
		"quick":                {fewInProgress, time.Millisecond, time.Hour, false},
		"quick, and very many": {100_000, time.Millisecond, 20 * time.Millisecond, true},
		"time without end":     {fewInProgress, time.Minute, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := idle(t)
			e.now = time.Now
			c := crowded(row.before, row.each)
			ctx := t.Context()
			if row.left > 0 {
				limited, cancel := context.WithTimeout(ctx, row.left)
				defer cancel()
				ctx = limited
			}
			err := e.join(ctx, c, c.hasTime)
			if row.refused {
				require.ErrorIs(t, err, ErrNothingSent)
				require.Equal(t, row.before, c.admitted.Load())
				return
			}
			require.NoError(t, err)
			require.Equal(t, row.before+1, c.admitted.Load())
			c.leave()
			require.Equal(t, row.before, c.admitted.Load())
		})
	}
}

func crowded(served int64, each time.Duration) *crowd {
	c := &crowd{}
	c.admitted.Store(served)
	c.each.Store(int64(each))
	return c
}

// A refusal says why, and comes before the context ends.
// A caller has a turn after all once enough others have left.
func TestTurnsThatComeAfterAll(t *testing.T) {
	e := idle(t)
	e.now = time.Now
	c := crowded(fewInProgress, time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := e.join(ctx, c, c.hasTime)
	require.ErrorIs(t, err, ErrNothingSent)
	require.ErrorIs(t, err, context.DeadlineExceeded, "it would end before the turn")
	require.ErrorContains(t, err, "too much is under way")
	require.NoError(t, ctx.Err())
	joined := make(chan error, 1)
	long, cancelLong := context.WithTimeout(t.Context(), eventually)
	defer cancelLong()
	go func() { joined <- e.join(long, c, c.hasTime) }()
	c.leave()
	require.NoError(t, <-joined)
}

// The more callers wait to be refused, the longer each waits: between an eighth and three
// quarters of its time. Whoever is refused waits no longer.
func TestManyAreRefusedSlowly(t *testing.T) {
	for name, row := range map[string]struct {
		waiting    int64
		left, want time.Duration
	}{
		"alone":            {0, 800 * time.Millisecond, 100 * time.Millisecond},
		"among some":       {999, 800 * time.Millisecond, 100 * time.Millisecond},
		"among many":       {1999, 800 * time.Millisecond, 200 * time.Millisecond},
		"among very many":  {100_000, 800 * time.Millisecond, 600 * time.Millisecond},
		"with little time": {2047, 100 * time.Millisecond, 75 * time.Millisecond},
		"with no time":     {2047, -time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := crowded(fewInProgress, time.Hour)
			c.waiting.Store(row.waiting)
			require.Equal(t, row.want, max(0, c.wait(row.left)))
			require.Equal(t, row.waiting+1, c.waiting.Load())
			require.Equal(t, max(10*time.Millisecond, time.Duration(row.waiting+1)*100*time.Microsecond), c.pause())
		})
	}
	e := idle(t)
	e.now = time.Now
	c := crowded(fewInProgress, time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, e.join(ctx, c, c.hasTime), ErrNothingSent)
	require.Zero(t, c.waiting.Load())
}

// Whoever waits when the engine is closed, or whose context ends, learns that.
func TestTurnsThatAreNotAwaited(t *testing.T) {
	e := idle(t)
	e.now = time.Now
	c := crowded(fewInProgress, time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	joined := make(chan error, 1)
	go func() { joined <- e.join(ctx, c, c.hasTime) }()
	close(e.closing)
	require.ErrorIs(t, <-joined, ErrClosed)
	cancel()
	require.ErrorIs(t, e.join(ctx, c, c.hasTime), context.Canceled)
	require.Equal(t, int64(fewInProgress), c.admitted.Load())
}
