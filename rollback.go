package transfer

import (
	"context"
	"unicode/utf8"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// maxReasonBytes bounds the reason of a cancellation or a repair.
const maxReasonBytes = 4 << 10

// Cancel rolls back a transfer that is not committed yet, including a hold, no matter
// which process runs it, and answers with its record in StateFail.
// The reason is stored as Record.Failure.Message, and has at most 4,096 bytes of UTF-8.
// A hold that has expired is stored as expired.
//
//   - nil: it is in StateFail, by this call or before, for any reason.
//   - ErrAlreadyCommitted: too late; the record shows how far it is.
//     [Coordinator.Reverse] takes the money back.
//     That may be so although it was stored in StatePreparing: if everything is reserved,
//     Cancel goes on with it, as recovery would.
//   - ErrTransferNotFound: there is no such transfer.
//     One that is stored later is not cancelled.
//   - ErrInvalidRequest: the ID or the reason is malformed; or it touches a ledger or
//     documents that this Coordinator was not given, and the text says which.
//   - ErrInDoubt: the context ended after something was sent.
//     Ask again.
//   - ErrCancelled, or the error that it was refused with, and a record in StateRollback:
//     it is rolled back for good, and an account that can't be written has not got its
//     money back yet; Record.Stuck says why.
//   - the context's own error, ErrClosed, ErrUnauthorized, ErrUnsupportedDeployment, a
//     server that can't be reached for 30 s: this call has changed nothing, which says
//     nothing about an earlier one.
//     Ask again.
func (c *Coordinator) Cancel(ctx context.Context, id, reason string) (rec Record, err error) {
	line := c.lineOf(ctx, "cancel", id)
	ctx = line.ctx
	defer func() { line.end(ctx, &rec, err) }()
	if len(reason) > maxReasonBytes || !utf8.ValidString(reason) {
		return Record{}, invalid("a reason has at most %d bytes of UTF-8", maxReasonBytes)
	}
	return c.decide(ctx, id, func(ctx context.Context, stored document.Transfer) answer {
		return c.withdraw(ctx, stored, protocol.Cancelled, reason)
	})
}

// withdraw tries once to take a transfer and to roll it back.
func (c *Coordinator) withdraw(
	ctx context.Context, stored document.Transfer, why protocol.Reason, reason string,
) answer {
	start := protocol.Start{RollBack: why}
	switch stored.State {
	case protocol.Initiated:
		start.Claim = protocol.CancelInitiated
	case protocol.Preparing:
		if stored.Hold && c.queries.LooksExpired(ctx, stored) {
			// Later callers get the same answer, no matter which call was first.
			start, reason = expire(), expiredReason
			break
		}
		start.Claim = protocol.TakeToCancel
	case protocol.Rollback:
		if !c.stalled(ctx, stored) {
			return stuckAsStored(stored)
		}
		start = c.takeOver()
	case protocol.Committed, protocol.Success:
		return answerWith(recordOf(stored), aboutTransfer(stored.ID, ErrAlreadyCommitted))
	case protocol.Fail:
		return answerWith(recordOf(stored), nil)
	}
	a := c.execute(ctx, stored, terms{start: start, reason: reason})
	switch {
	case !a.done:
	case a.rec.State == StateFail:
		a.err = nil // the error that Transfer would return is what was asked for
	case a.rec.State.Decided():
		// Everything was prepared before this call came: it has gone on from there.
		a.err = aboutTransfer(stored.ID, ErrAlreadyCommitted)
	}
	return a
}
