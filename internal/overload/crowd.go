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

// tally is what callers were told.
type tally struct {
	done    atomic.Int64
	doubt   atomic.Int64 // told ErrInDoubt, or ErrUnsettled: their context has ended before the end
	unsent  atomic.Int64 // told that their context has ended, and nothing else: nothing was stored
	odd     atomic.Int64 // told something else, which nobody should be
	longest atomic.Int64 // nanoseconds until an answer of whatever kind
	last    atomic.Int64 // when the latest transfer was done, in nanoseconds

	mu    sync.Mutex
	first error // of those that are odd
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

// answers returns how many calls were answered, in whatever way.
func (t *tally) answers() int64 {
	return t.done.Load() + t.doubt.Load() + t.unsent.Load() + t.odd.Load()
}

// expected demands that nobody was told what nobody should be.
func (s *scene) expected(name string, t *tally) {
	if t.odd.Load() == 0 {
		return
	}
	s.atMost(name, t.odd.Load(), 0)
	t.mu.Lock()
	defer t.mu.Unlock()
	s.tell("the first of these", fmt.Sprintf("%.300v", t.first))
}

// crowd is callers in closed loops: each wants the next transfer as soon as it has the
// answer to the one before.
type crowd struct {
	tally
	leave context.CancelFunc
	all   sync.WaitGroup
}

// gather starts a crowd. Each call may take as long as patience says.
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

// moves is a call that moves money by what next returns.
func (m *member) moves(next func() transfer.Request) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := m.Transfer(ctx, next())
		return err
	}
}

// disperse lets nobody begin with another call, and waits until all have their answers.
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
