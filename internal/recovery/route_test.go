package recovery

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/document"
)

// Transfers take the same route if they need the same clusters, in any order.
func TestRouteOfATransfer(t *testing.T) {
	t.Parallel()
	c := newClocked(t, 1, "x", "y")
	require.Same(t, c.to("x", "y"), c.to("y", "x"))
	require.NotSame(t, c.to("x", "y"), c.to("x"))
	require.NotSame(t, c.to("x"), c.to())
	require.Same(t, c.to("x"), c.routeOf(document.Transfer{Legs: []document.Leg{{Ledger: "x"}, {Ledger: "x"}}}))
}

// A route has no more transfers in progress than there are free slots for others: k
// routes that hang for the first time leave each other, and a last one, a part of
// 1/(k+1).
func TestRoutesShare(t *testing.T) {
	t.Parallel()
	for k := 1; k <= 5; k++ {
		var names []string
		for i := range k {
			names = append(names, fmt.Sprint("dead", i))
		}
		c := newClocked(t, 120, append(names, "fine")...)
		for _, name := range append(names, "fine") {
			c.prove(c.to(name))
		}
		for range 120 { // in turns, as they come
			for _, name := range names {
				c.enter(c.to(name))
			}
		}
		for _, name := range names {
			require.InDelta(t, 120/(k+1), c.to(name).inProgress, 1)
		}
		require.GreaterOrEqual(t, c.size-c.taken, 120/(k+1))
		require.GreaterOrEqual(t, c.fill(c.to("fine")), 120/(k+1)/2)
		require.Positive(t, c.fill(c.to()), "and what needs no other cluster goes on in any case")
	}
}

// Transfers that need no other cluster may have most of the slots, and leave some for the
// others.
func TestRouteAtHome(t *testing.T) {
	t.Parallel()
	c := newClocked(t, 100, "x")
	require.Equal(t, 80, c.fill(c.to()))
	require.Equal(t, 10, c.fill(c.to("x")))
}

// A route that has not shown yet that it doesn't hang has only a few transfers in
// progress, however many slots there are.
func TestRouteIsProven(t *testing.T) {
	t.Parallel()
	c := newClocked(t, 1000, "x")
	r := c.to("x")
	require.Equal(t, routeTrial, c.fill(r))
	c.leave(r, c.now, Inconclusive)
	require.Equal(t, 1, c.fill(r), "that has proven nothing")
	require.False(t, c.steady(r))
	c.leave(r, c.now, Answered)
	require.True(t, c.steady(r))
	require.Equal(t, 500-routeTrial+1, c.fill(r))
}

// A route hangs once enough transfers have been in progress for as long as a command may
// take and none has ended.
// From then on only a few are tried, until one of them does.
func TestRouteHangs(t *testing.T) {
	t.Parallel()
	c := newClocked(t, 1000, "x")
	r := c.to("x")
	c.prove(r)
	begun := c.now
	for range routeTrial {
		c.enter(r)
	}
	c.now = c.now.Add(routeLimit - 1)
	entered, _ := c.enter(r)
	require.True(t, entered, "not long enough")
	c.now = c.now.Add(1)
	require.Zero(t, c.fill(r))
	require.True(t, c.hangs(r))
	c.leave(r, begun, Inconclusive)
	require.Zero(t, c.fill(r), "as many are on trial as may be")
	c.leave(r, begun, Inconclusive)
	require.Equal(t, 1, c.fill(r), "one more trial")
	c.leave(r, begun, Answered)
	require.False(t, c.hangs(r))
	require.Greater(t, c.fill(r), routeTrial)
}

// A route doesn't hang while some transfers end, nor because of a few transfers, nor
// because of new ones.
func TestRouteDoesNotHang(t *testing.T) {
	t.Parallel()
	c := newClocked(t, 1000, "x")
	r := c.to("x")
	c.prove(r)
	begun := c.now
	for range routeTrial - 1 {
		c.enter(r)
	}
	c.now = c.now.Add(routeLimit)
	c.enter(r)
	c.enter(r)
	require.False(t, c.hangs(r), "by now there are enough, and not for long")
	c.now = c.now.Add(routeLimit - 1)
	c.leave(r, begun, Answered)
	c.now = c.now.Add(routeLimit - 1)
	require.Positive(t, c.fill(r))
	require.False(t, c.hangs(r))
}

// A transfer that was given up shows that its route hangs, and the next ones are tried
// after a pause.
// It shows nothing if another transfer has ended meanwhile.
func TestRouteOfWhatWasGivenUp(t *testing.T) {
	t.Parallel()
	c := newClocked(t, 1000, "x")
	r := c.to("x")
	begun := c.now
	for range 3 {
		c.enter(r)
	}
	c.now = c.now.Add(1)
	c.leave(r, begun, Answered)
	c.leave(r, begun, Unanswered)
	require.False(t, c.hangs(r))
	c.leave(r, c.now.Add(1), Unanswered)
	require.True(t, c.hangs(r))
	require.Zero(t, c.fill(r))
	require.Equal(t, []*route{r}, c.fullRoutes())
	c.now = c.now.Add(routePause)
	require.Empty(t, c.fullRoutes())
	require.Equal(t, routeTrial, c.fill(r))
}

// If a route with passed-over transfers hangs no longer, the next sweep starts at once.
func TestRouteComesBack(t *testing.T) {
	t.Parallel()
	for name, pass := range map[string]func(c *clocked, r *route){
		"tried in vain": func(c *clocked, r *route) { c.enter(r) },
		"left out":      func(c *clocked, _ *route) { c.fullRoutes() },
		"nothing":       nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClocked(t, 1000, "x")
			r := c.to("x")
			c.enter(r)
			c.enter(r)
			c.leave(r, c.now, Unanswered)
			if pass != nil {
				pass(c, r)
			}
			c.leave(r, c.now, Answered)
			require.Len(t, c.revived, min(1, map[bool]int{true: 0, false: 1}[pass == nil]))
		})
	}
}

// A sweep waits for room if the route doesn't hang, until its patience, its context or
// the Coordinator ends.
func TestRoomIsWaitedFor(t *testing.T) {
	t.Parallel()
	c := newClocked(t, 2, "x")
	r := c.to("x")
	const long = time.Hour
	require.True(t, c.enterWithin(t.Context(), r, 0))
	require.False(t, c.enterWithin(t.Context(), r, time.Millisecond))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, c.enterWithin(ended, r, long))
	entered := make(chan bool)
	go func() { entered <- c.enterWithin(t.Context(), r, long) }()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.freed != nil
	}, 5*time.Minute, time.Millisecond)
	c.leave(r, c.now, Answered)
	require.True(t, <-entered)
	require.NoError(t, c.Engine.Close(t.Context()))
	require.False(t, c.enterWithin(t.Context(), r, long))
}

// Where no cluster but that of the searches is needed, nothing is said to hang: what does
// not come to its end there waits for something else, such as a locked account.
func TestHomeAnswers(t *testing.T) {
	t.Parallel()
	c := newClocked(t, 1000)
	home, begun := c.to(), c.now
	for range routeTrial {
		c.enter(home)
	}
	c.now = c.now.Add(2 * routeLimit)
	require.Positive(t, c.fill(home), "although nothing ends")
	require.False(t, c.hangs(home))
	c.leave(home, begun, Unanswered)
	require.False(t, c.hangs(home), "nor where one is given up")
	require.Positive(t, c.fill(home))
}
