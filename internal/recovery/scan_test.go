package recovery

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/queries"
)

// A scan that has passed over many transfers of a route begins anew without it, and goes
// on with the others.
// Once it has passed over one transfer of a route it passes over all later ones, so that
// they keep their order.
func TestScanLeavesOutWhatHasNoRoom(t *testing.T) {
	t.Parallel()
	c := newClocked(t, 100, "x")
	far, n := c.to("x"), c.newScan(0)
	require.True(t, n.next())
	require.Empty(t, n.leftOut())
	for range routeTrial {
		require.True(t, n.enter(t.Context(), far))
	}
	require.False(t, n.enter(t.Context(), far))
	c.leave(far, c.now, Answered)
	for range skipLimit - 2 {
		require.False(t, n.enter(t.Context(), far), "there is room, for the one before")
	}
	require.False(t, n.anew)
	require.False(t, n.enter(t.Context(), far))
	require.True(t, n.next())
	require.False(t, n.next())
	require.Equal(t, []queries.Route{far.name}, n.leftOut())
	require.True(t, n.enter(t.Context(), c.to()))
	hanging, others := n.rest()
	require.Equal(t, [2]bool{false, true}, [2]bool{hanging, others})
}

// A scan doesn't search for transfers without room, and reports that.
func TestScanBeginsWithoutWhatHasNoRoom(t *testing.T) {
	t.Parallel()
	c := newClocked(t, 100, "x", "y")
	far := c.to("x")
	c.enter(far)
	c.leave(far, c.now, Unanswered)
	n := c.newScan(0)
	require.Equal(t, []queries.Route{far.name}, n.leftOut())
	hanging, others := n.rest()
	require.Equal(t, [2]bool{true, false}, [2]bool{hanging, others})
	n = c.newScan(0)
	n.leaveOut([]*route{far, c.to("y")})
	require.Equal(t, []queries.Route{far.name, c.to("y").name}, n.leftOut())
	require.Len(t, n.incomplete(), 2)
}

// A scan that leaves nothing out passes over all transfers that hang, and reads on to its
// end.
func TestThoroughScan(t *testing.T) {
	t.Parallel()
	c := newClocked(t, 100, "x")
	far := c.to("x")
	c.enter(far)
	c.leave(far, c.now, Unanswered)
	c.now = c.now.Add(routePause) // it may be tried
	n := c.newScan(0)
	n.thorough = true
	require.True(t, n.next())
	for range 2 * skipLimit {
		require.False(t, n.enter(t.Context(), far))
	}
	require.False(t, n.next())
	require.True(t, n.enter(t.Context(), c.to()))
}

// After a scan that has left out hanging transfers, the pause is a multiple of its
// duration, without the time that it has waited.
// After one that has left out others, the pause is as long as the scan.
// Both pauses are limited.
func TestScanPauses(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		took, waited, want time.Duration
		leave              Ending
	}{
		"nothing left": {time.Second, 0, 0, 0},
		"hanging":      {time.Second, 0, pauseFactor * time.Second, Unanswered},
		"others":       {time.Second / 2, 0, time.Second / 2, Inconclusive},
		"waited":       {time.Second, time.Second / 2, pauseFactor * time.Second / 2, Unanswered},
		"bounded":      {time.Hour, 0, longestPause, Unanswered},
		"both bounded": {time.Hour, 0, shortPause, Inconclusive},
		"a clock set":  {-time.Hour, 0, 0, Unanswered},
	} {
		c := newClocked(t, 100, "x")
		n := c.newScan(time.Minute)
		n.wait(func(patience time.Duration) {
			require.Equal(t, time.Minute, patience)
			c.now = c.now.Add(row.waited)
		})
		require.Equal(t, time.Minute-row.waited, n.patience)
		if row.leave != 0 {
			c.enter(c.to("x"))
			c.leave(c.to("x"), c.now, row.leave)
			n.leaveOut([]*route{c.to("x")})
		}
		c.now = c.now.Add(row.took - row.waited)
		require.Equal(t, row.want, n.pause(), name)
	}
}
