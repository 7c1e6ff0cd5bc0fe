package transfer

import (
	"context"
	"unicode/utf8"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

const maxReasonBytes = 4 << 10

// Cancel rolls back a transfer that is not committed yet, a hold among them, whoever runs
// it, and answers with its record in StateFail. The reason is stored as
// Record.Failure.Message; a hold that has expired is stored as expired.
//
//   - nil: it is in StateFail, by this call or before, for whatever reason.
//   - ErrAlreadyCommitted: too late; the record shows how far it is.
//   - ErrTransferNotFound: there is none. One that is stored later is not cancelled.
//   - ErrInvalidRequest: it touches a ledger or documents that this Coordinator was not
//     given, and the text says which.
//   - ErrInDoubt: the context ended after something was sent. Ask again.
//   - ErrCancelled, or the error that it was refused with, and a record in StateRollback:
//     it is rolled back for good, and an account that can't be written has not got its
//     money back yet: Record.Stuck says why.
//   - the context's own error, ErrClosed, a server that can't be reached for 30 s: this
//     call has changed nothing, which says nothing of an earlier one.
func (c *Coordinator) Cancel(ctx context.Context, id, reason string) (rec Record, err error) {
	line := c.lineOf(ctx, "cancel", id)
	defer func() { line.end(ctx, &rec, err) }()
	if len(reason) > maxReasonBytes || !utf8.ValidString(reason) {
		return Record{}, invalid("a reason has at most %d bytes of UTF-8", maxReasonBytes)
	}
	return c.decide(ctx, id, func(ctx context.Context, stored document.Transfer) (Record, bool, error) {
		return c.withdraw(ctx, stored, protocol.Cancelled, reason)
	})
}

// surelyMissing looks again, by a read that a primary which was replaced can't answer.
func (c *Coordinator) surelyMissing(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	missing, err := c.queries.ConfirmMissing(ctx, id)
	return err == nil && missing
}

// withdraw tries once to take a transfer and to roll it back. It reports false where another look is due.
func (c *Coordinator) withdraw(
	ctx context.Context, stored document.Transfer, why protocol.Reason, reason string,
) (Record, bool, error) {
	start := protocol.Start{RollBack: why}
	switch stored.State {
	case protocol.Initiated:
		start.Claim = protocol.CancelInitiated
	case protocol.Preparing:
		if stored.Hold && c.queries.LooksExpired(ctx, stored) {
			start, reason = expire(), expiredReason // whoever asks later is told the same, whoever was first
			break
		}
		start.Claim = protocol.TakeToCancel
	case protocol.Rollback:
		if !c.stalled(ctx, stored) {
			return stuckAsStored(stored)
		}
		start = c.takeOver()
	case protocol.Committed, protocol.Success:
		return recordOf(stored), true, aboutTransfer(stored.ID, ErrAlreadyCommitted)
	case protocol.Fail:
		return recordOf(stored), true, nil
	}
	rec, told, err := c.execute(ctx, attempt{transfer: stored, start: start, reason: reason})
	if told && rec.State == StateFail {
		return rec, true, nil // what Transfer would be told as an error is what was asked for
	}
	return rec, told, err
}
