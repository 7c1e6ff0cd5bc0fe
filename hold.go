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
	"github.com/mongotransfer/transfer/internal/stages"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// longestHold bounds how long money can be held.
const longestHold = 10 * 366 * 24 * time.Hour

// Hold reserves what a transfer moves, and stops there, in StatePreparing.
// The debits are off the balances, and nothing has arrived.
// [Coordinator.Post] moves the money, all of it or a part.
// [Coordinator.Void] gives it back, and so does Run, or Recover, once the hold has
// expired: expiresIn after it was stored, by the server's clock.
// A hold survives restarts, and does not count as stalled.
// It lasts from 1 ms to 3,660 days, which are about ten years.
//
// The expiry is not part of the payload for which an ID stands.
// Of two calls with one ID that of the first counts, and the second finds it in the
// record, as ExpiresAt.
// [Coordinator.Extend] lets it expire later.
//
//   - nil: the money is held.
//     Or the call is a repetition, and the hold was posted in the meantime: see the
//     record's State.
//   - a [RefusedError]: it is in StateFail, and nothing is held.
//     Another try needs a new ID.
//   - ErrCancelled, ErrExpired: it was voided, cancelled or has expired; it is in
//     StateFail, and nothing is held.
//     Another try needs a new ID.
//   - ErrInDoubt and all others: as [Coordinator.Transfer].
//     The context's own error, ErrClosed and that of a server that is away are about this
//     call only, and what an earlier call has held is held.
//     A repeated call with the same ID goes on where the hold stopped.
//     A hold that nobody goes on with is voided when it expires.
func (c *Coordinator) Hold(ctx context.Context, req Request, expiresIn time.Duration) (rec Record, err error) {
	line := c.lineOf(ctx, "hold", req.ID)
	ctx = line.ctx
	defer func() { line.end(ctx, &rec, err) }()
	if err := checkExpiry(expiresIn); err != nil {
		return Record{}, err
	}
	if err := req.forNow(); err != nil {
		return Record{}, err
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

// checkExpiry refuses what is no time to hold money for.
func checkExpiry(expiresIn time.Duration) error {
	if expiresIn < time.Millisecond || expiresIn > longestHold {
		return invalid("a hold lasts between 1ms and %d days, not %s", longestHold/(24*time.Hour), expiresIn)
	}
	return nil
}

// PostOption changes what Post does.
type PostOption func(*posting)

type posting struct{ amount *Amount }

// PostAmount posts a part of a hold and gives the rest back.
// It is for holds between two accounts.
// Without it Post moves all that is held.
func PostAmount(a Amount) PostOption { return func(p *posting) { p.amount = &a } }

// Post moves the money of a hold.
// It may be repeated, and called by many at once: one Post, Void or expiry decides.
// A hold is posted once, to the accounts and in the proportions that it was asked for
// with: docs/limits.md says how to take it in several parts, or to take a fee.
//
//   - nil: the transfer is in StateSuccess or StateCommitted (see [WithReturnAt]), by
//     this call or before.
//   - ErrExpired, ErrCancelled: it has expired, or was voided or cancelled; it is in
//     StateFail, and the money went back.
//     To charge all the same, ask for a transfer, or hold again, with a new ID.
//   - ErrIDConflict: it was posted before, with another amount, which the record shows.
//     The [ConflictError] says "posted".
//   - ErrNotHeld: it is no hold, or it was refused, or not everything is held yet.
//     In the last case, ask for the hold again.
//   - ErrTransferNotFound: there is no such transfer.
//   - ErrInvalidRequest: it is undecided, and the amount is not positive, more than is
//     held, of another kind, or the hold has other legs than two.
//     Or it touches a ledger or documents that this Coordinator was not given, and the
//     text says which.
//   - ErrUnsettled: it is posted for good, in StateCommitted, and not all of it is in
//     place: see [Coordinator.Transfer].
//   - ErrInDoubt: the context ended after something was sent.
//     Ask again.
//   - the context's own error, ErrClosed, ErrUnauthorized, ErrUnsupportedDeployment, a
//     server that can't be reached for 30 s: this call has changed nothing.
//     An earlier call keeps its outcome: the hold may be posted.
//     Ask again.
func (c *Coordinator) Post(ctx context.Context, id string, opts ...PostOption) (rec Record, err error) {
	line := c.lineOf(ctx, "post", id)
	ctx = line.ctx
	defer func() { line.end(ctx, &rec, err) }()
	var p posting
	for _, opt := range opts {
		if opt == nil {
			return Record{}, invalid("a nil PostOption")
		}
		opt(&p)
	}
	return c.decide(ctx, id, func(ctx context.Context, stored document.Transfer) answer {
		return c.post(ctx, stored, p)
	})
}

// post tries once to post a hold.
func (c *Coordinator) post(ctx context.Context, stored document.Transfer, p posting) answer {
	rec := recordOf(stored)
	if !stored.Hold {
		return answerWith(rec, noHold(stored.ID))
	}
	part, unfit := p.part(stored)
	switch stored.State {
	case protocol.Preparing:
		if c.queries.LooksExpired(ctx, stored) {
			return c.execute(ctx, stored, terms{start: expire(), reason: expiredReason})
		}
		if unfit != nil {
			return answerWith(rec, unfit)
		}
		if !stored.Held {
			return c.unheld(ctx, stored)
		}
		return c.execute(ctx, stored, terms{start: protocol.Start{Claim: protocol.Post}, post: part})
	case protocol.Committed, protocol.Success:
		if unfit != nil || !equalParts(part, stored.Posted) {
			return answerWith(rec, postedOtherwise(stored.ID))
		}
		if stored.State.Final() || c.answersCommitted(ctx, stored) {
			return answerWith(rec, nil)
		}
	case protocol.Fail:
		return answerWith(rec, unheldError(rec))
	case protocol.Initiated, protocol.Rollback:
	}
	return c.goOn(ctx, stored)
}

// noHold is the error of a verb for holds about another transfer.
func noHold(id string) error { return aboutTransfer(id, fmt.Errorf("%w: it is no hold", ErrNotHeld)) }

// unheld answers that a hold is not held yet, if a read confirms it that a replaced
// primary can't answer: such a primary shows an older state.
func (c *Coordinator) unheld(ctx context.Context, stored document.Transfer) answer {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	again, found, err := c.queries.ReadTransferLinearizable(ctx, stored.ID)
	if err != nil || !found || again.Held || again.State != protocol.Preparing {
		return notYet(err)
	}
	err = fmt.Errorf("%w: not everything is prepared yet (ask for the hold again)", ErrNotHeld)
	return answerWith(recordOf(again), aboutTransfer(stored.ID, err))
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

// goOn takes a decided transfer over if it has stalled.
// It answers with a stuck transfer as it is stored, until the time for another try has
// come.
func (c *Coordinator) goOn(ctx context.Context, stored document.Transfer) answer {
	if !c.stalled(ctx, stored) {
		return stuckAsStored(stored)
	}
	return c.execute(ctx, stored, terms{start: c.takeOver(), reason: stalledReason})
}

// stuckAsStored answers with a decided transfer if it is stuck.
func stuckAsStored(stored document.Transfer) answer {
	if !standsStill(stored) {
		return notYet(nil)
	}
	return answerWith(asKnown(stored.ID, recordOf(stored), nil))
}

// part returns how much of a hold is posted, nil for all of it.
func (p posting) part(stored document.Transfer) (*money.Amount, error) {
	if p.amount == nil {
		return nil, nil
	}
	if len(stored.Legs) != 2 {
		return nil, invalid("PostAmount is for holds from one account to one other, and %s has %d legs",
			words.Quote(stored.ID), len(stored.Legs))
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

// Void gives the money of a hold back.
// It may be repeated, and called by many at once: one Post, Void or expiry decides.
//
//   - nil: it is in StateFail, by this call or before; the record's Failure says why.
//   - ErrAlreadyCommitted: it was posted.
//     [Coordinator.Reverse] takes the money back.
//   - ErrNotHeld: it is no hold.
//     [Coordinator.Cancel] is for other transfers.
//   - ErrTransferNotFound, ErrInDoubt, the context's own error and the like: as Post.
//   - ErrInvalidRequest: it touches what this Coordinator was not given.
//   - ErrCancelled or ErrExpired, with a record in StateRollback: it is voided for good,
//     and not all of the money is back yet; Record.Stuck says why.
func (c *Coordinator) Void(ctx context.Context, id string) (rec Record, err error) {
	line := c.lineOf(ctx, "void", id)
	ctx = line.ctx
	defer func() { line.end(ctx, &rec, err) }()
	return c.decide(ctx, id, func(ctx context.Context, stored document.Transfer) answer {
		if !stored.Hold {
			return answerWith(recordOf(stored), noHold(stored.ID))
		}
		return c.withdraw(ctx, stored, protocol.Voided, "voided")
	})
}

// decide reads a transfer and tries what a verb does with it, again and again, until
// there is an answer.
func (c *Coordinator) decide(
	ctx context.Context, id string, verb func(context.Context, document.Transfer) answer,
) (Record, error) {
	if err := document.CheckID(id); err != nil {
		return Record{}, invalid("transfer: %w", err)
	}
	if err := c.readyForAny(ctx); err != nil {
		return Record{}, c.early(id, err)
	}
	leave, err := c.admitDecider(ctx)
	if err != nil {
		return Record{}, c.early(id, aboutTransfer(id, err))
	}
	var (
		outage engine.Outage
		last   Record // as it was stored when it was tried
		open   bool   // it was not decided before
	)
	defer func() { leave(open) }()
	for n := 1; ; n++ {
		c.enter(ctx, id, stages.Read)
		a := c.decideOnce(ctx, id, &last, func(ctx context.Context, stored document.Transfer) answer {
			open = open || stored.State == protocol.Preparing || stored.State == protocol.Initiated
			return verb(ctx, stored)
		})
		if a.done {
			return a.rec, a.err
		}
		if n == 1 {
			defer c.engine.HurryUp(id)()
		}
		if c.tooLong(&outage, a.err) || c.engine.Closed() || !pausePoll(ctx, n) {
			cause := withCause(c.stopped(ctx), a.err)
			if last.ID != "" {
				return asKnown(id, last, cause)
			}
			return Record{}, c.early(id, aboutTransfer(id, cause))
		}
	}
}

// admitDecider refuses a caller if too many others are before it.
// With several clusters nobody is counted: those whose transfers wait for a busy cluster
// would keep the others out, and it takes a read to tell them apart.
func (c *Coordinator) admitDecider(ctx context.Context) (leave func(done bool), err error) {
	if len(c.catalog.Clusters) > 1 {
		return func(bool) {}, nil
	}
	return c.engine.Admit(ctx, &c.deciders)
}

// decideOnce reads a transfer and tries once what a verb does with it.
// It records how the transfer was stored then.
func (c *Coordinator) decideOnce(
	ctx context.Context, id string, last *Record, verb func(context.Context, document.Transfer) answer,
) answer {
	stored, found, err := c.readOnce(ctx, id)
	switch {
	case errors.Is(err, document.ErrUnreadable):
		return answerWith(Record{}, aboutTransfer(id, err))
	case err != nil:
		return notYet(err)
	case found && !stored.State.Known():
		return answerWith(recordOf(stored), aboutTransfer(id, unknownState(stored)))
	case !found && c.surelyMissing(ctx, id):
		return answerWith(Record{}, aboutTransfer(id, ErrTransferNotFound))
	case !found:
		return notYet(nil)
	}
	a := verb(ctx, stored)
	if stored.State == protocol.Committed {
		*last = recordOf(stored) // a commit is never taken back
	}
	switch {
	case errors.Is(a.err, errAway):
		return notYet(a.err)
	case a.done && last.ID != "": // an earlier try of this call may have been stored
		return asStored(recordOf(stored), a)
	case errors.Is(a.err, mongostore.ErrForeign):
		a.err = invalid("%w", a.err)
	}
	if !a.done {
		*last = recordOf(stored)
	}
	return a
}

// expiredReason is stored with a hold that has expired.
const expiredReason = "nobody has decided it in time"

// expire returns the start of an execution that voids a hold which has expired.
func expire() protocol.Start {
	return protocol.Start{Claim: protocol.Expire, RollBack: protocol.Expired}
}

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
//     With ErrInDoubt as well, where an earlier try of this call may have been stored.
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
		return answerWith(rec, e.early(stored.ID, aboutTransfer(stored.ID, ErrAlreadyCommitted)))
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
	end, err := c.begin()
	if err != nil {
		return answerWith(recordOf(stored), e.early(stored.ID, c.early(stored.ID, err)))
	}
	defer end()
	after, result, err := c.store.Extend(ctx, stored, c.newOwner(), e.expiresIn)
	switch result {
	case protocol.Applied:
		return answerWith(recordOf(after), nil)
	case protocol.NotMatched:
		return c.unextended(ctx, stored.ID, e)
	case protocol.Failed:
		err = aboutTransfer(stored.ID, fmt.Errorf("it could not be extended: %w", asUnauthorized(err)))
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
