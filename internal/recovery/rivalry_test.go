package recovery

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// left returns how many of a thousand transfers a worker leaves to others.
func left(r *rivalry) (n int) {
	for found := range 1000 {
		if r.leaves(leastTried + 1 + found) {
			n++
		}
	}
	return n
}

// A worker leaves nothing to others while it is alone, the more the more often they are
// first, and never everything.
// Once it is alone again, so it is.
func TestRivalry(t *testing.T) {
	t.Parallel()
	var r rivalry
	for range 1000 {
		r.ended(false)
	}
	require.Zero(t, left(&r))
	for n := range 1000 {
		r.ended(n%2 == 0)
	}
	require.InDelta(t, 500, left(&r), 150)
	for range 1000 {
		r.ended(true)
	}
	require.InDelta(t, 1000*mostLeft, left(&r), 50)
	for n := range leastTried + 1 {
		require.False(t, r.leaves(n), "where there are few it tries them all")
	}
	for range 20 * rivalryMemory {
		r.ended(false)
	}
	require.Zero(t, left(&r))
}
