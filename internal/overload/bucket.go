package overload

import (
	"sync"
	"time"
)

// bucket limits how many bytes pass in a second, for all who share it, in the order in
// which they come.
// A nil bucket has no limit.
type bucket struct {
	perSecond float64

	mu sync.Mutex
	// free is when everything that was let in has passed.
	free time.Time
}

// newBucket returns a bucket, or nil if the rate is zero.
func newBucket(perSecond int) *bucket {
	if perSecond == 0 {
		return nil
	}
	return &bucket{perSecond: float64(perSecond)}
}

// pass waits until n bytes have passed.
// It returns false if done is closed first.
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
