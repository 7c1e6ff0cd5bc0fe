package bank

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Within returns the next value of a channel, or the zero value of one that is closed.
// Where an earlier step has failed, nothing may ever come: then the test fails after some
// minutes. It is for the goroutine of the test.
func Within[T any](t *testing.T, from <-chan T) (next T) {
	t.Helper()
	limit := time.NewTimer(eventually)
	defer limit.Stop()
	select {
	case next = <-from:
	case <-limit.C:
		require.Fail(t, "nothing has come", "for %s", eventually)
	}
	return next
}
