package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// Extend lets a hold expire later: expiresIn from now, by the server's clock, as
// Record.ExpiresAt says then.
// It may be repeated, and each call counts from its own time.
// Of several at once all count: none makes the hold expire earlier than another one did.
// Like Hold it accepts a millisecond to ten years.
//
// A Post, Void or expiry decides the hold as if there were no Extend.
// Once Extend has returned nil, the hold does not expire before the new time.
//
//   - nil: it is held, and expires at the new time.
//   - ErrExpired: it has expired, whether it was voided since or is voided by this call.
//     Hold the money under another ID.
//   - ErrAlreadyCommitted: it was posted.
//   - ErrNotHeld: it is no hold, or it was voided, cancelled or refused, or not
//     everything is held yet.
//     In the last case, ask for the hold again.
//   - ErrTransferNotFound: there is no such transfer.
//   - ErrInvalidRequest: it would expire earlier than it does; or expiresIn or the ID is
//     malformed.
//     Or it has expired, and touches what this Coordinator was not given.
//   - ErrInDoubt: the context ended after something was sent.
//     Ask again, or read ExpiresAt by [Coordinator.Get].
//   - the context's own error, ErrClosed, ErrUnauthorized, ErrUnsupportedDeployment, a
//     server that can't be reached for 30 s: this call has changed nothing.
//     The hold may have been posted, voided or extended before.
func (c *Coordinator) Extend(ctx context.Context, id string, expiresIn time.Duration) (rec Record, err error) {
	line := c.lineOf(ctx, "extend", id)
	ctx = line.ctx
	defer func() { line.end(ctx, &rec, err) }()
	if err := checkExpiry(expiresIn); err != nil {
		return Record{}, err
	}
	e := extending{expiresIn: expiresIn}
	return c.decide(ctx, id, func(ctx context.Context, stored document.Transfer) answer {
		return c.extend(ctx, stored, &e)
	})
}

// extending is one call of Extend.
type extending struct {
	expiresIn time.Duration
	unsure    bool // a try was not answered, and may be stored
}

// early answers a try that has changed nothing.
// After a try that was not answered the outcome of the call is in doubt:
//
//  1. A extends a hold to noon, and the answer is lost.
//  2. B extends it to midnight.
//  3. A tries again: it can't say that it has changed nothing.
func (e *extending) early(id string, err error) error {
	if e.unsure && OutcomeOf(err) != InDoubt {
		return inDoubt(id, err)
	}
	return err
}

// extend tries once to extend a hold.
func (c *Coordinator) extend(ctx context.Context, stored document.Transfer, e *extending) answer {
	rec := recordOf(stored)
	if !stored.Hold {
		return answerWith(rec, noHold(stored.ID))
	}
	switch stored.State {
	case protocol.Committed, protocol.Success:
		return answerWith(rec, aboutTransfer(stored.ID, ErrAlreadyCommitted))
	case protocol.Rollback, protocol.Fail:
		return answerWith(rec, notHeldAnyMore(rec))
	case protocol.Initiated, protocol.Preparing:
	}
	switch {
	case c.queries.LooksExpired(ctx, stored):
		return c.execute(ctx, stored, terms{start: expire(), reason: expiredReason})
	case !stored.Held:
		return c.unheld(ctx, stored)
	}
	return c.prolong(ctx, stored, e)
}

// prolong stores the new expiry of a hold, if the server finds that it may.
func (c *Coordinator) prolong(ctx context.Context, stored document.Transfer, e *extending) answer {
	if err := sound(stored); err != nil {
		return answerWith(Record{}, aboutTransfer(stored.ID, err))
	}
	after, result, err := c.store.Extend(ctx, stored, c.newOwner(), e.expiresIn)
	switch result {
	case protocol.Applied:
		return answerWith(recordOf(after), nil)
	case protocol.NotMatched:
		return c.unextended(ctx, stored.ID, e)
	case protocol.Failed:
		err = aboutTransfer(stored.ID, fmt.Errorf("it could not be extended: %w", named(err)))
		return answerWith(recordOf(stored), e.early(stored.ID, c.early(stored.ID, err)))
	case protocol.Unknown:
		e.unsure = true
	case protocol.NotSent:
	}
	return notYet(err)
}

// unextended answers that a hold would expire earlier than it does, if a read confirms it
// that a replaced primary can't answer.
// Otherwise something else was in the way, which the next try finds.
func (c *Coordinator) unextended(ctx context.Context, id string, e *extending) answer {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	longer, found, err := c.queries.ReadLonger(ctx, id, e.expiresIn)
	if err != nil || !found {
		return notYet(err)
	}
	err = invalid("the hold %s lasts until %s already, and %s from now is earlier",
		words.Quote(id), longer.ExpiresAt.UTC().Format(time.RFC3339Nano), e.expiresIn)
	return answerWith(recordOf(longer), e.early(id, err))
}

// notHeldAnyMore returns why a hold that was rolled back can't be extended.
func notHeldAnyMore(rec Record) error {
	err := failureError(rec)
	if errors.Is(err, ErrExpired) {
		return err
	}
	why := "its document does not say why"
	if rec.Failure != nil {
		why = words.Clip(rec.Failure.Code)
	}
	return aboutTransfer(rec.ID, fmt.Errorf("%w: it was rolled back: %s", ErrNotHeld, why))
}
