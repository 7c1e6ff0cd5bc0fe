package bank

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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

// Until asks again and again whether something holds, for some minutes. A question that
// fails is asked again; the latest failure is reported if it never holds. Whoever asks
// must not end the test: it is another goroutine.
func Until(t *testing.T, every time.Duration, holds func() (bool, error)) {
	t.Helper()
	var (
		mu     sync.Mutex
		latest error
	)
	met := assert.Eventually(t, func() bool {
		now, err := holds()
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			latest = err
		}
		return err == nil && now
	}, eventually, every)
	mu.Lock()
	defer mu.Unlock()
	if !met {
		require.NoError(t, latest)
		t.FailNow()
	}
}
