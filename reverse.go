package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// Reverse moves the money of a transfer back, all of it (of a hold: what was posted of it), by a new transfer with the given ID. However
// many ask at once, and under whatever IDs, at most one reversal of a transfer succeeds. It moves money, not effects: those stay as they
// are.
//
//   - nil: the reversal is in StateSuccess (or StateCommitted, see [WithReturnAt]), by this call or before.
//   - ErrAlreadyReversed: another transfer has reversed it: the record's ReversedBy tells which. The record is the original's.
//   - ErrNotReversible: it is not in StateSuccess. The record is the original's.
//   - ErrTransferNotFound: there is no transfer to reverse.
//   - a [RefusedError]: the reversal is in StateFail, and nothing moved: ErrInsufficientFunds when the money is spent, as this ID
//     is told from then on; ErrRequirementFailed when another reversal has reserved the transfer, and has failed since, or is still under
//     way. Try again under another ID.
//   - ErrInvalidRequest: it touched a ledger that this Coordinator was not given, and the text says which.
//   - ErrInDoubt, ErrIDConflict and all others: as [Coordinator.Transfer].
func (c *Coordinator) Reverse(ctx context.Context, id, newID string) (Record, error) {
	switch err := errors.Join(mongostore.CheckID(id), mongostore.CheckID(newID)); {
	case err != nil:
		return Record{}, invalid("transfer: %w", err)
	case id == newID:
		return Record{}, invalid("the reversal of %q wants an ID of its own", id)
	}
	original, err := c.original(ctx, id)
	if err != nil {
		return Record{}, err
	}
	if original.State != protocol.Success {
		return recordOf(original), fmt.Errorf("transfer %q is %s: %w", id, original.State, ErrNotReversible)
	}
	if original.ReversedBy != "" && original.ReversedBy != newID {
		switch known, err := c.isStored(ctx, newID); { // who was refused because the money was spent is told so again
		case err != nil:
			return Record{}, err
		case !known:
			return alreadyReversed(original)
		}
	}
	t := reversal(original, newID)
	// Legs that were changed since would be moved back as they are now, and a place that is not known here can't be reached.
	if err := sound(original); err != nil {
		return recordOf(original), fmt.Errorf("reverse transfer %q: %w", id, err)
	}
	if _, err := c.store.NewWork(t, ""); err != nil {
		return recordOf(original), invalid("reverse transfer %q: %w", id, err)
	}
	if err := c.ready(ctx, t.Places()...); err != nil {
		return Record{}, err
	}
	rec, err := c.complete(ctx, t, 0)
	if !errors.Is(err, ErrRequirementFailed) {
		return rec, err
	}
	return c.reversedByAnother(ctx, rec, err)
}

// original reads the transfer that is to be reversed.
func (c *Coordinator) original(ctx context.Context, id string) (mongostore.Transfer, error) {
	if err := c.ready(ctx); err != nil {
		return mongostore.Transfer{}, err
	}
	var stored mongostore.Transfer
	var found bool
	err := c.read(ctx, func(ctx context.Context) (done bool, err error) {
		stored, found, err = c.store.GetTransfer(ctx, id)
		if err == nil && stored.State != protocol.Success { // it may be one by now: a primary that was replaced shows what once was
			stored, found, err = c.store.LookAtTransfer(ctx, id)
		}
		return err == nil || errors.Is(err, mongostore.ErrUnreadable), err
	})
	switch {
	case err != nil:
		return stored, fmt.Errorf("get transfer %q: %w", id, err)
	case !found:
		return stored, fmt.Errorf("transfer %q: %w", id, ErrTransferNotFound)
	}
	return stored, nil
}

// isStored reports whether there is a transfer with an ID.
func (c *Coordinator) isStored(ctx context.Context, id string) (found bool, err error) {
	err = c.read(ctx, func(ctx context.Context) (done bool, err error) {
		_, found, err = c.store.GetTransfer(ctx, id)
		return err == nil || errors.Is(err, mongostore.ErrUnreadable), err
	})
	if err != nil {
		return false, fmt.Errorf("get transfer %q: %w", id, err)
	}
	return found, nil
}

// reversal returns the transfer that moves another one's money back.
func reversal(original mongostore.Transfer, id string) mongostore.Transfer {
	t := mongostore.Transfer{ID: id, Currency: original.Currency, Reverses: original.ID}
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
			return alreadyReversed(original)
		case err == nil && !original.Reserved() || errors.Is(err, ErrTransferNotFound) || errors.Is(err, ErrClosed):
			return refused, cause
		}
		if !engine.Pause(ctx, min(n, slowestPoll)) {
			return refused, cause
		}
	}
}

func alreadyReversed(original mongostore.Transfer) (Record, error) {
	return recordOf(original), fmt.Errorf("transfer %q: %w, by %q", original.ID, ErrAlreadyReversed, original.ReversedBy)
}
