package transfer

import (
	"context"
	"errors"
	"fmt"

	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// Cancel rolls back a transfer that is not committed yet, whoever runs it, and answers with its record in StateFail. The reason is stored
// as Record.Failure.Message.
//
//   - nil: it is in StateFail, by this call or before, for whatever reason.
//   - ErrAlreadyCommitted: too late; the record shows how far it is.
//   - ErrTransferNotFound: there is none. One that is stored later is not cancelled.
//   - ErrInDoubt: the context ended after something was sent. Ask again.
func (c *Coordinator) Cancel(ctx context.Context, id, reason string) (Record, error) {
	if err := c.ready(ctx); err != nil {
		return Record{}, err
	}
	if len(reason) > maxMetadataBytes {
		return Record{}, invalid("a reason has at most %d bytes", maxMetadataBytes)
	}
	sent := false
	for n := 1; ; n++ {
		rec, err := c.Get(ctx, id)
		switch {
		case errors.Is(err, ErrTransferNotFound), errors.Is(err, ErrInvalidRequest), errors.Is(err, ErrClosed):
			return rec, err
		case err == nil && rec.State == StateFail:
			return rec, nil
		case err == nil && (rec.State == StateCommitted || rec.State == StateSuccess):
			return rec, fmt.Errorf("transfer %q: %w", id, ErrAlreadyCommitted)
		case err == nil:
			var done bool
			if rec, done, err = c.rollBack(ctx, id, reason); done {
				return rec, err
			}
			sent = true
		}
		if !engine.Pause(ctx, min(n, slowestPoll)) {
			if sent {
				return rec, inDoubt(id, because(ctx.Err(), err))
			}
			return rec, fmt.Errorf("cancel transfer %q: %w", id, because(ctx.Err(), err))
		}
	}
}

// rollBack tries once to take a transfer and to roll it back. It reports false where another look is due.
func (c *Coordinator) rollBack(ctx context.Context, id, reason string) (Record, bool, error) {
	stored, found, err := c.store.GetTransfer(ctx, id)
	if err != nil || !found {
		return Record{}, false, err
	}
	start := protocol.Start{RollBack: protocol.Cancelled}
	switch stored.State {
	case protocol.Initiated:
		start.Claiming = protocol.CancelInitiated
	case protocol.Preparing:
		start.Claiming = protocol.TakeToCancel
	case protocol.Rollback:
		if !c.store.LooksStalled(ctx, stored, c.settings.stallThreshold) {
			return recordOf(stored), false, nil
		}
		start = c.takeOver()
	case protocol.Committed, protocol.Success, protocol.Fail:
		return recordOf(stored), false, nil
	}
	rec, told, err := c.cancelBy(ctx, stored, start, reason)
	return rec, told, err
}

func (c *Coordinator) cancelBy(
	ctx context.Context, t mongostore.Transfer, start protocol.Start, reason string,
) (Record, bool, error) {
	rec, told, err := c.attempt(ctx, t, start, reason)
	if told && rec.State == StateFail {
		return rec, true, nil
	}
	return rec, told, err
}
