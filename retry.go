package transfer

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/history"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// retry paces the tries of a call that is one read or write: until its answer is known,
// its context ends, the Coordinator is closed, or there was none for engine.AwayLimit.
type retry struct {
	n     int
	until time.Time
	sent  bool  // something is stored by a call that goes on, or may be
	ended error // of the context, or ErrClosed
	cause error // of the latest try
}

// try is how one try of a call went.
type try struct {
	done   bool // err answers the call, nil for success
	result protocol.Result
	err    error
}

// next reports whether to try, or to try again, and waits before another try.
func (r *retry) next(ctx context.Context, c *Coordinator) bool {
	if r.n++; r.n == 1 {
		r.until = c.now().Add(engine.AwayLimit)
		return true
	}
	if lasting(r.cause) {
		return false
	}
	if c.engine.Pause(ctx, r.n-1) {
		return c.now().Before(r.until)
	}
	r.ended = cmp.Or(ctx.Err(), c.closedError())
	return false
}

// record records how a try went that has not ended the call.
// What it has stored by then is not all of what the call is to do.
// A command of one statement for which a right is missing has certainly changed nothing:
// rights are checked before anything else.
func (r *retry) record(t try) {
	r.sent = r.sent || t.result == protocol.Applied || t.result == protocol.Unknown && !denied(t.err)
	r.cause = t.err
}

// perhapsOwn returns the result of an insert whose ID was taken as unknown: it may have
// taken the ID itself, as the driver sends a command twice where the server calls itself
// overloaded.
func perhapsOwn(result protocol.Result) protocol.Result {
	if result == protocol.NotMatched {
		return protocol.Unknown
	}
	return result
}

// doubt adds ErrInDoubt to an error where something is stored, or may be.
func (r *retry) doubt(err error) error {
	if r.sent {
		return withCause(ErrInDoubt, err)
	}
	return err
}

// err returns the error of a call that is given up, or that the server refuses.
// The given error says more than the latest cause, where it is not nil.
func (r *retry) err(err error) error {
	cause := withCause(r.ended, r.cause)
	if r.sent {
		return withCause(err, withCause(ErrInDoubt, cause))
	}
	if err == nil && cause == nil {
		cause = errors.New("others were first each time; ask again")
	}
	return nothingStored(withCause(err, cause))
}

// lasting reports whether an error comes back however often a call is repeated: a right
// is missing, the client is disconnected, or the server has been told to scan no
// collection (notablescan).
func lasting(err error) bool {
	return denied(err) || wire.Disconnected(err) || wire.CommandCode(err) == wire.CodeNoPlan
}

// malformed reports whether a read has failed for a reason that another try doesn't
// change.
func malformed(err error) bool {
	return errors.Is(err, history.ErrKind) || errors.Is(err, document.ErrUnreadable)
}

// tooLong records how the latest read went, and reports whether reads have failed for too
// long, or will fail until a right is granted, or for good.
func (c *Coordinator) tooLong(outage *engine.Outage, err error) bool {
	return err != nil && lasting(err) || outage.TooLong(c.now(), err)
}

// readersOf returns what counts the callers who read, by the cluster.
func readersOf(catalog *collections.Catalog) map[collections.Cluster]*engine.Callers {
	readers := map[collections.Cluster]*engine.Callers{}
	for _, cluster := range catalog.Clusters {
		readers[cluster] = &engine.Callers{}
	}
	return readers
}

// admitReader refuses a caller if too many others read from the same cluster.
// Only verbs that begin with a short read, and have stored nothing, count.
func (c *Coordinator) admitReader(ctx context.Context, cluster collections.Cluster) (leave func(), err error) {
	done, err := c.engine.Admit(ctx, c.readers[cluster])
	return func() { done(true) }, nothingStored(err)
}

// read repeats a read until it is answered, or its context ends, or the server has been
// away for too long.
// A lost answer doesn't keep it for longer than a command may take.
// The function reports whether it is done, with success or not.
func (c *Coordinator) read(ctx context.Context, once func(context.Context) (done bool, err error)) error {
	var tries retry
	for tries.next(ctx, c) {
		limited, cancel := context.WithTimeout(ctx, wire.CommandLimit)
		done, err := once(limited)
		cancel()
		if done {
			return err
		}
		tries.record(try{result: protocol.NotSent, err: err})
	}
	return nothingStored(withCause(tries.ended, tries.cause))
}

// readOnce reads a transfer within the time of one command.
func (c *Coordinator) readOnce(ctx context.Context, id string) (stored document.Transfer, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	return c.queries.ReadTransfer(ctx, id)
}

// surelyMissing reads again, by a read that a replaced primary can't answer.
func (c *Coordinator) surelyMissing(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	missing, err := c.queries.ConfirmMissing(ctx, id)
	return err == nil && missing
}

// slowestPoll bounds the pause between two reads of a transfer that another execution
// runs: about 80 ms.
const slowestPoll = 5

// pausePoll waits before the next read of a transfer, after n of them.
// It reports false if ctx has ended.
func pausePoll(ctx context.Context, n int) bool { return engine.Pause(ctx, min(n, slowestPoll)) }

// newPause returns a timer for the pause after the n-th read: 5 ms at first, doubled up
// to 80 ms, give or take a half.
func newPause(n int) *time.Timer {
	wait := 5 * time.Millisecond << min(n-1, slowestPoll-1)
	return time.NewTimer(wait/2 + rand.N(wait))
}
