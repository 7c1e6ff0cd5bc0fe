package transfer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/queries"
)

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
	require.Equal(t, []queries.Route{far.name}, l.routes())
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
	require.Equal(t, []queries.Route{far.name}, l.routes())
	hanging, others := l.left()
	require.Equal(t, [2]bool{true, false}, [2]bool{hanging, others})
	l = c.look(0)
	l.leaveOut([]*route{far, c.to("y")})
	require.Equal(t, []queries.Route{far.name, c.to("y").name}, l.routes())
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
