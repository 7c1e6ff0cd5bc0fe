package transfer

import (
	"context"
	"errors"
	"time"

	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// retry paces the repeats of a call that is one read or write: until its answer is known, its context ends, or the server has been
// away for engine.AwayLimit.
type retry struct {
	n     int
	until time.Time
	sent  bool  // something was sent whose answer is not known
	ended error // of the context
	cause error // the latest
}

// next reports whether to try, or to try once more, and waits before it does so.
func (p *retry) next(ctx context.Context, c *Coordinator) bool {
	if p.n++; p.n == 1 {
		p.until = c.now().Add(engine.AwayLimit)
		return true
	}
	if lasting(p.cause) {
		return false
	}
	if engine.Pause(ctx, p.n-1) {
		return c.now().Before(p.until)
	}
	p.ended = ctx.Err()
	return false
}

// record takes down how a try went. A command of one statement for which a right is missing
// has certainly changed nothing: rights are asked for before anything else.
func (p *retry) record(result protocol.Result, err error) {
	p.sent = p.sent || result == protocol.Unknown && !refused(err)
	p.cause = err
}

// read repeats a read until it is answered, or its context ends, or the server has been away for too long; one lost answer does
// not keep it for longer than a command may take. Attempt reports whether it is done, for good or ill.
func (c *Coordinator) read(ctx context.Context, attempt func(context.Context) (bool, error)) error {
	var try retry
	for try.next(ctx, c) {
		limited, cancel := context.WithTimeout(ctx, wire.CommandLimit)
		done, err := attempt(limited)
		cancel()
		if done {
			return err
		}
		try.record(protocol.NotSent, err)
	}
	return nothingStored(withCause(try.ended, try.cause))
}

// quiet tells for how long looks have failed in a row.
type quiet struct{ since time.Time }

// tooLong takes in how a look went, and reports whether they have failed for
// engine.AwayLimit, or will fail until a right is granted, or for good.
func (q *quiet) tooLong(c *Coordinator, err error) bool {
	switch {
	case err == nil:
		q.since = time.Time{}
		return false
	case lasting(err):
		return true
	}
	if q.since.IsZero() {
		q.since = c.now()
	}
	return c.now().Sub(q.since) >= engine.AwayLimit
}

// err returns the error of a call that is given up, or that the server refuses. Err says
// more than the latest cause, where it is not nil.
func (p *retry) err(err error) error {
	cause := withCause(p.ended, p.cause)
	if p.sent {
		return withCause(err, withCause(ErrInDoubt, cause))
	}
	if err == nil && cause == nil {
		return errors.New("others were first each time; ask again")
	}
	return nothingStored(withCause(err, cause))
}

// lasting reports whether an error comes back however often a call is repeated: a right
// is missing, or the client is disconnected.
func lasting(err error) bool { return refused(err) || wire.Disconnected(err) }
