package transfer

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/mongostore"
)

// toOther returns a transfer from the default ledger to another one.
func toOther() mongostore.Transfer {
	return mongostore.Transfer{ID: "far", Legs: []mongostore.Leg{{}, {Ledger: "other"}}}
}

// Transfers take the same route if they touch the same places, in whatever order.
func TestRouteOfATransfer(t *testing.T) {
	t.Parallel()
	var all routes
	back := mongostore.Transfer{Legs: []mongostore.Leg{{Ledger: "other"}, {}}}
	near := mongostore.Transfer{Legs: []mongostore.Leg{{}, {}}}
	require.Same(t, all.of(toOther(), 1), all.of(back, 1))
	require.NotSame(t, all.of(toOther(), 1), all.of(near, 1))
}

// A route hangs once enough transfers have been in hand for as long as a command may take and none came to its end. From then on only a few
// are tried, until one of them does.
func TestRouteHangs(t *testing.T) {
	t.Parallel()
	r, now, enter := routeAt()
	for range routeTrial {
		require.True(t, enter())
	}
	*now = now.Add(routeLimit - 1)
	require.True(t, enter(), "not long enough")
	*now = now.Add(1)
	require.False(t, enter())
	r.leave(*now, false)
	require.False(t, enter(), "as many are on trial as may be")
	r.leave(*now, false)
	require.True(t, enter(), "one more trial")
	require.False(t, enter())
	r.leave(*now, true)
	require.True(t, enter(), "it hangs no longer")
	require.True(t, enter())

	*now = now.Add(routeLimit)
	for len(r.turns) > 0 {
		r.leave(*now, false)
	}
	for range routeTrial {
		require.True(t, enter())
	}
	require.False(t, enter(), "all were given up: it hangs until one comes to its end")
}

// A route doesn't hang while one transfer or another comes to its end, nor because of a few, nor of those that have just been begun.
func TestRouteDoesNotHang(t *testing.T) {
	t.Parallel()
	r, now, enter := routeAt()
	for range routeTrial - 1 {
		require.True(t, enter())
	}
	*now = now.Add(routeLimit)
	require.True(t, enter())
	require.True(t, enter(), "by now there are enough, and not for long")
	*now = now.Add(routeLimit - 1)
	r.leave(*now, true)
	*now = now.Add(routeLimit - 1)
	require.True(t, enter())
}

// Who comes back to a route that hangs waits for it, without one more trial, until it doesn't, or for as long as it has time.
func TestRouteThatHangsIsWaitedFor(t *testing.T) {
	t.Parallel()
	r := new(routes).of(toOther(), 2*routeTrial)
	r.hangs = true
	for range routeTrial {
		r.turns <- struct{}{}
	}
	require.False(t, r.enter(t.Context(), nil, time.Now, time.Now().Add(2*routePoll)))
	short, cancel := context.WithTimeout(t.Context(), 2*routePoll)
	defer cancel()
	require.False(t, r.enter(short, nil, time.Now, time.Now().Add(time.Hour)))
	entered := make(chan bool)
	go func() { entered <- r.enter(t.Context(), nil, time.Now, time.Now().Add(time.Hour)) }()
	r.leave(time.Now(), true)
	require.True(t, <-entered)
}

// routeAt returns a route, its clock, and what tries to take a turn.
func routeAt() (r *route, now *time.Time, enter func() bool) {
	clock := time.Now()
	r = new(routes).of(toOther(), 2*recoveryWidth)
	return r, &clock, func() bool { return r.enter(context.Background(), nil, func() time.Time { return clock }, clock) }
}

// A turn is waited for while the route doesn't hang, and not beyond the end of the context or of the coordinator.
func TestRouteIsWaitedFor(t *testing.T) {
	t.Parallel()
	r := new(routes).of(toOther(), 1)
	begun := time.Now()
	now := func() time.Time { return begun }
	require.True(t, r.enter(t.Context(), nil, now, begun))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, r.enter(ended, nil, now, begun))
	closed := make(chan struct{})
	close(closed)
	require.False(t, r.enter(t.Context(), closed, now, begun))
	entered := make(chan bool)
	go func() { entered <- r.enter(t.Context(), nil, now, begun) }()
	r.leave(begun, true)
	require.True(t, <-entered)
}
