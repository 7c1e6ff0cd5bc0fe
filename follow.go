package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// slowestPoll bounds the pause between two looks at a transfer that another one runs: about 80 ms.
const slowestPoll = 5

// follow waits for a transfer that another execution runs, here or elsewhere, and runs it itself where that is its turn: when it
// still waits for a worker, when it has stalled, or when it was never stored.
func (c *Coordinator) follow(ctx context.Context, planned mongostore.Transfer, holdFor time.Duration) (Record, error) {
	var (
		cause error
		away  quiet
	)
	for n := 1; ; n++ {
		stored, found, err := c.look(ctx, planned.ID)
		tooLong := away.tooLong(c, err)
		switch {
		case errors.Is(err, mongostore.ErrUnreadable), c.engine.Closed():
			return Record{}, inDoubt(planned.ID, because(c.closedError(), err))
		case err != nil:
			cause = latest(ctx, cause, err)
		case found && !bytes.Equal(stored.Digest, planned.Digest):
			return recordOf(stored), fmt.Errorf("transfer %q: %w", planned.ID, ErrIDConflict)
		case found && c.answerable(ctx, stored):
			return c.judge(stored, planned.Digest)
		default:
			if found && stored.Stuck != nil {
				cause = stuckError(stored.Stuck.Message)
			}
			t, start, due := c.turn(ctx, stored, found, planned)
			if !due {
				break
			}
			rec, told, err := c.try(ctx, attempt{transfer: t, start: start, reason: reasonOf(start), holdFor: holdFor})
			if told {
				return rec, doubtful(planned.ID, err)
			}
		}
		if tooLong || !engine.Pause(ctx, min(n, slowestPoll)) {
			return Record{}, inDoubt(planned.ID, because(ctx.Err(), cause))
		}
	}
}

// latest returns the latest cause; but of a look that the end of ctx has cut short it keeps what is known: that says more.
func latest(ctx context.Context, known, err error) error {
	if known != nil && ctx.Err() != nil {
		return known
	}
	return err
}

// look reads a transfer within the time of one command.
func (c *Coordinator) look(ctx context.Context, id string) (mongostore.Transfer, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, mongostore.CommandLimit)
	defer cancel()
	return c.store.GetTransfer(ctx, id)
}

// answerable reports whether a stored transfer is where its callers are told. Who asks for a hold is told once it is held.
func (c *Coordinator) answerable(ctx context.Context, stored mongostore.Transfer) bool {
	switch stored.State {
	case protocol.Preparing:
		return stored.Held && !c.store.LooksExpired(ctx, stored)
	case protocol.Committed:
		return stored.Hold || c.settings.returnAt == StateCommitted
	default:
		return stored.State.Final() || !stored.State.Known()
	}
}

// judge answers with a stored transfer, for one who asks with a payload of the given digest.
func (c *Coordinator) judge(stored mongostore.Transfer, digest []byte) (Record, error) {
	rec := recordOf(stored)
	if !bytes.Equal(stored.Digest, digest) {
		return rec, fmt.Errorf("transfer %q: %w", rec.ID, ErrIDConflict)
	}
	if !stored.State.Known() {
		return rec, inDoubt(rec.ID, unknownState(stored))
	}
	return answered(rec)
}

// turn returns the execution by which a waiting caller goes on with the transfer itself, and whether one is due.
func (c *Coordinator) turn(
	ctx context.Context, stored mongostore.Transfer, found bool, planned mongostore.Transfer,
) (mongostore.Transfer, protocol.Start, bool) {
	stalled := func() bool { return c.store.LooksStalled(ctx, stored, c.settings.stallThreshold) }
	switch {
	case !found:
		return planned, first(planned), true
	case stored.State == protocol.Initiated:
		return stored, protocol.Start{Claiming: protocol.FromInitiated, Patient: true}, true
	case stored.State != protocol.Preparing || !stored.Hold:
		return stored, c.takeOver(), stalled()
	case c.store.LooksExpired(ctx, stored):
		return stored, expire(), true
	}
	return stored, protocol.Start{Claiming: protocol.TakeUnheld, Hold: true}, stalled()
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
	start := protocol.Start{Claiming: protocol.TakeOver}
	if c.settings.policy == RollBack {
		start.RollBack = protocol.Stalled
	}
	return start
}

// doubtful turns an error by which nothing was sent just now into ErrInDoubt: a transfer with this ID is stored all the same.
func doubtful(id string, err error) error {
	if errors.Is(err, engine.ErrNothingSent) || errors.Is(err, ErrClosed) ||
		errors.Is(err, errAway) || errors.Is(err, mongostore.ErrForeign) || errors.Is(err, mongostore.ErrUnreadable) {
		return inDoubt(id, err)
	}
	return err
}

func (c *Coordinator) closedError() error {
	if c.engine.Closed() {
		return ErrClosed
	}
	return nil
}
