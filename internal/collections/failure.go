package collections

import (
	"sync"
	"time"
)

// LatestFailure remembers why the latest try of something has failed, for those who would
// try the same a moment later.
// The zero value remembers nothing.
// It is safe for many goroutines.
type LatestFailure struct {
	mu  sync.Mutex
	err error
	at  time.Time
}

// Record notes a failure.
func (f *LatestFailure) Record(now time.Time, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.at = err, now
}

// Within returns the latest failure if it is younger than the given age, and nil otherwise.
func (f *LatestFailure) Within(now time.Time, age time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if since := now.Sub(f.at); since < 0 || since >= age {
		return nil
	}
	return f.err
}
