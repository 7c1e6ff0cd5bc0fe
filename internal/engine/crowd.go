package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
)

// crowd is the callers who want something new of the executions of a waitlist.
// Those who wait take no lock: thousands of them would keep it from those who are served.
type crowd struct {
	admitted atomic.Int64 // callers that have not left
	locked   atomic.Int64 // of these, callers that wait for a document that may be locked
	alone    atomic.Int64 // how long one takes alone, in nanoseconds
	each     atomic.Int64 // how long one more caller takes at most, in nanoseconds
	waiting  atomic.Int64 // callers who wait before they are refused
}

// leastWait and leastLeft are shares of a caller's time: an eighth passes before it is
// refused, at the least, and a quarter is left then.
const (
	leastWait = 8
	leastLeft = 4
)

// refusalEach is the time between two refusals, as far as leastLeft allows. One takes
// about a fifth of that from a processor, together with the caller who asks again.
// Those who wait look that often whether there is time for them after all, in turn.
const refusalEach = 100 * time.Microsecond

// leastPause is the least time between two looks of one caller.
const leastPause = 10 * time.Millisecond

// Join counts a caller who is about to have a new transfer executed, until it leaves.
// It refuses one that would not be served in time, because of the callers before it: the
// error is ErrNothingSent, or ErrClosed where Close was called meanwhile.
// Otherwise all would wait until little time was left for any of them, and the more
// callers there were, the fewer would succeed.
// A refusal comes after a while, and another try: callers who ask again at once would
// keep the processor from those who are served. So the more of them wait, the longer.
//
// The execution gets the context that is returned.
func (e *Engine) Join(ctx context.Context, planned document.Transfer) (joined context.Context, leave func(), err error) {
	c := &e.gate.waitlistFor(e.store.ClustersOf(planned)).crowd
	if err := e.join(ctx, c, c.hasTime); err != nil {
		return nil, nil, err
	}
	m := &member{crowd: c}
	return context.WithValue(ctx, memberKey{}, m), m.leave, nil
}

// join counts a caller among a crowd, if there is time for it or will be soon: fits says
// so of the time that is left.
func (e *Engine) join(ctx context.Context, c *crowd, fits func(left time.Duration) bool) error {
	deadline, limited := ctx.Deadline()
	if limited && !fits(deadline.Sub(e.now())) {
		if err := e.awaitTurn(ctx, c, deadline, fits); err != nil {
			return err
		}
	}
	c.admitted.Add(1)
	return nil
}

// awaitTurn waits until there is time for a caller, or until it is refused.
func (e *Engine) awaitTurn(ctx context.Context, c *crowd, deadline time.Time, fits func(left time.Duration) bool) error {
	refused := e.now().Add(c.wait(deadline.Sub(e.now())))
	defer c.waiting.Add(-1)
	for {
		if !sleep(ctx, e.closing, min(c.pause(), refused.Sub(e.now()))) {
			if ctx.Err() == nil {
				return ErrClosed
			}
			return withContextError(ctx, ErrNothingSent)
		}
		switch {
		case fits(deadline.Sub(e.now())):
			return nil
		case !e.now().Before(refused):
			return fmt.Errorf("%w: %w: %w", ErrNothingSent, context.DeadlineExceeded, errNoTimeLeft())
		}
	}
}

// wait counts a caller as waiting. It returns how long, where so much time is left.
func (c *crowd) wait(left time.Duration) time.Duration {
	turn := time.Duration(c.waiting.Add(1)) * refusalEach
	return max(left/leastWait, min(turn, left-left/leastLeft))
}

// pause returns the time between two looks of one caller.
func (c *crowd) pause() time.Duration {
	return max(leastPause, time.Duration(c.waiting.Load())*refusalEach)
}

// leave counts a caller no longer.
func (c *crowd) leave() { c.admitted.Add(-1) }

// inProgress returns how many callers are before the next one.
func (c *crowd) inProgress() int64 { return c.admitted.Load() - c.locked.Load() }

// expected returns how long the next of n callers takes at most.
func (c *crowd) expected(n int64) time.Duration {
	return time.Duration(c.alone.Load() + n*c.each.Load())
}

// hasTime reports whether one more caller would be served in the time that is left.
func (c *crowd) hasTime(left time.Duration) bool {
	n := c.inProgress()
	return n < fewInProgress || left >= c.expected(n)
}

// member is a caller that a crowd counts. A nil one is counted by none.
type member struct {
	crowd *crowd

	mu    sync.Mutex
	waits bool
	left  bool
}

type memberKey struct{}

// memberOf returns the member for which a context stands, nil if it stands for none.
func memberOf(ctx context.Context) *member {
	m, _ := ctx.Value(memberKey{}).(*member)
	return m
}

// wait counts a member as one that waits for a document that may be locked, or no longer.
func (m *member) wait(waits bool) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left || m.waits == waits {
		return
	}
	m.waits = waits
	if waits {
		m.crowd.locked.Add(1)
	} else {
		m.crowd.locked.Add(-1)
	}
}

// leave counts a member no longer.
func (m *member) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waits {
		m.crowd.locked.Add(-1)
	}
	m.left = true
	m.crowd.leave()
}
