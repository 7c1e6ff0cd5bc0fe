package transfer

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/document"
)

// crowd are routes that share hands, and a clock.
type crowd struct {
	*hands
	t   *testing.T
	now time.Time
}

// newCrowd returns hands that hold so many, of a coordinator with ledgers on clusters of their own.
func newCrowd(t *testing.T, size int, ledgers ...string) *crowd {
	t.Helper()
	c := &crowd{t: t, now: time.Now()}
	coordinator := unconnected(t, ledgers...)
	coordinator.now = func() time.Time { return c.now }
	c.hands = coordinator.newHands(size)
	return c
}

// to returns the route of transfers between the default ledger and others.
func (c *crowd) to(ledgers ...string) *route { return c.of(between(ledgers...)) }

func between(ledgers ...string) document.Transfer {
	t := document.Transfer{ID: "t", Legs: []document.Leg{{}}}
	for _, name := range ledgers {
		t.Legs = append(t.Legs, document.Leg{Ledger: name})
	}
	return t
}

// fill enters a route for as long as there is room, and returns how often that was.
func (c *crowd) fill(r *route) (n int) {
	c.t.Helper()
	for entered := true; entered; n++ {
		require.LessOrEqual(c.t, n, c.size)
		entered, _ = c.enter(r)
	}
	return n - 1
}

// prove makes a route show that it doesn't hang.
func (c *crowd) prove(r *route) {
	c.t.Helper()
	entered, _ := c.enter(r)
	require.True(c.t, entered)
	c.leave(r, c.now, asAlive)
}

// Transfers take the same route if they need the same clusters, in whatever order.
func TestRouteOfATransfer(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 1, "x", "y")
	require.Same(t, c.to("x", "y"), c.to("y", "x"))
	require.NotSame(t, c.to("x", "y"), c.to("x"))
	require.NotSame(t, c.to("x"), c.to())
	require.Same(t, c.to("x"), c.of(document.Transfer{Legs: []document.Leg{{Ledger: "x"}, {Ledger: "x"}}}))
}

// A route has no more in hand than there is room left for others: k of them that hang for the first
// time leave each other, and a last one, a part of 1/(k+1).
func TestRoutesShare(t *testing.T) {
	t.Parallel()
	for k := 1; k <= 5; k++ {
		var names []string
		for i := range k {
			names = append(names, fmt.Sprint("dead", i))
		}
		c := newCrowd(t, 120, append(names, "fine")...)
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

// What needs no other cluster may have most of the room, and leaves some for what does.
func TestRouteAtHome(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 100, "x")
	require.Equal(t, 80, c.fill(c.to()))
	require.Equal(t, 10, c.fill(c.to("x")))
}

// A route that has not shown yet that it doesn't hang has but a few in hand, however many may be.
func TestRouteIsProven(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 1000, "x")
	r := c.to("x")
	require.Equal(t, routeTrial, c.fill(r))
	c.leave(r, c.now, asNothing)
	require.Equal(t, 1, c.fill(r), "that has proven nothing")
	require.False(t, c.steady(r))
	c.leave(r, c.now, asAlive)
	require.True(t, c.steady(r))
	require.Equal(t, 500-routeTrial+1, c.fill(r))
}

// A route hangs once enough transfers have been in hand for as long as a command may take and none
// came to its end. From then on only a few are tried, until one of them does.
func TestRouteHangs(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 1000, "x")
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
	require.True(t, c.hang(r))
	c.leave(r, begun, asNothing)
	require.Zero(t, c.fill(r), "as many are on trial as may be")
	c.leave(r, begun, asNothing)
	require.Equal(t, 1, c.fill(r), "one more trial")
	c.leave(r, begun, asAlive)
	require.False(t, c.hang(r))
	require.Greater(t, c.fill(r), routeTrial)
}

// A route doesn't hang while one transfer or another comes to its end, nor because of a few, nor of
// those that have just been begun.
func TestRouteDoesNotHang(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 1000, "x")
	r := c.to("x")
	c.prove(r)
	begun := c.now
	for range routeTrial - 1 {
		c.enter(r)
	}
	c.now = c.now.Add(routeLimit)
	c.enter(r)
	c.enter(r)
	require.False(t, c.hang(r), "by now there are enough, and not for long")
	c.now = c.now.Add(routeLimit - 1)
	c.leave(r, begun, asAlive)
	c.now = c.now.Add(routeLimit - 1)
	require.Positive(t, c.fill(r))
	require.False(t, c.hang(r))
}

// A transfer that was given up says that its route hangs, and the next ones are tried after a
// pause; but not where another one came to its end meanwhile, which was lucky where it was not.
func TestRouteOfWhatWasGivenUp(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 1000, "x")
	r := c.to("x")
	begun := c.now
	for range 3 {
		c.enter(r)
	}
	c.now = c.now.Add(1)
	c.leave(r, begun, asAlive)
	c.leave(r, begun, asHanging)
	require.False(t, c.hang(r))
	c.leave(r, c.now.Add(1), asHanging)
	require.True(t, c.hang(r))
	require.Zero(t, c.fill(r))
	require.Equal(t, []*route{r}, c.full())
	c.now = c.now.Add(routePause)
	require.Empty(t, c.full())
	require.Equal(t, routeTrial, c.fill(r))
}

// When a route hangs no longer of which others were passed over, that is told: they are due.
func TestRouteComesBack(t *testing.T) {
	t.Parallel()
	for name, pass := range map[string]func(c *crowd, r *route){
		"tried in vain": func(c *crowd, r *route) { c.enter(r) },
		"left out":      func(c *crowd, _ *route) { c.full() },
		"nothing":       nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t, 1000, "x")
			r := c.to("x")
			c.enter(r)
			c.enter(r)
			c.leave(r, c.now, asHanging)
			if pass != nil {
				pass(c, r)
			}
			c.leave(r, c.now, asAlive)
			require.Len(t, c.revived, min(1, map[bool]int{true: 0, false: 1}[pass == nil]))
		})
	}
}

// Room is waited for where the route doesn't hang, and not beyond the end of the patience, of the
// context or of the coordinator.
func TestRoomIsWaitedFor(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 2, "x")
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
	}, 20*time.Second, time.Millisecond)
	c.leave(r, c.now, asAlive)
	require.True(t, <-entered)
	require.NoError(t, c.coordinator.Close(t.Context()))
	require.False(t, c.enterWithin(t.Context(), r, long))
}
