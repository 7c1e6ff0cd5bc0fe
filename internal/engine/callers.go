package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Callers are those who send commands of their own, beside the executions, and wait for
// one server.
// The zero value is ready for use.
type Callers struct {
	crowd  crowd
	probed atomic.Int64 // when the latest probe was let in, in nanoseconds
	quick  atomic.Int64 // how many were far quicker than expected, beside slower ones
}

const (
	// probes is how many probes are let in during the time that a caller is expected to
	// take, and probesApart the most that passes from one to the next.
	probes      = 8
	probesApart = 50 * time.Millisecond
	// disproof is how many calls show the expectation to be wrong, each at least
	// farQuicker times as quick, while none is as quick as expected.
	disproof   = 8
	farQuicker = 8
)

// Admit counts a caller until it leaves.
// It refuses one that would not be served in time, because of the callers before it, as
// Join does, and with its errors.
//
// Now and then one is let in as a probe. Otherwise those who wait for something else, as
// for an account that is locked, could keep the others out for ever:
//
//  1. A hundred callers wait three seconds each.
//  2. It seems that each caller takes as long where a hundred are before it.
//  3. Those who have two seconds are refused. Nobody learns how quick they would be.
//
// The caller passes done = false where it had nothing to do: then nothing is learnt.
func (e *Engine) Admit(ctx context.Context, c *Callers) (leave func(done bool), err error) {
	if ctx.Err() != nil {
		return nil, withContextError(ctx, ErrNothingSent)
	}
	err = e.join(ctx, &c.crowd, func(left time.Duration) bool {
		return c.crowd.hasTime(left) || c.probe(e.now())
	})
	if err != nil {
		return nil, err
	}
	begun, served := e.now(), c.crowd.admitted.Load()
	return func(done bool) {
		c.crowd.leave()
		if cause := ctx.Err(); done && !errors.Is(cause, context.Canceled) { // such a caller has not waited for the end
			c.record(e.now().Sub(begun), served, cause != nil)
		}
	}, nil
}

// probe reports whether a caller for whom there seems to be no time is let in. After one
// that was far quicker than expected the next ones are let in sooner, to know.
func (c *Callers) probe(now time.Time) bool {
	last := c.probed.Load()
	since := now.UnixNano() - last
	apart := min(c.crowd.expected(c.crowd.inProgress())/probes, probesApart)
	if c.quick.Load() > 0 {
		apart /= disproof
	}
	return (since >= int64(apart) || since < 0) && c.probed.CompareAndSwap(last, now.UnixNano())
}

// record adds how long a call took, and how many were under way when it began. One that
// ran out of time would have taken longer.
//
// What is expected goes up or down by a share of itself, and so to where four of five
// calls take less and one takes longer. A mean would follow the few that hang, and keep
// out the many that don't. Half is added, as to the mean of executions.
// Where all wait for the server, hardly anybody is served far sooner than expected, and
// never several in a row. Where they are, the others wait for something else.
// Where two callers leave at once, one of them may not count.
func (c *Callers) record(took time.Duration, served int64, ranOut bool) {
	each, alone := time.Duration(c.crowd.each.Load()), aloneTime(c.crowd.alone.Load())
	longer := took - time.Duration(alone)
	if !ranOut && took > 0 {
		longer = alone.record(took, int(served))
	}
	one := (longer + longer/2) / time.Duration(max(served, fewInProgress))
	c.crowd.alone.Store(int64(alone))
	switch {
	case one >= each:
		if each == 0 {
			each = one
		}
		each = min(one, each+each/32+1)
	case ranOut, took <= 0:
		return
	case one < each/farQuicker:
		if c.quick.Add(1) < disproof {
			return
		}
		c.quick.Store(0)
		each = 2 * one
	default:
		c.quick.Store(0)
		each -= each / 128
	}
	c.crowd.each.Store(int64(each))
}
