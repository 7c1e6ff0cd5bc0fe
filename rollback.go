package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/words"
)

// maxReasonBytes bounds the reason of a cancellation or a repair.
const maxReasonBytes = 4 << 10

// Cancel rolls back a transfer that is not committed yet, including a hold, no matter
// which process runs it, and answers with its record in StateFail.
// The reason is stored as Record.Failure.Message.
// A hold that has expired is stored as expired.
//
//   - nil: it is in StateFail, by this call or before, for any reason.
//   - ErrAlreadyCommitted: too late; the record shows how far it is.
//     That may be so although it was stored in StatePreparing: if everything is reserved,
//     Cancel goes on with it, as recovery would.
//   - ErrTransferNotFound: there is no such transfer.
//     One that is stored later is not cancelled.
//   - ErrInvalidRequest: it touches a ledger or documents that this Coordinator was not
//     given, and the text says which.
//   - ErrInDoubt: the context ended after something was sent.
//     Ask again.
//   - ErrCancelled, or the error that it was refused with, and a record in StateRollback:
//     it is rolled back for good, and an account that can't be written has not got its
//     money back yet; Record.Stuck says why.
//   - the context's own error, ErrClosed, a server that can't be reached for 30 s: this
//     call has changed nothing, which says nothing about an earlier one.
func (c *Coordinator) Cancel(ctx context.Context, id, reason string) (rec Record, err error) {
	line := c.lineOf(ctx, "cancel", id)
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

// Reverse moves the money of a transfer back, by a new transfer with the given ID.
// It moves all of the money; of a hold, what was posted of it.
// At most one reversal of a transfer succeeds, no matter how many callers ask at once,
// and under which IDs.
// It moves money, not effects: those stay as they are.
//
//   - nil: the reversal is in StateSuccess or StateCommitted (see [WithReturnAt]), by
//     this call or before.
//   - ErrAlreadyReversed: another transfer has reversed it, which the record names in
//     ReversedBy.
//     The record is the original's.
//     Where this reversal was stored before it came too late, the error is a
//     [RefusedError] as well: its ID stays failed.
//   - ErrNotReversible: it is not in StateSuccess.
//     The record is the original's.
//     Reverse waits for one in StateCommitted, or whose commit this Coordinator has
//     answered, for 5 s at most; for one in StatePreparing, which another process may
//     have answered ([AtCommit]), for a second.
//   - ErrTransferNotFound: there is no transfer to reverse.
//     A repeated call for a reversal that is stored returns its outcome all the same,
//     even when [WithRetention] has let the original be removed before it.
//   - a [RefusedError]: the reversal is in StateFail, and nothing moved.
//     It is ErrInsufficientFunds when the money is spent; this ID has that outcome from
//     then on.
//     It is ErrRequirementFailed when another reversal has reserved the transfer, and has
//     failed since, or is still under way.
//     Try again under another ID.
//   - ErrInvalidRequest: it touched a ledger that this Coordinator was not given, and the
//     text says which.
//   - ErrUnsettled, ErrInDoubt, ErrIDConflict and all others: as [Coordinator.Transfer].
//     The context's own error, ErrClosed and that of a server that is away mean that this
//     call has stored nothing; an earlier one with the same ID may have moved the money
//     back.
func (c *Coordinator) Reverse(ctx context.Context, id, newID string) (rec Record, err error) {
	line := c.lineOf(ctx, "reverse", newID)
	defer func() { line.end(ctx, &rec, err) }()
	if err := checkReversal(ctx, id, newID); err != nil {
		return Record{}, err
	}
	original, err := c.settled(ctx, id)
	if errors.Is(err, ErrTransferNotFound) {
		return c.reversedBefore(ctx, id, newID, err)
	}
	if err != nil {
		return Record{}, c.early(newID, err)
	}
	if original.State != protocol.Success {
		err := fmt.Errorf("%w: it is in state %s", ErrNotReversible, original.State)
		return recordOf(original), aboutTransfer(id, err)
	}
	if original.ReversedBy != "" && original.ReversedBy != newID {
		// A reversal that was refused because the money was spent keeps that outcome.
		if _, err := c.stored(ctx, newID); errors.Is(err, ErrTransferNotFound) {
			return alreadyReversed(original)
		} else if err != nil && !errors.Is(err, document.ErrUnreadable) {
			return Record{}, c.early(newID, err)
		}
	}
	t := reversal(original, newID)
	// Legs that were changed since would be moved back as they are now, and a place that
	// is not known here can't be reached.
	if err := sound(original); err != nil {
		return recordOf(original), c.early(newID, aboutTransfer(id, err))
	}
	if _, err := c.store.NewAttempt(t, ""); err != nil {
		return recordOf(original), invalid("transfer %s: %w", words.Quote(id), err)
	}
	if err := c.readyFor(ctx, &t); err != nil {
		return Record{}, c.early(newID, err)
	}
	rec, err = c.complete(ctx, t, 0)
	if !errors.Is(err, ErrRequirementFailed) {
		return rec, err
	}
	return c.reversedByAnother(ctx, rec, err)
}

func checkReversal(ctx context.Context, id, newID string) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if err := cmp.Or(document.CheckID(id), document.CheckID(newID)); err != nil {
		return invalid("transfer: %w", err)
	}
	if id == newID {
		return invalid("the reversal of %s wants an ID of its own", words.Quote(id))
	}
	return nil
}

// settled reads the original of a reversal.
// It waits for one that is committed: that one succeeds in a moment, unless an account is
// gone.
func (c *Coordinator) settled(ctx context.Context, id string) (original document.Transfer, err error) {
	waiting, cancel := context.WithTimeout(ctx, reversalPatience)
	defer cancel()
	brief, cancelBrief := context.WithTimeout(ctx, commitPatience)
	defer cancelBrief()
	defer c.engine.HurryUp(id)()
	for n := 1; ; n++ {
		until := waiting
		answered := c.engine.Answered(id) // it may end while it is read
		original, err = c.original(ctx, id)
		switch {
		case err != nil:
			return original, err
		case original.State == protocol.Preparing && !original.Hold && !answered:
			until = brief
		case original.State != protocol.Committed && !answered:
			return original, nil
		}
		if original.State.Final() || !pausePoll(until, n) {
			return original, nil
		}
	}
}

// original reads the original of a reversal once.
func (c *Coordinator) original(ctx context.Context, id string) (document.Transfer, error) {
	if err := c.readyForAny(ctx); err != nil {
		return document.Transfer{}, err
	}
	stored, err := c.stored(ctx, id)
	if err != nil && !errors.Is(err, ErrTransferNotFound) || stored.State == protocol.Success {
		return stored, err
	}
	// It may have succeeded by now: a replaced primary shows an older state.
	return c.storedBy(ctx, id, c.queries.ReadTransferLinearizable)
}

// reversedBefore answers where there is no transfer to reverse: it may have been purged
// since the transfer newID has reversed it.
func (c *Coordinator) reversedBefore(ctx context.Context, id, newID string, missing error) (Record, error) {
	stored, err := c.stored(ctx, newID)
	switch {
	case errors.Is(err, ErrTransferNotFound) || err == nil && stored.Reverses != id:
		return Record{}, missing
	case err != nil:
		return Record{}, c.early(newID, err)
	}
	t := document.Transfer{
		ID: newID, Legs: stored.Legs, Currency: stored.Currency, Reverses: id, Digest: stored.Digest,
	}
	if _, err := c.store.NewAttempt(t, ""); err != nil {
		return recordOf(stored), invalid("transfer %s: %w", words.Quote(id), err)
	}
	if err := c.readyFor(ctx, &t); err != nil {
		return Record{}, c.early(newID, err)
	}
	return c.follow(ctx, t, 0)
}

// reversal returns the transfer that moves another one's money back.
func reversal(original document.Transfer, id string) document.Transfer {
	t := document.Transfer{ID: id, Currency: original.Currency, Reverses: original.ID}
	for _, leg := range original.Moved() {
		leg.Amount = leg.Amount.Neg()
		t.Legs = append(t.Legs, leg)
	}
	t.Digest = digest(t)
	return t
}

// commitPatience is how long a reversal waits for an original that is not stored as
// committed. Its caller may have been answered that it is, by another process.
const commitPatience = time.Second

// reversalPatience is how long a refused reversal waits for the one that was first.
// If that one is dead, recovery finishes it.
const reversalPatience = 5 * time.Second

// reversedByAnother finds out what became of the reversal for which a transfer was
// reserved, when another reversal was refused because of that.
func (c *Coordinator) reversedByAnother(ctx context.Context, refused Record, cause error) (Record, error) {
	ctx, cancel := context.WithTimeout(ctx, reversalPatience)
	defer cancel()
	for n := 1; ; n++ {
		original, err := c.original(ctx, refused.Reverses)
		switch {
		case err == nil && original.ReversedBy != "":
			rec, reversed := alreadyReversed(original)
			// The cause says that this reversal is stored, and has failed.
			return rec, fmt.Errorf("%w: %w", reversed, cause)
		case err == nil && !original.Reserved() || errors.Is(err, ErrTransferNotFound) || errors.Is(err, ErrClosed),
			lasting(err):
			return refused, cause
		}
		if !pausePoll(ctx, n) {
			return refused, cause
		}
	}
}

func alreadyReversed(original document.Transfer) (Record, error) {
	err := fmt.Errorf("%w, by %s", ErrAlreadyReversed, words.Quote(original.ReversedBy))
	return recordOf(original), aboutTransfer(original.ID, err)
}
