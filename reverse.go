package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/words"
)

// Reverse moves the money of a transfer back, all of it (of a hold: what was posted of
// it), by a new transfer with the given ID. However many ask at once, and under whatever
// IDs, at most one reversal of a transfer succeeds. It moves money, not effects: those
// stay as they are.
//
//   - nil: the reversal is in StateSuccess (or StateCommitted, see [WithReturnAt]), by
//     this call or before.
//   - ErrAlreadyReversed: another transfer has reversed it: the record's ReversedBy tells
//     which. The record is the original's. Where this reversal was stored before it came
//     too late, the error is a [RefusedError] as well: its ID stays failed.
//   - ErrNotReversible: it is not in StateSuccess. The record is the original's. One in
//     StateCommitted is waited for, 5 s at most.
//   - ErrTransferNotFound: there is no transfer to reverse. Who asks again for a reversal
//     that is stored is told its outcome all the same, also when [WithRetention] has let
//     the original be removed before it.
//   - a [RefusedError]: the reversal is in StateFail, and nothing moved:
//     ErrInsufficientFunds when the money is spent, as this ID is told from then on;
//     ErrRequirementFailed when another reversal has reserved the transfer, and has
//     failed since, or is still under way. Try again under another ID.
//   - ErrInvalidRequest: it touched a ledger that this Coordinator was not given, and the
//     text says which.
//   - ErrUnsettled, ErrInDoubt, ErrIDConflict and all others: as [Coordinator.Transfer].
//     The context's own error, ErrClosed and that of a server that is away say that this
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
		return recordOf(original), aboutTransfer(id, fmt.Errorf("%w: it is in state %s", ErrNotReversible, original.State))
	}
	if original.ReversedBy != "" && original.ReversedBy != newID {
		// Who was refused because the money was spent is told so again.
		if _, err := c.stored(ctx, newID); errors.Is(err, ErrTransferNotFound) {
			return alreadyReversed(original)
		} else if err != nil && !errors.Is(err, document.ErrUnreadable) {
			return Record{}, c.early(newID, err)
		}
	}
	t := reversal(original, newID)
	// Legs that were changed since would be moved back as they are now, and a place that is not known here can't be reached.
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

// settled reads the transfer that is to be reversed. One that is committed succeeds in a moment, unless an account is gone: it is waited
// for.
func (c *Coordinator) settled(ctx context.Context, id string) (original document.Transfer, err error) {
	waiting, cancel := context.WithTimeout(ctx, reversalPatience)
	defer cancel()
	for n := 1; ; n++ {
		original, err = c.original(ctx, id)
		if err != nil || original.State != protocol.Committed || !engine.Pause(waiting, min(n, slowestPoll)) {
			return original, err
		}
	}
}

// original reads the transfer that is to be reversed.
func (c *Coordinator) original(ctx context.Context, id string) (document.Transfer, error) {
	if err := c.readyForAny(ctx); err != nil {
		return document.Transfer{}, err
	}
	stored, err := c.stored(ctx, id)
	if err != nil && !errors.Is(err, ErrTransferNotFound) || stored.State == protocol.Success {
		return stored, err
	}
	// It may be one by now: a primary that was replaced shows what once was.
	return c.storedBy(ctx, id, c.queries.ReadTransferLinearizable)
}

// reversedBefore answers where there is no transfer to reverse: it may have been purged since it was reversed by the one of newID.
func (c *Coordinator) reversedBefore(ctx context.Context, id, newID string, missing error) (Record, error) {
	stored, err := c.stored(ctx, newID)
	switch {
	case errors.Is(err, ErrTransferNotFound) || err == nil && stored.Reverses != id:
		return Record{}, missing
	case err != nil:
		return Record{}, c.early(newID, err)
	}
	t := document.Transfer{ID: newID, Legs: stored.Legs, Currency: stored.Currency, Reverses: id, Digest: stored.Digest}
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

// reversalPatience is how long a refused reversal waits for the one that was first. A dead one is for recovery to end.
const reversalPatience = 5 * time.Second

// reversedByAnother finds out what became of the reversal for which a transfer was reserved, when another one was refused for it.
func (c *Coordinator) reversedByAnother(ctx context.Context, refused Record, cause error) (Record, error) {
	ctx, cancel := context.WithTimeout(ctx, reversalPatience)
	defer cancel()
	for n := 1; ; n++ {
		original, err := c.original(ctx, refused.Reverses)
		switch {
		case err == nil && original.ReversedBy != "":
			rec, reversed := alreadyReversed(original)
			return rec, fmt.Errorf("%w: %w", reversed, cause) // the cause says that this reversal is stored, and has failed
		case err == nil && !original.Reserved() || errors.Is(err, ErrTransferNotFound) || errors.Is(err, ErrClosed),
			lasting(err):
			return refused, cause
		}
		if !engine.Pause(ctx, min(n, slowestPoll)) {
			return refused, cause
		}
	}
}

func alreadyReversed(original document.Transfer) (Record, error) {
	return recordOf(original), aboutTransfer(original.ID, fmt.Errorf("%w, by %s", ErrAlreadyReversed, words.Quote(original.ReversedBy)))
}
