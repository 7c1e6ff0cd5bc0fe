package transfer

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/lookout"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// slowestPoll bounds the pause between two looks at a transfer that another one runs: about 80 ms.
const slowestPoll = 5

// follow waits for a transfer that another execution runs, here or elsewhere, and runs it itself where that is its turn: when it
// still waits for a worker, when it has stalled, or when it was never stored.
func (c *Coordinator) follow(ctx context.Context, planned document.Transfer, holdFor time.Duration) (Record, error) {
	f := c.newFollower(planned, holdFor)
	defer f.leave()
	return f.follow(ctx)
}

// follower is one caller of a transfer. All callers of one ID in this process share the looks
// at it. One of them at a time has the turn: only that one runs the transfer, or takes it
// over. The others judge what is seen, each by its own digest, and are told at the same time
// as the first; when it leaves, for whatever reason, the next one has the turn. What it was
// told is never passed on: it may be true for that one only.
type follower struct {
	c       *Coordinator
	planned document.Transfer
	holdFor time.Duration
	line    *line
	leads   bool // it has the turn
	watch   *lookout.Watch
	seen    Record // as it was seen last
	cause   error  // the latest
	away    quiet
}

func (c *Coordinator) newFollower(planned document.Transfer, holdFor time.Duration) *follower {
	return &follower{c: c, planned: planned, holdFor: holdFor, line: c.lines.join(planned.ID)}
}

// turnIsFree takes the turn if nobody has it.
func (f *follower) turnIsFree() bool {
	select {
	case f.line.turn <- struct{}{}:
		f.leads = true
	default:
	}
	return f.leads
}

// leave lets the next one have the turn.
func (f *follower) leave() {
	if f.leads {
		<-f.line.turn
	}
	f.c.lines.leave(f.planned.ID)
}

// follow looks at the transfer until something can be told. What ends it from outside
// leaves doubt, unless a commit was seen: somebody has stored the transfer, or may just
// be about to.
func (f *follower) follow(ctx context.Context) (Record, error) {
	f.watch = f.c.lookout.Watch(f.planned.ID)
	defer f.watch.End()
	seen, ended := f.watch.Look(ctx)
	for n := 1; ended == nil; n++ {
		if rec, told, err := f.weigh(ctx, seen); told {
			return rec, err
		}
		seen, ended = f.next(ctx, seen, n)
	}
	return f.leftAt(withCause(ctx.Err(), f.c.closedError()))
}

// weigh answers with what was seen, if it can, or goes on with the transfer, if it has the
// turn and something is due. It reports false where nothing is told yet.
func (f *follower) weigh(ctx context.Context, seen *lookout.Sight) (Record, bool, error) {
	c, stored := f.c, seen.Transfer
	tooLong := f.away.tooLong(c, seen.Err)
	switch {
	case errors.Is(seen.Err, document.ErrUnreadable):
		rec, err := f.leftAt(seen.Err)
		return rec, true, err
	case seen.Err != nil:
		f.cause = latest(ctx, f.cause, seen.Err)
	case seen.Found && !bytes.Equal(stored.Digest, f.planned.Digest):
		return recordOf(stored), true, conflict(stored, f.planned)
	case seen.Found && c.answerable(ctx, stored):
		rec, err := c.judge(stored, f.planned)
		return rec, true, err
	default:
		if rec, told, err := f.goOn(ctx, seen); told {
			return rec, true, err
		}
	}
	if tooLong {
		rec, err := f.leftAt(ctx.Err())
		return rec, true, err
	}
	return Record{}, false, nil
}

// goOn goes on with the transfer, if it has the turn and something is due. What is stuck,
// and not due to be tried again, is told as it stands.
func (f *follower) goOn(ctx context.Context, seen *lookout.Sight) (Record, bool, error) {
	c, stored := f.c, seen.Transfer
	f.seen = Record{}
	if seen.Found {
		f.seen = recordOf(stored)
	}
	t, start, due := c.turn(ctx, stored, seen.Found, f.planned)
	switch {
	case c.engine.Closed():
		rec, err := f.leftAt(ErrClosed)
		return rec, true, err
	case !due && standsStill(stored):
		rec, err := asKnown(stored.ID, f.seen, nil)
		return rec, true, err
	case !due || !f.leads:
		return Record{}, false, nil
	}
	rec, told, err := c.execute(ctx, attempt{transfer: t, start: start, reason: reasonOf(start), holdFor: f.holdFor})
	if told && nothingSent(err) {
		rec, err = asKnown(f.planned.ID, f.seen, err)
	}
	return rec, told, err
}

// leftAt answers one who waits no longer, for a reason, by what it has seen.
func (f *follower) leftAt(why error) (Record, error) {
	return asKnown(f.planned.ID, f.seen, withCause(why, f.cause))
}

// standsStill reports whether a stored transfer is decided, and stuck: its outcome is
// known, and waiting doesn't help.
func standsStill(stored document.Transfer) bool {
	return stored.Stuck != nil && (stored.State == protocol.Committed || stored.State == protocol.Rollback)
}

// next waits until something else is seen, or the turn has come, or something is due for who
// has it: then it looks again, since that may have changed. The error says that ctx has ended,
// or the coordinator was closed.
func (f *follower) next(ctx context.Context, seen *lookout.Sight, n int) (*lookout.Sight, error) {
	for ; ; n++ {
		var turn chan<- struct{}
		pause := newPause(n)
		if !f.leads {
			turn = f.line.turn
			pause.Stop()
		}
		select {
		case <-seen.Replaced:
			pause.Stop()
			return f.watch.Latest(), nil
		case turn <- struct{}{}:
			f.leads = true
			return f.watch.Look(ctx)
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, ctx.Err()
		case <-f.c.engine.Closing():
			pause.Stop()
			return nil, ErrClosed
		}
		if seen.Err != nil {
			continue
		}
		if _, _, due := f.c.turn(ctx, seen.Transfer, seen.Found, f.planned); due {
			return f.watch.Look(ctx)
		}
	}
}

// newPause returns a timer for the pause after the n-th look: 5 ms at first, doubled up to
// 80 ms, give or take a half.
func newPause(n int) *time.Timer {
	wait := 5 * time.Millisecond << min(n-1, slowestPoll-1)
	return time.NewTimer(wait/2 + rand.N(wait))
}

// latest returns the latest cause; but of a look that the end of ctx has cut short it keeps what is known: that says more.
func latest(ctx context.Context, known, err error) error {
	if known != nil && ctx.Err() != nil {
		return known
	}
	return err
}

// look reads a transfer within the time of one command.
func (c *Coordinator) look(ctx context.Context, id string) (document.Transfer, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	return c.queries.ReadTransfer(ctx, id)
}

// answerable reports whether a stored transfer is where its callers are told. Who asks for a hold is told once it is held.
func (c *Coordinator) answerable(ctx context.Context, stored document.Transfer) bool {
	switch stored.State {
	case protocol.Preparing:
		return stored.Held && !c.queries.LooksExpired(ctx, stored)
	case protocol.Committed:
		return stored.Hold || c.settings.returnAt == StateCommitted
	default:
		return stored.State.Final() || !stored.State.Known()
	}
}

// judge answers with a stored transfer, for one who asks for the planned one.
func (c *Coordinator) judge(stored, planned document.Transfer) (Record, error) {
	rec := recordOf(stored)
	if !bytes.Equal(stored.Digest, planned.Digest) {
		return rec, conflict(stored, planned)
	}
	if !stored.State.Known() {
		return rec, inDoubt(rec.ID, unknownState(stored))
	}
	return answered(rec)
}

// turn returns the execution by which a waiting caller goes on with the transfer itself, and whether one is due.
func (c *Coordinator) turn(
	ctx context.Context, stored document.Transfer, found bool, planned document.Transfer,
) (document.Transfer, protocol.Start, bool) {
	stalled := func() bool { return c.stalled(ctx, stored) }
	switch {
	case !found:
		return planned, first(planned), true
	case stored.State == protocol.Initiated:
		return stored, protocol.Start{Claim: protocol.FromInitiated, WaitWhileBusy: true}, true
	case stored.State != protocol.Preparing || !stored.Hold:
		return stored, c.takeOver(), stalled()
	case c.queries.LooksExpired(ctx, stored):
		return stored, expire(), true
	}
	return stored, protocol.Start{Claim: protocol.TakeUnheld, Hold: true}, stalled()
}

// barredRest is how long a transfer that was stopped for want of a right is left alone.
const barredRest = time.Second

// stalled reports whether a transfer that others have begun is to be taken over.
func (c *Coordinator) stalled(ctx context.Context, stored document.Transfer) bool {
	return c.queries.LooksStalled(ctx, stored, c.settings.stallThreshold) || c.barred(ctx, stored)
}

// barred reports whether a transfer was stopped for want of a right, and nobody is at it
// now. Who asks for it again takes it over at once: either the right was granted, or the
// caller hears that it is still missing. Without a rest several such callers would take it
// from each other.
func (c *Coordinator) barred(ctx context.Context, stored document.Transfer) bool {
	if stored.Stuck == nil || stored.Stuck.Code != mongostore.CodeUnauthorized {
		return false
	}
	stored.Stuck, stored.Attempts = nil, 0
	return c.queries.LooksStalled(ctx, stored, barredRest)
}

// reasonOf returns what is stored with a transfer that is rolled back without being asked for.
func reasonOf(start protocol.Start) string {
	if start.RollBack == protocol.Expired {
		return expiredReason
	}
	return stalledReason
}

// stalledReason is stored with a transfer that RollBack has rolled back.
const stalledReason = "stalled and rolled back"

// takeOver returns the start of an execution that takes over what has stalled.
func (c *Coordinator) takeOver() protocol.Start {
	start := protocol.Start{Claim: protocol.TakeOver}
	if c.settings.policy == RollBack {
		start.RollBack = protocol.Stalled
	}
	return start
}

// nothingSent reports whether an error says that nothing was sent just now. Where a
// transfer with the ID is stored all the same, that is no answer.
func nothingSent(err error) bool {
	if errors.Is(err, ErrInDoubt) || errors.Is(err, ErrUnsettled) {
		return false
	}
	return errors.Is(err, engine.ErrNothingSent) || errors.Is(err, ErrClosed) ||
		errors.Is(err, errAway) || errors.Is(err, mongostore.ErrForeign) || errors.Is(err, document.ErrUnreadable) || refused(err)
}

func (c *Coordinator) closedError() error {
	if c.engine.Closed() {
		return ErrClosed
	}
	return nil
}
