package engine

import (
	"context"
	"errors"
	"time"
)

// Callers are those who send commands of their own, beside the executions, and wait for
// one server.
// The zero value is ready for use.
type Callers struct{ crowd crowd }

// Admit counts a caller until it leaves.
// It refuses one that would not be served in time, because of the callers before it, as
// Join does: the error is ErrNothingSent.
func (e *Engine) Admit(ctx context.Context, c *Callers) (leave func(), err error) {
	if err := e.join(ctx, &c.crowd); err != nil {
		return nil, err
	}
	begun, served := e.now(), c.crowd.served.Load()
	return func() {
		c.crowd.leave()
		if !errors.Is(ctx.Err(), context.Canceled) { // such a caller has not waited for the end
			c.record(e.now().Sub(begun) / time.Duration(max(served, fewInProgress)))
		}
	}, nil
}

// record adds how long one call took, divided by the number that was under way.
//
// What is expected goes up or down by a share of itself, and so to where four of five
// calls take less and one takes longer. A mean would follow the few that hang, and keep
// out the many that don't. Half is added, as to the mean of executions.
// Where two callers leave at once, one of them may not count.
func (c *Callers) record(took time.Duration) {
	each, took := time.Duration(c.crowd.each.Load()), took+took/2
	switch {
	case each == 0:
		each = took
	case took > each:
		each += each/8 + 1
	default:
		each -= each / 32
	}
	c.crowd.each.Store(int64(each))
}
