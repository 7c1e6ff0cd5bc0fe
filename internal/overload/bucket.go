package overload

import (
	"sync"
	"time"
)

// bucket lets so many bytes pass in a second, for all who share it, in the order of their
// coming. The nil one lets everything pass.
type bucket struct {
	perSecond float64

	mu   sync.Mutex
	free time.Time // when all that was let in has passed
}

// newBucket returns a bucket, nil for a rate of zero.
func newBucket(perSecond int) *bucket {
	if perSecond == 0 {
		return nil
	}
	return &bucket{perSecond: float64(perSecond)}
}

// pass waits until n bytes have passed. It reports false if done is closed first.
func (b *bucket) pass(done <-chan struct{}, n int) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	now := time.Now()
	if b.free.Before(now) {
		b.free = now
	}
	b.free = b.free.Add(time.Duration(float64(n) / b.perSecond * float64(time.Second)))
	timer := time.NewTimer(b.free.Sub(now))
	b.mu.Unlock()
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-done:
		return false
	}
}
