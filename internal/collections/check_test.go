package collections

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A failure is remembered for its span. A clock that goes back ends it.
func TestFailuresAreRememberedForAWhile(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	f := Failures{Span: time.Minute}
	require.NoError(t, f.Recent(begin), "nothing has failed")
	f.Record(begin, ErrUnsupported)
	require.ErrorIs(t, f.Recent(begin), ErrUnsupported)
	require.ErrorIs(t, f.Recent(begin.Add(time.Minute-1)), ErrUnsupported)
	require.NoError(t, f.Recent(begin.Add(time.Minute)))
	require.NoError(t, f.Recent(begin.Add(-1)))
}
