package transfer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/lookout"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/stages"
)

// Request asks for a transfer: by From, To and Amount, or by Legs, but not both.
type Request struct {
	// ID is the idempotency key, 1 to 255 bytes of UTF-8.
	// The same ID with the same payload has the same outcome, no matter how often and
	// from which process it is requested.
	ID string
	// From is the account that is debited with Amount.
	// It is in the default ledger.
	From string
	// To is the account that is credited with Amount.
	// It is in the default ledger.
	To string
	// Amount is what From and To move, and is positive.
	Amount Amount
	// Legs are signed movements that sum to zero, in each currency.
	// They take the place of From, To and Amount.
	// Several on one account are added up, and an account whose legs cancel out takes no
	// part.
	// If all cancel out, the request needs Effects.
	// Defaults to nil: From, To and Amount say what moves.
	Legs []Leg
	// AtMost moves what From can spend, up to Amount.
	// That is read before anything is stored, and is then what the transfer moves.
	// With Submit it is read at the submission, and not when a worker runs the transfer.
	// If From has less by the time the transfer is prepared, the transfer is refused with
	// ErrInsufficientFunds.
	// If From has nothing, the transfer asks for all of Amount, and is refused unless
	// that has come in by then.
	// Defaults to false: the transfer moves all of Amount, or nothing.
	AtMost bool
	// Effects are documents that change in step with the money: none of them before it
	// moves, all of them once it does.
	// A request that has some may move no money at all.
	// Defaults to nil: none.
	Effects []Effect
	// Currency must be the currency of every account in the transfer, but for those whose
	// leg names another one.
	// Defaults to "", for accounts that have none.
	Currency string
	// NotBefore is when workers may begin, by the server's clock.
	// It is for Submit only.
	// It is rounded up to the millisecond, lies within the years 0 to 9999, and is not
	// part of the payload: of two requests with the same ID, that of the first counts.
	// Defaults to the zero time: at once.
	NotBefore time.Time
	// AwaitFundsUntil is how long the transfer waits while an account that it takes
	// money from has too little, by the server's clock.
	// It is for Submit only, and not for AtMost.
	// See [Coordinator.Submit] for what it waits for, and what it doesn't.
	// It is rounded up to the millisecond, is not before NotBefore, and is not part of
	// the payload: of two requests with the same ID, that of the first counts.
	// Defaults to the zero time: it doesn't wait, and the first lack is a refusal.
	AwaitFundsUntil time.Time
	// Metadata is stored with the transfer and is not part of the payload.
	// It is read back as the driver decodes it: a whole number as int32 or int64, a time
	// as bson.DateTime, a map in it as bson.D, a list as bson.A.
	// [Query].Metadata finds transfers by it.
	// It has at most 65,536 bytes, and docs/limits.md says which keys.
	// Defaults to nil: none.
	Metadata map[string]any
}

// Leg is one movement on an account.
type Leg struct {
	// Ledger is the name of the account's ledger.
	// Defaults to "", the default ledger.
	Ledger string
	// Account is the account's ID.
	Account string
	// Amount is taken from the account where it is negative, and added where it is
	// positive.
	// It is not zero.
	// All amounts in one currency are units, or all are decimals.
	Amount Amount
	// Currency must be the currency of the account, and all legs on an account name the
	// same one.
	// A transfer whose legs have several currencies is an exchange: see
	// [Coordinator.Transfer].
	// In a [Record] it is always filled in; asking with it again is the same payload.
	// Defaults to "", which stands for [Request].Currency, and in a [Reversal] for the
	// currency in which the original has moved that account.
	Currency string
}

// Transfer moves money, and answers with the record once the money is there.
// [WithReturnAt] lets it answer sooner, or later.
//
//   - nil: the transfer is in StateSuccess or StateCommitted (see [WithReturnAt]).
//   - ErrUnsettled: it is committed, for good, and not all of it is in place.
//     An account is gone or can't be written, and Record.Stuck says why.
//     Or, where Stuck is nil, the context ended or the Coordinator was closed after the
//     commit.
//     The transfer goes on in the background, or by recovery.
//     Until then others may see it in StatePreparing, and statements may lack it.
//   - a [RefusedError]: it is in StateFail, and nothing moved.
//     The ID keeps this answer. Tell the user, or remove the reason, and try again with a
//     new ID: docs/errors.md has what each reason takes.
//   - ErrCancelled: another call rolled it back; it is in StateFail, and nothing moved.
//     Another try needs a new ID.
//   - ErrInDoubt: the context ended, or the Coordinator was closed, after something was
//     sent and before the commit was known.
//     A transfer that has claimed goes on in the background until Close, and recovery
//     finishes what Close left.
//     Ask again with the same ID.
//   - the context's own error, ErrClosed, a server that can't be reached for 30 s: this
//     call has stored nothing.
//     context.DeadlineExceeded comes before the deadline where too many callers are
//     before this one: ask again, after a while.
//     An earlier call with the same ID keeps its outcome, even a success.
//     So don't conclude that nothing moved, and ask again with the same ID.
//   - ErrUnauthorized, ErrUnsupportedDeployment: the same, and it takes an operator.
//     The text says what is missing.
//   - ErrInvalidRequest: the same, and this request can't succeed.
//     The text says what to change.
//   - ErrIDConflict: the ID was used with another payload; the record is the first one's,
//     and the [ConflictError] says what differs.
//     A request that was meant to be another one takes another ID.
//
// Legs in several currencies are an exchange: one transfer, which happens in all of them
// or in none.
// Each currency sums to zero by itself, so the money of an exchange goes through accounts
// of the dealer, one in each currency.
// The rate follows from the amounts; the library knows no rates, and rounds nothing.
// An exchange is held, posted and reversed as any transfer.
//
// A refused transfer can't be undone while an account that it has debited can't be
// written.
// Then it is in StateRollback, and Record.Stuck says why.
// It has failed for good, and that account's money is reserved until the cause is
// repaired.
//
// A second caller with the same ID waits for the first one's outcome.
// Once the transfer has shown no sign of life for the stall threshold, the waiting call
// takes it over.
func (c *Coordinator) Transfer(ctx context.Context, req Request) (rec Record, err error) {
	line := c.lineOf(ctx, "transfer", req.ID)
	ctx = line.ctx
	defer func() { line.end(ctx, &rec, err) }()
	t, err := c.plan(req)
	if err != nil {
		return Record{}, err
	}
	if err := req.forNow(); err != nil {
		return Record{}, err
	}
	if err := c.prepared(ctx, &t); err != nil {
		return Record{}, err
	}
	return c.complete(ctx, t, 0)
}

// TransferMany moves money many times.
// Each request is a transfer of its own, independent of the others and in no order among
// them.
//
//   - The n-th record and error answer the n-th request, as [Coordinator.Transfer] would.
//     To repeat all of them, those that have succeeded included, is safe.
func (c *Coordinator) TransferMany(ctx context.Context, requests []Request) ([]Record, []error) {
	records, failures := make([]Record, len(requests)), make([]error, len(requests))
	var (
		next    atomic.Int64
		workers sync.WaitGroup
	)
	for range min(len(requests), c.settings.group.MaxPending) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(requests)); i = next.Add(1) - 1 {
				records[i], failures[i] = c.Transfer(ctx, requests[i])
			}
		})
	}
	workers.Wait()
	return records, failures
}

// Submit stores a transfer for a worker (see [Coordinator.Run]) and answers with the
// record.
// A Transfer with the same ID and payload runs it at once, even before its NotBefore, and
// Cancel takes it back.
// Each Submit is one command of its own; those who run what was submitted share theirs.
//
//   - nil: it is stored, and nothing has moved yet.
//     Or the call is a repetition, and the record shows how far the transfer is.
//     [Coordinator.Wait] waits for its outcome.
//   - a [RefusedError], ErrCancelled: the call is a repetition, and the transfer has
//     failed.
//     Another try needs a new ID.
//   - ErrInDoubt: it may be stored. Ask again with the same ID.
//   - all others: as [Coordinator.Transfer].
//
// With [Request].AwaitFundsUntil it waits for money.
// Before a worker claims it, the worker reads its accounts.
// While one of them has too little, the transfer stays in StateInitiated, and the worker
// reads them again after about a second, then after two, and so on up to a minute.
// Record.Waiting says which account lacks money, and Record.NextTry when the worker reads
// them again.
// From AwaitFundsUntil on, a worker runs it, whatever money is there by then.
//
//   - Only funds are waited for.
//     Where an account is missing, closed, frozen, or of another currency or kind of
//     amounts, it is run at once, and refused.
//   - No money is reserved while it waits, and there is no queue: a small transfer may be
//     run before a large one.
//   - The money that the worker has seen may be gone a moment later.
//     If others take it between the read and the debit, the transfer is refused
//     with ErrInsufficientFunds, for good.
//     One process never counts the same money for two that have waited.
//   - The process that has put the transfer off notices within about a second that money
//     comes in, from wherever, while it calls Run.
//     All others notice it at the next read.
//     A Transfer with the same ID doesn't wait for that.
func (c *Coordinator) Submit(ctx context.Context, req Request) (rec Record, err error) {
	line := c.lineOf(ctx, "submit", req.ID)
	ctx = line.ctx
	defer func() { line.end(ctx, &rec, err) }()
	t, err := c.plan(req)
	if err != nil {
		return Record{}, err
	}
	if err := schedule(&t, req); err != nil {
		return Record{}, err
	}
	if err := c.prepared(ctx, &t); err != nil {
		return Record{}, err
	}
	end, err := c.begin()
	if err != nil {
		return Record{}, c.early(t.ID, err)
	}
	defer end()
	leave, err := c.engine.Admit(ctx, &c.submitters)
	if err != nil {
		return Record{}, c.early(t.ID, aboutTransfer(t.ID, err))
	}
	defer leave(true)
	c.enter(ctx, t.ID, stages.Store)
	var tries retry
	for tries.next(ctx, c) {
		result, err := c.store.InsertInitiated(ctx, &t)
		switch result {
		case protocol.Applied:
			c.wakeWorker()
			return recordOf(t), nil
		case protocol.NotMatched:
			var stored document.Transfer
			var found bool
			if stored, found, err = c.readOnce(ctx, t.ID); err == nil && found {
				var judged bool
				if rec, judged, err = c.judge(ctx, stored, t); judged {
					return rec, err
				}
			}
		case protocol.Failed:
			err = aboutTransfer(t.ID, fmt.Errorf("it could not be stored: %w", asUnauthorized(err)))
			return Record{}, c.early(t.ID, tries.err(err))
		case protocol.Unknown, protocol.NotSent:
		}
		tries.record(try{result: perhapsOwn(result), err: err})
	}
	return Record{}, c.early(t.ID, aboutTransfer(t.ID, tries.err(nil)))
}

// prepared does what comes before a planned transfer is stored.
// An error means that nothing was stored.
func (c *Coordinator) prepared(ctx context.Context, t *document.Transfer) error {
	if err := c.readyFor(ctx, t); err != nil {
		return c.early(t.ID, err)
	}
	return c.early(t.ID, c.fixAmount(ctx, t))
}

// schedule sets when a worker may begin with a transfer, and how long it waits for funds.
func schedule(t *document.Transfer, req Request) (err error) {
	if t.NotBefore, err = storedTime("NotBefore", req.NotBefore); err != nil {
		return err
	}
	if t.FundsUntil, err = storedTime("AwaitFundsUntil", req.AwaitFundsUntil); err != nil {
		return err
	}
	switch {
	case t.FundsUntil.IsZero():
	case req.AtMost:
		return invalid("AtMost moves what is there, and does not wait: see AwaitFundsUntil")
	case t.FundsUntil.Before(t.NotBefore):
		return invalid("AwaitFundsUntil lies before NotBefore")
	}
	return nil
}

// forNow refuses fields that only Submit accepts.
func (req Request) forNow() error {
	switch {
	case !req.NotBefore.IsZero():
		return invalid("NotBefore is for Submit")
	case !req.AwaitFundsUntil.IsZero():
		return invalid("AwaitFundsUntil is for Submit")
	}
	return nil
}

// storedTime returns a time of a request as it is stored.
// It is never earlier than what was asked for.
func storedTime(what string, asked time.Time) (time.Time, error) {
	if asked.IsZero() {
		return time.Time{}, nil
	}
	stored := roundUp(asked).UTC()
	return stored, checkTime(what, stored)
}

// wakeWorker wakes a worker of this process, if one is asleep.
func (c *Coordinator) wakeWorker() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Wait waits until a transfer is final and answers as Transfer would: with its record,
// and the error that it failed with.
//
// When ctx ends first, or no server can be reached for 30 s, it answers with what it has
// seen.
//
//   - nil, a [RefusedError], ErrCancelled, ErrExpired: the transfer's outcome, which
//     never changes.
//   - ErrUnsettled: it is committed, for good, and was not seen to be final.
//   - ErrInDoubt: it is undecided, or was not seen. Wait again.
//   - ErrTransferNotFound: there certainly is no such transfer.
//   - ErrInvalidRequest: this can't be a transfer's ID.
//   - the error of a context that had ended before the call, ErrClosed, ErrUnauthorized,
//     ErrUnsupportedDeployment: it says nothing about the transfer.
//     Call again, once the cause is gone.
//
// All callers share a few commands and hold no connection, no matter how many wait for
// how many transfers.
// One command reads up to 100 whole transfers, or the states of up to 1,000.
// The pauses between them are in proportion to what that costs the server, and while
// little happens the callers follow one change stream.
// So Wait learns what another process has finished within milliseconds while little
// happens, within some 100 ms if few callers wait, and later if thousands wait for a busy
// server.
func (c *Coordinator) Wait(ctx context.Context, id string) (Record, error) {
	if err := document.CheckID(id); err != nil {
		return Record{}, invalid("transfer: %w", err)
	}
	if err := checkContext(ctx); err != nil {
		return Record{}, err
	}
	if err := c.stopped(ctx); err != nil {
		return Record{}, c.early(id, err)
	}
	switch err := c.readyToRead(ctx); {
	case errors.Is(err, ErrClosed), errors.Is(err, ErrUnsupportedDeployment), lasting(err):
		return Record{}, err
	case err != nil:
		return Record{ID: id}, inDoubt(id, err)
	}
	return c.await(ctx, id)
}

// await waits until a transfer is seen to be final.
func (c *Coordinator) await(ctx context.Context, id string) (Record, error) {
	w := c.lookout.Watch(id)
	defer w.End()
	defer c.engine.HurryUp(id)()
	var (
		last   = Record{ID: id}
		cause  error
		outage engine.Outage
	)
	seen, ended := w.Look(ctx)
	for n := 1; ended == nil; n++ {
		cause = seen.Err
		switch {
		case errors.Is(cause, document.ErrUnreadable):
			return Record{}, aboutTransfer(id, cause)
		case cause == nil && !seen.Found:
			cause = ErrTransferNotFound
			if w.SurelyMissing(ctx) {
				return Record{}, aboutTransfer(id, cause)
			}
		case cause == nil:
			if err := legible(seen.Transfer); err != nil {
				return Record{}, aboutTransfer(id, err)
			}
			if last = recordOf(seen.Transfer); last.State.Final() {
				return asFinal(last)
			}
		}
		if c.tooLong(&outage, cause) {
			break
		}
		seen, ended = c.nextSight(ctx, w, seen, n)
	}
	return asKnown(id, last, withCause(c.stopped(ctx), cause))
}

// nextSight waits until something else is seen.
// Where nothing was seen, and no deciding read has said that there is nothing, it reads
// again after a pause.
func (c *Coordinator) nextSight(
	ctx context.Context, w *lookout.Watch, seen *lookout.Sight, n int,
) (*lookout.Sight, error) {
	pause := newPause(n)
	if seen.Found || seen.Err != nil {
		pause.Stop()
	}
	defer pause.Stop()
	select {
	case <-seen.Replaced:
		return w.Latest(), nil
	case <-pause.C:
		return w.Look(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.engine.Closing():
		return nil, ErrClosed
	}
}
