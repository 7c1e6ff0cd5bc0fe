package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// longestHold bounds for how long money can be held.
const longestHold = 10 * 366 * 24 * time.Hour

// Hold reserves what a transfer moves, and stops there, in StatePreparing: the debits are
// off the balances, and nothing has arrived. [Coordinator.Post] moves the money, all of
// it or a part, [Coordinator.Void] gives it back, and so does Run, or Recover, once the
// hold has expired: expiresIn from when it was stored, by the server's clock. A hold
// survives restarts, and nobody takes it for stalled.
//
// The expiry is not part of the payload, which an ID stands for: of two calls with one ID
// that of the first counts, and the second is told so by the record, whose ExpiresAt is
// the first one's. To hold for longer, hold under another ID.
//
//   - nil: the money is held; or the hold, asked for again, was held and has been posted
//     since: see the record's State.
//   - a [RefusedError]: it is in StateFail, and nothing is held.
//   - ErrCancelled, ErrExpired: it was voided, cancelled or has expired; it is in
//     StateFail, and nothing is held.
//   - ErrInDoubt and all others: as [Coordinator.Transfer]; the context's own error,
//     ErrClosed and that of a server that is away are about this call only, and what an
//     earlier one has held is held. Asked again with the same ID, it goes on where it
//     stopped; a hold that nobody goes on with is voided when it expires.
func (c *Coordinator) Hold(ctx context.Context, req Request, expiresIn time.Duration) (rec Record, err error) {
	line := c.lineOf(ctx, "hold", req.ID)
	defer func() { line.end(ctx, &rec, err) }()
	if expiresIn < time.Millisecond || expiresIn > longestHold {
		return Record{}, invalid("a hold lasts between 1ms and %s, not %s", longestHold, expiresIn)
	}
	if !req.NotBefore.IsZero() {
		return Record{}, invalid("NotBefore is for Submit")
	}
	t, err := c.plan(req)
	if err != nil {
		return Record{}, err
	}
	t.Hold = true
	t.Digest = digest(t)
	if err := c.prepared(ctx, &t); err != nil {
		return Record{}, err
	}
	return c.complete(ctx, t, expiresIn)
}

// PostOption changes what Post does.
type PostOption func(*posting)

type posting struct{ amount *Amount }

// PostAmount posts so much of a hold and gives the rest back. It is for holds that were asked for by From, To and Amount.
func PostAmount(a Amount) PostOption { return func(p *posting) { p.amount = &a } }

// Post moves the money of a hold. It may be asked for again, and by many at once: one
// Post, Void or expiry decides.
//
//   - nil: the transfer is in StateSuccess (or StateCommitted, see [WithReturnAt]), by
//     this call or before.
//   - ErrExpired, ErrCancelled: it has expired, or was voided or cancelled; it is in
//     StateFail, and the money went back.
//   - ErrIDConflict: it was posted before, with another amount; the record shows which.
//     The [ConflictError] says "posted".
//   - ErrNotHeld: it is no hold, or it was refused, or not everything is held yet: then
//     ask for the hold again.
//   - ErrTransferNotFound: there is none.
//   - ErrInvalidRequest: it is undecided, and the amount is not positive, more than is
//     held, of another kind, or the hold has other legs than two; or it touches a ledger
//     or documents that this Coordinator was not given, and the text says which.
//   - ErrUnsettled: it is posted for good, in StateCommitted, and not all of it is in
//     place: see [Coordinator.Transfer].
//   - ErrInDoubt: the context ended after something was sent. Ask again.
//   - the context's own error, ErrClosed, a server that can't be reached for 30 s: this
//     call has changed nothing. An earlier one keeps its outcome: the hold may be posted.
func (c *Coordinator) Post(ctx context.Context, id string, opts ...PostOption) (rec Record, err error) {
	line := c.lineOf(ctx, "post", id)
	defer func() { line.end(ctx, &rec, err) }()
	var p posting
	for _, opt := range opts {
		if opt == nil {
			return Record{}, invalid("a nil PostOption")
		}
		opt(&p)
	}
	return c.decide(ctx, id, func(ctx context.Context, stored document.Transfer) (Record, bool, error) {
		return c.post(ctx, stored, p)
	})
}

// post tries once to post a hold. It reports false where another look is due.
func (c *Coordinator) post(ctx context.Context, stored document.Transfer, p posting) (Record, bool, error) {
	rec := recordOf(stored)
	if !stored.Hold {
		return rec, true, aboutTransfer(stored.ID, fmt.Errorf("%w: it is no hold", ErrNotHeld))
	}
	part, unfit := p.part(stored)
	switch stored.State {
	case protocol.Preparing:
		if c.queries.LooksExpired(ctx, stored) {
			return c.execute(ctx, attempt{transfer: stored, start: expire(), reason: expiredReason})
		}
		if unfit != nil {
			return rec, true, unfit
		}
		if !stored.Held {
			return c.unheld(ctx, stored)
		}
		return c.execute(ctx, attempt{transfer: stored, start: protocol.Start{Claim: protocol.Post}, post: part})
	case protocol.Committed, protocol.Success:
		if unfit != nil || !equalParts(part, stored.Posted) {
			return rec, true, postedOtherwise(stored.ID)
		}
		if stored.State.Final() || c.settings.returnAt == StateCommitted {
			return rec, true, nil
		}
	case protocol.Fail:
		return rec, true, unheldError(rec)
	case protocol.Initiated, protocol.Rollback:
	}
	return c.goOn(ctx, stored)
}

// unheld tells that a hold is not held yet, if a read says so that a primary which was replaced can't answer: such a one shows what once
// was.
func (c *Coordinator) unheld(ctx context.Context, stored document.Transfer) (Record, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	again, found, err := c.queries.ReadTransferLinearizable(ctx, stored.ID)
	if err != nil || !found || again.Held || again.State != protocol.Preparing {
		return Record{}, false, err
	}
	err = fmt.Errorf("%w: not everything is prepared yet (ask for the hold again)", ErrNotHeld)
	return recordOf(again), true, aboutTransfer(stored.ID, err)
}

// unheldError returns why a failed hold can't be posted.
func unheldError(rec Record) error {
	err := failureError(rec)
	var refused *RefusedError
	if errors.As(err, &refused) {
		return fmt.Errorf("%w: %w", ErrNotHeld, err)
	}
	return err
}

// goOn takes a decided transfer over if it has stalled. One that is stuck, and is not due
// to be tried again, is told as it is.
func (c *Coordinator) goOn(ctx context.Context, stored document.Transfer) (Record, bool, error) {
	if !c.stalled(ctx, stored) {
		return stuckAsStored(stored)
	}
	return c.execute(ctx, attempt{transfer: stored, start: c.takeOver(), reason: stalledReason})
}

// stuckAsStored answers with a decided transfer that is stuck. It reports false for one
// that goes on.
func stuckAsStored(stored document.Transfer) (Record, bool, error) {
	if !standsStill(stored) {
		return Record{}, false, nil
	}
	rec, err := asKnown(stored.ID, recordOf(stored), nil)
	return rec, true, err
}

// part returns how much of a hold is to be posted, nil for all of it.
func (p posting) part(stored document.Transfer) (*money.Amount, error) {
	if p.amount == nil {
		return nil, nil
	}
	if len(stored.Legs) != 2 {
		return nil, invalid("PostAmount is for holds from one account to one other, and %s has %d legs", words.Quote(stored.ID), len(stored.Legs))
	}
	held, amount := stored.Legs[0].Amount, p.amount.exact
	if held.Sign() < 0 {
		held = held.Neg()
	}
	switch {
	case amount.Kind() != held.Kind():
		return nil, invalid("the amount to post is not of the kind that is held")
	case amount.Places() > money.MaxPlaces:
		return nil, invalid("the amount to post has more than %d digits behind the point", money.MaxPlaces)
	case amount.Sign() <= 0 || amount.Cmp(held) > 0:
		return nil, invalid("the amount to post must be positive, and no more than is held")
	case amount.Cmp(held) == 0:
		return nil, nil
	}
	return &amount, nil
}

func equalParts(a, b *money.Amount) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Cmp(*b) == 0
}

// Void gives the money of a hold back. It may be asked for again, and by many at once:
// one Post, Void or expiry decides.
//
//   - nil: it is in StateFail, by this call or before: the record's Failure tells why.
//   - ErrAlreadyCommitted: it was posted.
//   - ErrNotHeld: it is no hold. [Coordinator.Cancel] is for others.
//   - ErrTransferNotFound, ErrInDoubt, the context's own error and the like: as Post.
//     ErrInvalidRequest: it touches what this Coordinator was not given.
//   - ErrCancelled or ErrExpired, with a record in StateRollback: it is voided for good,
//     and not all of the money is back yet: Record.Stuck says why.
func (c *Coordinator) Void(ctx context.Context, id string) (rec Record, err error) {
	line := c.lineOf(ctx, "void", id)
	defer func() { line.end(ctx, &rec, err) }()
	return c.decide(ctx, id, func(ctx context.Context, stored document.Transfer) (Record, bool, error) {
		if !stored.Hold {
			return recordOf(stored), true, aboutTransfer(stored.ID, fmt.Errorf("%w: it is no hold", ErrNotHeld))
		}
		return c.withdraw(ctx, stored, protocol.Voided, "voided")
	})
}

// decide looks at a transfer and tries what a verb wants of it, again and again, until something can be told.
func (c *Coordinator) decide(
	ctx context.Context, id string, once func(context.Context, document.Transfer) (Record, bool, error),
) (Record, error) {
	if err := document.CheckID(id); err != nil {
		return Record{}, invalid("transfer: %w", err)
	}
	if err := c.readyForAny(ctx); err != nil {
		return Record{}, c.early(id, err)
	}
	var (
		away quiet
		last Record // as it stood when it was tried
	)
	for n := 1; ; n++ {
		rec, told, err := c.decideOnce(ctx, id, &last, once)
		if told {
			return rec, err
		}
		if away.tooLong(c, err) || c.engine.Closed() || !engine.Pause(ctx, min(n, slowestPoll)) {
			cause := withCause(withCause(ctx.Err(), c.closedError()), err)
			if last.ID != "" {
				return asKnown(id, last, cause)
			}
			return Record{}, c.early(id, aboutTransfer(id, cause))
		}
	}
}

// decideOnce looks at a transfer and tries once. It reports false where another look is due.
func (c *Coordinator) decideOnce(
	ctx context.Context, id string, last *Record, once func(context.Context, document.Transfer) (Record, bool, error),
) (Record, bool, error) {
	stored, found, err := c.look(ctx, id)
	switch {
	case errors.Is(err, document.ErrUnreadable):
		return Record{}, true, aboutTransfer(id, err)
	case err != nil:
		return Record{}, false, err
	case found && !stored.State.Known():
		return recordOf(stored), true, aboutTransfer(id, unknownState(stored))
	case !found && c.surelyMissing(ctx, id):
		return Record{}, true, aboutTransfer(id, ErrTransferNotFound)
	case !found:
		return Record{}, false, nil
	}
	rec, told, err := once(ctx, stored)
	if stored.State == protocol.Committed {
		*last = recordOf(stored) // which nobody takes back
	}
	switch {
	case errors.Is(err, errAway):
		return Record{}, false, err
	case told && last.ID != "" && nothingSent(err):
		rec, err = asKnown(id, recordOf(stored), err) // an earlier try of ours may have been stored
	case errors.Is(err, mongostore.ErrForeign):
		err = invalid("%w", err)
	}
	if !told {
		*last = recordOf(stored)
	}
	return rec, told, err
}

// expiredReason is stored with a hold that has expired.
const expiredReason = "nobody has decided it in time"

// expire returns the start of an execution that voids a hold which has expired.
func expire() protocol.Start {
	return protocol.Start{Claim: protocol.Expire, RollBack: protocol.Expired}
}
