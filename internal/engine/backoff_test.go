package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An execution pauses after a round that brought nothing, and longer each time.
// It also pauses when others were first, once that has happened often.
// There is no pause between a look and the prepare that relies on it, however long the
// execution has taken so far.
func TestBackoff(t *testing.T) {
	var b backoff
	for range freeRounds {
		require.Zero(t, b.next(true, true, 0))
	}
	for n := range 5 {
		least := firstPause << n / 2
		require.GreaterOrEqual(t, b.next(true, true, 0), least, "others were first")
		require.Zero(t, b.next(true, false, 0), "a look")
		require.Zero(t, b.next(true, false, 0), "a verify")
	}
	require.GreaterOrEqual(t, b.next(false, false, 0), firstPause<<5/2, "nothing was answered")
	require.LessOrEqual(t, b.next(false, false, time.Millisecond), time.Millisecond)
}
