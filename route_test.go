package transfer

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/mongostore"
)

// crowd are routes that share hands, and a clock.
type crowd struct {
	*hands
	t   *testing.T
	now time.Time
}

// newCrowd returns hands that hold so many, of a coordinator with ledgers on clusters of
// their own.
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

func between(ledgers ...string) mongostore.Transfer {
	t := mongostore.Transfer{ID: "t", Legs: []mongostore.Leg{{}}}
	for _, name := range ledgers {
		t.Legs = append(t.Legs, mongostore.Leg{Ledger: name})
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
	require.Same(t, c.to("x"), c.of(mongostore.Transfer{Legs: []mongostore.Leg{{Ledger: "x"}, {Ledger: "x"}}}))
}

// A route has no more in hand than there is room left for others: k of them that hang for
// the first time leave each other, and a last one, a part of 1/(k+1).
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
			require.InDelta(t, 120/(k+1), c.to(name).inHand, 1)
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

// A route that has not shown yet that it doesn't hang has but a few in hand, however many
// may be.
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

// A route hangs once enough transfers have been in hand for as long as a command may take
// and none came to its end. From then on only a few are tried, until one of them does.
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

// A route doesn't hang while one transfer or another comes to its end, nor because of a
// few, nor of those that have just been begun.
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

// A transfer that was given up says that its route hangs, and the next ones are tried
// after a pause; but not where another one came to its end meanwhile, which was lucky
// where it was not.
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

// When a route hangs no longer of which others were passed over, that is told: they are
// due.
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

// Room is waited for where the route doesn't hang, and not beyond the end of the
// patience, of the context or of the coordinator.
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

// A search that has passed over many transfers of a route begins anew without it, and
// goes on with the others. It passes over all that come after the first one of a route,
// in their order.
func TestLookLeavesOutWhatHasNoRoom(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 100, "x")
	far, l := c.to("x"), c.look(0)
	require.True(t, l.again())
	require.Empty(t, l.routes())
	for range routeTrial {
		require.True(t, l.enter(t.Context(), far))
	}
	require.False(t, l.enter(t.Context(), far))
	c.leave(far, c.now, asAlive)
	for range passLimit - 2 {
		require.False(t, l.enter(t.Context(), far), "there is room, for the one before")
	}
	require.False(t, l.anew)
	require.False(t, l.enter(t.Context(), far))
	require.True(t, l.again())
	require.False(t, l.again())
	require.Equal(t, []mongostore.Route{far.name}, l.routes())
	require.True(t, l.enter(t.Context(), c.to()))
	hanging, others := l.left()
	require.Equal(t, [2]bool{false, true}, [2]bool{hanging, others})
}

// A look doesn't search for what has no room, and says so.
func TestLookBeginsWithoutWhatHasNoRoom(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 100, "x", "y")
	far := c.to("x")
	c.enter(far)
	c.leave(far, c.now, asHanging)
	l := c.look(0)
	require.Equal(t, []mongostore.Route{far.name}, l.routes())
	hanging, others := l.left()
	require.Equal(t, [2]bool{true, false}, [2]bool{hanging, others})
	l = c.look(0)
	l.leaveOut([]*route{far, c.to("y")})
	require.Equal(t, []mongostore.Route{far.name, c.to("y").name}, l.routes())
	require.Len(t, l.behind(), 2)
}

// A look that leaves nothing out passes over all that hangs, and reads on to its end.
func TestThoroughLook(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 100, "x")
	far := c.to("x")
	c.enter(far)
	c.leave(far, c.now, asHanging)
	c.now = c.now.Add(routePause) // it may be tried
	l := c.look(0)
	l.thorough = true
	require.True(t, l.again())
	for range 2 * passLimit {
		require.False(t, l.enter(t.Context(), far))
	}
	require.False(t, l.again())
	require.True(t, l.enter(t.Context(), c.to()))
}

// After a look that has left out what hangs the pause is a multiple of what it took,
// without what it has waited; after one that has left out other things, as long; and
// bounded.
func TestLookRests(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		took, waited, want time.Duration
		leave              ending
	}{
		"nothing left": {time.Second, 0, 0, 0},
		"hanging":      {time.Second, 0, restFactor * time.Second, asHanging},
		"others":       {time.Second / 2, 0, time.Second / 2, asNothing},
		"waited":       {time.Second, time.Second / 2, restFactor * time.Second / 2, asHanging},
		"bounded":      {time.Hour, 0, longestRest, asHanging},
		"both bounded": {time.Hour, 0, shortRest, asNothing},
		"a clock set":  {-time.Hour, 0, 0, asHanging},
	} {
		c := newCrowd(t, 100, "x")
		l := c.look(time.Minute)
		l.wait(func(most time.Duration) {
			require.Equal(t, time.Minute, most)
			c.now = c.now.Add(row.waited)
		})
		require.Equal(t, time.Minute-row.waited, l.patience)
		if row.leave != 0 {
			c.enter(c.to("x"))
			c.leave(c.to("x"), c.now, row.leave)
			l.leaveOut([]*route{c.to("x")})
		}
		c.now = c.now.Add(row.took - row.waited)
		require.Equal(t, row.want, l.rest(), name)
	}
}
