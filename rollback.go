package transfer

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
)

const maxReasonBytes = 4 << 10

// Cancel rolls back a transfer that is not committed yet, whoever runs it, and answers with its record in StateFail. The reason is stored
// as Record.Failure.Message.
//
//   - nil: it is in StateFail, by this call or before, for whatever reason.
//   - ErrAlreadyCommitted: too late; the record shows how far it is.
//   - ErrTransferNotFound: there is none. One that is stored later is not cancelled.
//   - ErrInDoubt: the context ended after something was sent. Ask again.
func (c *Coordinator) Cancel(ctx context.Context, id, reason string) (Record, error) {
	if len(reason) > maxReasonBytes || !utf8.ValidString(reason) {
		return Record{}, invalid("a reason has at most %d bytes of UTF-8", maxReasonBytes)
	}
	if err := mongostore.CheckID(id); err != nil {
		return Record{}, invalid("transfer: %w", err)
	}
	if err := c.ready(ctx); err != nil {
		return Record{}, err
	}
	var (
		away quiet
		last Record // as it stood when it was tried to be cancelled
	)
	for n := 1; ; n++ {
		rec, told, err := c.tryToCancel(ctx, id, reason, &last)
		if told {
			return rec, err
		}
		if away.tooLong(c, err) || c.engine.Closed() || !engine.Pause(ctx, min(n, slowestPoll)) {
			cause := because(because(ctx.Err(), c.closedError()), err)
			if last.ID != "" {
				return last, inDoubt(id, cause)
			}
			return Record{}, fmt.Errorf("cancel transfer %q: %w", id, cause)
		}
	}
}

// tryToCancel looks at a transfer and tries once to roll it back. It reports false where another look is due.
func (c *Coordinator) tryToCancel(ctx context.Context, id, reason string, last *Record) (Record, bool, error) {
	stored, found, err := c.look(ctx, id)
	switch {
	case errors.Is(err, mongostore.ErrUnreadable):
		return Record{}, true, fmt.Errorf("cancel transfer %q: %w", id, err)
	case err != nil:
		return Record{}, false, err
	case !found && c.surelyMissing(ctx, id):
		return Record{}, true, fmt.Errorf("transfer %q: %w", id, ErrTransferNotFound)
	case !found:
		return Record{}, false, nil
	}
	rec, told, err := c.cancel(ctx, stored, reason)
	if told && last.ID != "" {
		err = doubtful(id, err) // an earlier try of ours may have been stored
	}
	if !told {
		*last = recordOf(stored)
	}
	return rec, told, err
}

// surelyMissing looks again, by a read that a primary which was replaced can't answer.
func (c *Coordinator) surelyMissing(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, mongostore.CommandLimit)
	defer cancel()
	missing, err := c.store.SurelyMissing(ctx, id)
	return err == nil && missing
}

// cancel tries once to take a transfer and to roll it back. It reports false where another look is due.
func (c *Coordinator) cancel(ctx context.Context, stored mongostore.Transfer, reason string) (Record, bool, error) {
	start := protocol.Start{RollBack: protocol.Cancelled}
	switch stored.State {
	case protocol.Initiated:
		start.Claiming = protocol.CancelInitiated
	case protocol.Preparing:
		start.Claiming = protocol.TakeToCancel
	case protocol.Rollback:
		if !c.store.LooksStalled(ctx, stored, c.settings.stallThreshold) {
			return Record{}, false, nil
		}
		start = c.takeOver()
	case protocol.Committed, protocol.Success:
		return recordOf(stored), true, fmt.Errorf("transfer %q: %w", stored.ID, ErrAlreadyCommitted)
	case protocol.Fail:
		return recordOf(stored), true, nil
	}
	rec, told, err := c.attempt(ctx, stored, start, reason)
	if told && rec.State == StateFail {
		return rec, true, nil // what Transfer would be told as an error is what was asked for
	}
	return rec, told, err
}
