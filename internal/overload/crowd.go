package overload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	transfer "github.com/mongotransfer/transfer"
)

// tally counts the answers that callers got.
type tally struct {
	done atomic.Int64
	// doubt counts ErrInDoubt and ErrUnsettled: the context ended before the transfer
	// did.
	doubt atomic.Int64
	// unsent counts the calls that learnt that their context ended and that nothing was
	// stored.
	unsent atomic.Int64
	// odd counts all other errors, which no caller should get.
	odd atomic.Int64
	// longest is how long the slowest answer took, in nanoseconds.
	longest atomic.Int64
	// last is when the latest transfer was done, in nanoseconds.
	last atomic.Int64

	mu sync.Mutex
	// first is the first odd error.
	first error
}

// take adds an answer.
func (t *tally) take(err error, took time.Duration) {
	raise(&t.longest, int64(took))
	switch {
	case err == nil:
		t.done.Add(1)
		raise(&t.last, time.Now().UnixNano())
	case errors.Is(err, transfer.ErrInDoubt), errors.Is(err, transfer.ErrUnsettled):
		t.doubt.Add(1)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		t.unsent.Add(1)
	default:
		t.odd.Add(1)
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.first == nil {
			t.first = err
		}
	}
}

// answers returns how many calls have an answer of any kind.
func (t *tally) answers() int64 {
	return t.done.Load() + t.doubt.Load() + t.unsent.Load() + t.odd.Load()
}

// expected checks that no caller got an odd error.
func (s *scene) expected(name string, t *tally) {
	if t.odd.Load() == 0 {
		return
	}
	s.atMost(name, t.odd.Load(), 0)
	t.mu.Lock()
	defer t.mu.Unlock()
	s.note("the first of these", fmt.Sprintf("%.300v", t.first))
}

// crowd is a number of callers in closed loops: each makes its next call as soon as it
// has the answer to the one before.
type crowd struct {
	tally
	leave context.CancelFunc
	all   sync.WaitGroup
}

// gather starts a crowd.
// Each call may take as long as patience says.
func gather(ctx context.Context, callers int, patience time.Duration, call func(context.Context) error) *crowd {
	c := &crowd{}
	loop, leave := context.WithCancel(ctx)
	c.leave = leave
	for range callers {
		c.all.Go(func() {
			for loop.Err() == nil {
				limited, cancel := context.WithTimeout(ctx, patience)
				begun := time.Now()
				err := call(limited)
				c.take(err, time.Since(begun))
				cancel()
			}
		})
	}
	return c
}

// moves returns a call that makes the transfer that next returns.
func (m *member) moves(next func() transfer.Request) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := m.Transfer(ctx, next())
		return err
	}
}

// disperse stops new calls, and waits until all callers have their answers.
func (c *crowd) disperse() {
	c.leave()
	c.all.Wait()
}

// rate returns how many transfers are done in a second.
func (c *crowd) rate(ctx context.Context, window time.Duration) float64 {
	begun, before := time.Now(), c.done.Load()
	pause(ctx, window)
	return float64(c.done.Load()-before) / time.Since(begun).Seconds()
}

// steadyRate returns the rate of 256 callers in closed loops who have time.
func (s *scene) steadyRate(ctx context.Context, window time.Duration, call func(context.Context) error) float64 {
	c := gather(ctx, steadyCallers, time.Minute, call)
	pause(ctx, window/4)
	rate := c.rate(ctx, window)
	c.disperse()
	s.expected("steady callers told something odd", &c.tally)
	return rate
}
