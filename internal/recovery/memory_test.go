package recovery

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What is remembered is known for a period at least and for two at most, and is news only
// once.
func TestMemoryForgets(t *testing.T) {
	t.Parallel()
	const period = time.Minute
	now := time.Now()
	m := newMemory(func() time.Time { return now }, period)
	require.False(t, m.has("t"))
	require.True(t, m.add("t"))
	require.False(t, m.add("t"))
	now = now.Add(period - 1)
	require.True(t, m.add("late"))
	now = now.Add(period)
	require.True(t, m.has("late"))
	require.False(t, m.has("another"))
	now = now.Add(period)
	require.False(t, m.has("t"))
	require.True(t, m.add("t"))
	now = now.Add(2 * period)
	require.False(t, m.has("t"), "nobody has asked meanwhile")
}

// It remembers no more than a number of transfers, and the others are no news.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	m := newMemory(func() time.Time { return now }, time.Minute)
	for i := range maxRemembered {
		require.True(t, m.add(fmt.Sprint(i)))
	}
	require.False(t, m.add("one more"))
	require.False(t, m.has("one more"))
	require.True(t, m.has("0"))
	now = now.Add(time.Minute)
	require.True(t, m.add("one more"))
}
