package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Commands begin small and double until a time-out.
// They shrink by half with each time-out, and grow by a constant with each answer to a
// full one, within their bounds.
func TestWindowGrowsAndShrinks(t *testing.T) {
	w := newWindow(512)
	var sizes []int
	for range 4 {
		sizes = append(sizes, w.size)
		w.recordAnswer(time.Millisecond, true)
	}
	require.Equal(t, []int{64, 128, 256, 512}, sizes)
	require.Equal(t, 512, w.size)
	w.recordTimeout()
	require.Equal(t, 256, w.size)
	w.recordAnswer(time.Millisecond, false)
	require.Equal(t, 256, w.size, "more would not have been sent anyway")
	w.recordAnswer(time.Millisecond, true)
	require.Equal(t, 256+growth, w.size)
	for range 20 {
		w.recordAnswer(time.Millisecond, true)
	}
	require.Equal(t, 512, w.size)
	w.recordSilence()
	require.Equal(t, 1, w.size)
	w.recordTimeout()
	require.Equal(t, 1, w.size)
	w.recordAnswer(time.Millisecond, true)
	require.Equal(t, growth, w.size)
}

// A command never carries more than it may, even where that is less than a step.
func TestWindowStaysWithinItsBound(t *testing.T) {
	for _, largest := range []int{1, 8, 16} {
		w := newWindow(largest)
		require.Equal(t, largest, w.size)
		w.recordTimeout()
		require.Equal(t, max(largest/2, 1), w.size)
		for range 3 {
			w.recordAnswer(time.Millisecond, true)
			require.Equal(t, largest, w.size)
		}
	}
}

// After a silence the size doubles again, up to half of the size that was too large.
func TestWindowAfterSilence(t *testing.T) {
	w := newWindow(512)
	w.size = 512
	w.recordTimeout()
	w.recordSilence()
	sizes := []int{}
	for range 6 {
		w.recordAnswer(time.Millisecond, true)
		sizes = append(sizes, w.size)
	}
	require.Equal(t, []int{33, 66, 132, 256, 288, 320}, sizes)
}

// The times after which a command is overdue or given up follow the latest answers: they
// are longer on a slow server than on a quick one.
func TestWindowFollowsTheServer(t *testing.T) {
	w := newWindow(512)
	require.Equal(t, firstOverdue, w.overdueAfter())
	require.Equal(t, shortestLimit, w.giveUpAfter())
	for range 50 {
		w.recordAnswer(time.Millisecond, true)
	}
	require.Equal(t, firstOverdue, w.overdueAfter())
	require.Equal(t, shortestLimit, w.giveUpAfter())
	for range 50 {
		w.recordAnswer(2*time.Second, true)
	}
	require.InDelta(t, 2*time.Second, w.overdueAfter(), float64(100*time.Millisecond))
	require.InDelta(t, 3*time.Second, w.giveUpAfter(), float64(100*time.Millisecond))
	for range 50 {
		w.recordAnswer(time.Minute, true)
	}
	require.Equal(t, longestLimit, w.giveUpAfter())
	require.Equal(t, longestLimit, w.overdueAfter())
}

// While nothing is answered, each further command is overdue later, and every fourth one
// may take the longest limit.
func TestWindowBacksOff(t *testing.T) {
	w := newWindow(512)
	var overdue, limits []time.Duration
	for range 8 {
		overdue, limits = append(overdue, w.overdueAfter()), append(limits, w.giveUpAfter())
		w.recordTimeout()
	}
	ms := time.Millisecond
	require.Equal(t, []time.Duration{250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 4000 * ms, 4000 * ms, 4000 * ms, 4000 * ms}, overdue)
	short, long := shortestLimit, longestLimit
	require.Equal(t, []time.Duration{short, short, short, long, short, short, short, long}, limits)
	w.recordAnswer(ms, false)
	require.Equal(t, firstOverdue, w.overdueAfter())
}
