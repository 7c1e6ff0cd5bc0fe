package wire

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// If a context ends before its limit, its end counts.
func TestLimitHeedsItsContext(t *testing.T) {
	t.Parallel()
	now := time.Now()
	short, cancel := context.WithDeadline(t.Context(), now.Add(3*time.Second))
	defer cancel()
	ctx, end := WithLimit(short, func() time.Time { return now }, time.Minute)
	defer end()
	l, has := ctx.Value(limitKey{}).(limited)
	require.True(t, has)
	require.Equal(t, 2*time.Second, l.left())
	now = now.Add(2 * time.Second)
	require.Equal(t, 500*time.Millisecond, l.left(), "half of what is left")
	now = now.Add(time.Minute)
	require.Equal(t, time.Millisecond, l.left())
}
