package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
)

// crowd is the callers who want something new of the executions of a waitlist.
// It has no lock: thousands of callers who wait for one would keep it from those who are
// served.
type crowd struct {
	served atomic.Int64
	each   atomic.Int64 // how long one more caller takes at most, in nanoseconds
}

// crowdedShare is the share of its time that a caller waits before it is refused.
const crowdedShare = 8

// Join counts a caller who is about to have a new transfer executed, until it leaves.
// It refuses one that would not be served in time, because of the callers before it: the
// error is ErrNothingSent.
// Otherwise all would wait until little time was left for any of them, and the more
// callers there were, the fewer would succeed.
// A refusal comes after a while, and another try: callers who ask again at once would
// keep the processor from those who are served.
func (e *Engine) Join(ctx context.Context, planned document.Transfer) (leave func(), err error) {
	c := &e.gate.waitlistFor(e.store.ClustersOf(planned)).crowd
	if err := e.join(ctx, c); err != nil {
		return nil, err
	}
	return c.leave, nil
}

// join is Join for a waitlist's callers.
func (e *Engine) join(ctx context.Context, c *crowd) error {
	deadline, limited := ctx.Deadline()
	if limited && !c.hasTime(deadline.Sub(e.now())) {
		if !sleep(ctx, e.closing, deadline.Sub(e.now())/crowdedShare) {
			if ctx.Err() == nil {
				return ErrClosed
			}
			return withContextError(ctx, ErrNothingSent)
		}
		if !c.hasTime(deadline.Sub(e.now())) {
			return fmt.Errorf("%w: %w: %w", ErrNothingSent, context.DeadlineExceeded, errNoTimeLeft())
		}
	}
	c.served.Add(1)
	return nil
}

// leave counts a caller no longer.
func (c *crowd) leave() { c.served.Add(-1) }

// hasTime reports whether one more caller would be served in the time that is left.
func (c *crowd) hasTime(left time.Duration) bool {
	n := c.served.Load()
	return n < fewInProgress || int64(left) >= n*c.each.Load()
}
