package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Commands begin small, double until a time-out, shrink by half with each and grow by a constant with each answer
// to a full one, within their bounds.
func TestWindowGrowsAndShrinks(t *testing.T) {
	w := newWindow(512)
	var sizes []int
	for range 4 {
		sizes = append(sizes, w.size)
		w.answered(time.Millisecond, true)
	}
	require.Equal(t, []int{64, 128, 256, 512}, sizes)
	require.Equal(t, 512, w.size)
	w.late()
	require.Equal(t, 256, w.size)
	w.answered(time.Millisecond, false)
	require.Equal(t, 256, w.size, "more would not have been sent anyway")
	w.answered(time.Millisecond, true)
	require.Equal(t, 256+growth, w.size)
	for range 20 {
		w.answered(time.Millisecond, true)
	}
	require.Equal(t, 512, w.size)
	w.silent()
	require.Equal(t, 1, w.size)
	w.late()
	require.Equal(t, 1, w.size)
	w.answered(time.Millisecond, true)
	require.Equal(t, growth, w.size)
	require.Equal(t, 8, newWindow(8).size)
}

// After a silence it doubles again up to half of what was too much.
func TestWindowAfterSilence(t *testing.T) {
	w := newWindow(512)
	w.size = 512
	w.late()
	w.silent()
	sizes := []int{}
	for range 6 {
		w.answered(time.Millisecond, true)
		sizes = append(sizes, w.size)
	}
	require.Equal(t, []int{33, 66, 132, 256, 288, 320}, sizes)
}

// A command is overdue, and given up, by what answers have taken lately: on a slow server later than on a
// quick one.
func TestWindowFollowsTheServer(t *testing.T) {
	w := newWindow(512)
	require.Equal(t, firstOverdue, w.overdue())
	require.Equal(t, shortestLimit, w.limit())
	for range 50 {
		w.answered(time.Millisecond, true)
	}
	require.Equal(t, firstOverdue, w.overdue())
	require.Equal(t, shortestLimit, w.limit())
	for range 50 {
		w.answered(2*time.Second, true)
	}
	require.InDelta(t, 2*time.Second, w.overdue(), float64(100*time.Millisecond))
	require.InDelta(t, 3*time.Second, w.limit(), float64(100*time.Millisecond))
	for range 50 {
		w.answered(time.Minute, true)
	}
	require.Equal(t, longestLimit, w.limit())
	require.Equal(t, longestLimit, w.overdue())
}

// While nothing is answered, each further command waits longer before another one goes out beside it; and
// every fourth one is given all the time there is.
func TestWindowBacksOff(t *testing.T) {
	w := newWindow(512)
	var overdue, limits []time.Duration
	for range 8 {
		overdue, limits = append(overdue, w.overdue()), append(limits, w.limit())
		w.late()
	}
	ms := time.Millisecond
	require.Equal(t, []time.Duration{250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 4000 * ms, 4000 * ms, 4000 * ms, 4000 * ms}, overdue)
	short, long := shortestLimit, longestLimit
	require.Equal(t, []time.Duration{short, short, short, long, short, short, short, long}, limits)
	w.answered(ms, false)
	require.Equal(t, firstOverdue, w.overdue())
}

// An execution is expected to take as long as the latest ones, with room for those that take longer; but no
// longer than all under way take at the rate at which they come to their ends. After a long time without any
// nothing is known.
func TestPace(t *testing.T) {
	p := pace{begun: 1000}
	now := time.Unix(0, 0)
	require.Zero(t, p.expected(now))
	for range 1000 {
		now = now.Add(10 * time.Millisecond)
		p.took(8*time.Second, now)
	}
	near := float64(200 * time.Millisecond)
	require.InDelta(t, 8*time.Second*4/3, p.expected(now), near)
	p.begun = 300
	require.InDelta(t, 3*time.Second*4/3, p.expected(now), near, "100 a second: the latest have hung")
	for range 100 {
		p.took(time.Millisecond, now)
	}
	require.Less(t, p.expected(now), 10*time.Millisecond, "most of those under way hang")
	now = now.Add(time.Minute)
	require.Zero(t, p.expected(now), "that was long ago")
	p.took(time.Minute, now)
	require.Zero(t, p.expected(now), "one in a minute is no rate")
	p.took(time.Minute, now.Add(2*time.Second))
	require.NotZero(t, p.expected(now.Add(2*time.Second)))
}
