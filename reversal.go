package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/stages"
	"github.com/mongotransfer/transfer/internal/words"
)

// Reversal asks for money to be moved back: all that is left of a transfer, an Amount of
// it, or some Legs, and exactly one of the three.
type Reversal struct {
	// ID is the idempotency key of the reversal, which is a transfer of its own.
	ID string
	// Of is the ID of the transfer that is reversed: the original.
	Of string
	// All takes back what is left, once the reversals that are under way have ended.
	// Defaults to false: Amount or Legs say how much.
	All bool
	// Amount is what is taken back of a transfer between two accounts, and is positive.
	Amount Amount
	// Legs are the movements of the reversal, which sum to zero.
	// An account that was paid has a negative one.
	// Each account is one that the original has moved.
	Legs []Leg
	// Metadata is stored with the reversal and is not part of the payload, as that of a
	// [Request].
	// Defaults to nil: none.
	Metadata map[string]any
}

// Reverse moves money of a transfer back, by a new transfer.
// A transfer can be reversed in parts, any number of times, and together its reversals
// never move more than it has moved, no matter how many callers ask at once.
// Of a hold, what was posted can be taken back.
// A reversal moves money, not effects: those stay as they are.
// It is a transfer, and can be reversed itself, which does not make room for another
// reversal of the original.
//
// Reversals of one transfer take turns.
// One that fits waits for those that are under way, as long as its context lets it.
//
//   - nil: the reversal is in StateSuccess or StateCommitted (see [WithReturnAt]), by
//     this call or before.
//   - ErrAlreadyReversed: nothing is left to be taken back.
//     The record is the original's, and names in ReversedBy the reversal that took the
//     last of it.
//   - ErrReversalExceeds: less is left than was asked for.
//     The record is the original's, and has in Reversed and ReversedLegs what was taken
//     back.
//     The text names the first account whose part is exceeded.
//   - Both leave the ID unused, unless the error is a [RefusedError] as well.
//     Then the reversal was stored before it came too late: its ID stays failed, and the
//     record is its own.
//   - ErrNotReversible: the original is not in StateSuccess, or has moved no money.
//     The record is the original's.
//     Reverse waits for one in StateCommitted, unless that is stuck, until ctx ends, and
//     for one in StatePreparing, which another process may have answered ([AtCommit]),
//     for a second.
//   - ErrTransferNotFound: there is no transfer to reverse.
//     A repeated call for a reversal that is stored returns its outcome all the same,
//     even when [WithRetention] has let the original be removed before it.
//   - another [RefusedError]: the reversal is in StateFail, and nothing moved.
//     It is ErrInsufficientFunds when the money is spent; this ID has that outcome from
//     then on.
//     What it would have taken back is left for another ID: ask again with a new one once
//     the money is there.
//   - ErrInvalidRequest: not exactly one of All, Amount and Legs is given; they name an
//     account whose money the original has not moved, or move money in the original's
//     direction; or the original touched a ledger that this Coordinator was not given.
//     The text says which.
//   - ErrUnsettled, ErrInDoubt, ErrIDConflict and all others: as [Coordinator.Transfer].
//     The context's own error, ErrClosed and that of a server that is away mean that this
//     call has stored nothing; an earlier one with the same ID may have moved the money
//     back.
func (c *Coordinator) Reverse(ctx context.Context, r Reversal) (rec Record, err error) {
	line := c.lineOf(ctx, "reverse", r.ID)
	ctx = line.ctx
	defer func() { line.end(ctx, &rec, err) }()
	if err := c.checkReversal(ctx, r); err != nil {
		return Record{}, err
	}
	turn := c.newTurn(&c.originals, r.Of)
	defer turn.leave()
	if !turn.isFree() {
		if a := c.reverseOutOfTurn(ctx, r); a.done {
			return a.rec, a.err
		}
		c.enter(ctx, r.ID, stages.Wait)
		if err := turn.await(ctx); err != nil {
			return Record{}, c.early(r.ID, aboutTransfer(r.ID, err))
		}
	}
	for n := 1; ; n++ {
		c.enter(ctx, r.ID, stages.Read)
		original, err := c.settled(ctx, r.Of)
		if errors.Is(err, ErrTransferNotFound) {
			return c.reversedBefore(ctx, r, err)
		}
		if err != nil {
			return Record{}, c.early(r.ID, err)
		}
		if a := c.reverse(ctx, r, original); a.done {
			return a.rec, a.err
		}
		if !pausePoll(ctx, n) {
			return recordOf(original), c.early(r.ID, aboutTransfer(r.ID, c.stopped(ctx)))
		}
	}
}

func (c *Coordinator) checkReversal(ctx context.Context, r Reversal) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if err := document.CheckID(r.Of); err != nil {
		return invalid("the transfer to be reversed (Of): %w", err)
	}
	if err := document.CheckID(r.ID); err != nil {
		return invalid("transfer: %w", err)
	}
	if r.Of == r.ID {
		return invalid("the reversal of %s wants an ID of its own", words.Quote(r.Of))
	}
	forms := 0
	for _, given := range []bool{r.All, !r.Amount.IsZero(), len(r.Legs) > 0} {
		if given {
			forms++
		}
	}
	switch {
	case forms != 1:
		return invalid("a reversal has All, an Amount that is not zero, or Legs, and exactly one of them")
	case r.Amount.exact.Sign() < 0:
		return invalid("the amount must be positive")
	case len(r.Legs) > maxLegs:
		return invalid("%d legs are more than %d", len(r.Legs), maxLegs)
	}
	if _, err := encodeMetadata(r.Metadata); err != nil {
		return aboutTransfer(r.ID, err)
	}
	return nil
}

// reverseOutOfTurn answers a reversal that needs no turn: one that is stored, or one for
// which too little is left, whatever becomes of those before it.
func (c *Coordinator) reverseOutOfTurn(ctx context.Context, r Reversal) answer {
	original, err := c.original(ctx, r.Of)
	if err != nil || original.State != protocol.Success || sound(original) != nil {
		return notYet(err)
	}
	left, err := original.Left()
	if err != nil {
		return notYet(err)
	}
	t, err := c.planReversal(r, original.Currency, original.Back(), left)
	if err != nil {
		return notYet(err)
	}
	if fits := t.CompareReversal(left); fits != document.Fits {
		return c.cameTooLate(ctx, t, fits, original, left)
	}
	if _, err := c.stored(ctx, r.ID); err != nil || c.readyFor(ctx, &t) != nil {
		return notYet(err)
	}
	return answerWith(c.follow(ctx, t))
}

// reverse reverses an original as it was just read.
// It is not done while another reversal has reserved the original.
func (c *Coordinator) reverse(ctx context.Context, r Reversal, original document.Transfer) answer {
	if err := legible(original); err != nil {
		return answerWith(Record{}, c.early(r.ID, aboutTransfer(r.Of, err)))
	}
	if original.State != protocol.Success {
		err := fmt.Errorf("%w: it is in state %s", ErrNotReversible, original.State)
		if original.State == protocol.Committed {
			err = fmt.Errorf("%w, and stuck: repair what its record names, and reverse it then", err)
		}
		return answerWith(recordOf(original), aboutTransfer(r.Of, err))
	}
	// Legs that were changed since would be moved back as they are now.
	if err := sound(original); err != nil {
		return answerWith(recordOf(original), c.early(r.ID, aboutTransfer(r.Of, err)))
	}
	left, err := original.Left()
	if err != nil {
		return answerWith(recordOf(original), c.early(r.ID, aboutTransfer(r.Of, err)))
	}
	t, err := c.planReversal(r, original.Currency, original.Back(), left)
	if err != nil {
		return answerWith(recordOf(original), aboutTransfer(r.Of, err))
	}
	// A place that is not known here can't be reached.
	if _, err := c.store.NewAttempt(t, ""); err != nil {
		return answerWith(recordOf(original), invalid("transfer %s: %w", words.Quote(r.Of), err))
	}
	if fits := t.CompareReversal(left); fits != document.Fits {
		return c.cameTooLate(ctx, t, fits, original, left)
	}
	if err := c.readyFor(ctx, &t); err != nil {
		return answerWith(Record{}, c.early(r.ID, err))
	}
	other := original.ReservedByOther(r.ID)
	if other == "" {
		defer c.clearTheWay(t)()
		return answerWith(c.complete(ctx, t, 0))
	}
	if _, err := c.stored(ctx, r.ID); err == nil {
		defer c.clearTheWay(t)()
		return answerWith(c.follow(ctx, t))
	}
	return c.awaitReversal(ctx, original, r.ID, other)
}

// wayPatience is how long a stored reversal waits for its turn before its caller sees to
// the one that is before it.
const wayPatience = time.Second

// longPause makes a pause about a second long.
const longPause = 9

// clearTheWay takes over what is before a stored reversal and has stalled, until it is
// stopped.
//
//  1. A reads an original, which is free.
//  2. B reserves it for a reversal, and dies.
//  3. A stores its own reversal, whose turn would never come.
func (c *Coordinator) clearTheWay(t document.Transfer) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background()) // the stages of the call are its own transfer's
	timer := time.AfterFunc(wayPatience, func() {
		for c.stopped(ctx) == nil {
			original, err := c.original(ctx, t.Reverses)
			if other := original.ReservedByOther(t.ID); err == nil && other != "" {
				_ = c.awaitReversal(ctx, original, t.ID, other)
			}
			if !c.engine.Pause(ctx, longPause) {
				return
			}
		}
	})
	return func() {
		timer.Stop()
		cancel()
	}
}

// planReversal returns the transfer that a reversal asks for.
// The whole is what a reversal of all of the original moves.
// What is left is what one of all that is left moves.
func (c *Coordinator) planReversal(
	r Reversal, currency string, whole, left []document.Leg,
) (t document.Transfer, err error) {
	t = document.Transfer{ID: r.ID, Currency: currency, Reverses: r.Of, Part: !r.All}
	switch {
	case r.All:
		t.PlanAll(whole, left)
	case len(r.Legs) > 0:
		t.Legs, err = c.legsBack(t, r.Legs, whole)
	default:
		t.Legs, err = amountBack(r.Amount.exact, whole)
	}
	if err != nil {
		return t, err
	}
	if t.Metadata, err = encodeMetadata(r.Metadata); err != nil {
		return t, err
	}
	t.Digest = digest(t)
	return t, nil
}

// settled reads the original of a reversal.
// It waits for one that is committed, and takes it over once it has stalled: that one
// succeeds, unless it is stuck.
func (c *Coordinator) settled(ctx context.Context, id string) (original document.Transfer, err error) {
	brief, cancelBrief := context.WithTimeout(ctx, commitPatience)
	defer cancelBrief()
	defer c.engine.HurryUp(id)()
	for n := 1; ; n++ {
		until := ctx
		answered := c.engine.Answered(id) // it may end while it is read
		original, err = c.original(ctx, id)
		switch {
		case err != nil:
			return original, err
		case original.State == protocol.Preparing && !original.Hold && !answered:
			until = brief
		case original.State != protocol.Committed && !answered, standsStill(original):
			return original, nil
		case original.State == protocol.Committed:
			if err := c.resumeStalled(ctx, original); err != nil {
				return original, aboutTransfer(id, fmt.Errorf("it must succeed before it is reversed: %w", err))
			}
		}
		switch {
		case original.State.Final():
			return original, nil
		case pausePoll(until, n):
		case c.stopped(ctx) != nil:
			return original, aboutTransfer(id, c.stopped(ctx))
		default:
			return original, nil
		}
	}
}

// commitPatience is how long a reversal waits for an original that is not stored as
// committed. Its caller may have been answered that it is, by another process.
const commitPatience = time.Second

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
// since the reversal was made.
func (c *Coordinator) reversedBefore(ctx context.Context, r Reversal, missing error) (Record, error) {
	stored, err := c.stored(ctx, r.ID)
	switch {
	case errors.Is(err, ErrTransferNotFound) || err == nil && stored.Reverses != r.Of:
		return Record{}, missing
	case err != nil:
		return Record{}, c.early(r.ID, err)
	}
	t, err := c.planReversal(r, stored.Currency, stored.Asked(), nil)
	if errors.Is(err, ErrInvalidRequest) {
		return recordOf(stored), &ConflictError{id: r.ID, Differs: []string{"legs"}}
	}
	if err != nil {
		return recordOf(stored), err
	}
	if _, err := c.store.NewAttempt(t, ""); err != nil {
		return recordOf(stored), invalid("transfer %s: %w", words.Quote(r.Of), err)
	}
	if err := c.readyFor(ctx, &t); err != nil {
		return Record{}, c.early(r.ID, err)
	}
	return c.follow(ctx, t)
}

// amountBack returns the legs that take an amount back.
func amountBack(amount money.Amount, whole []document.Leg) ([]document.Leg, error) {
	switch {
	case len(whole) != 2:
		return nil, invalid("it moved %d accounts: an Amount is for two, so give Legs", len(whole))
	case amount.Places() > money.MaxPlaces:
		return nil, invalid("the amount has more than %d digits behind the point", money.MaxPlaces)
	}
	back := make([]document.Leg, len(whole))
	for i, leg := range whole {
		if leg.Amount.Kind() != amount.Kind() {
			return nil, invalid("a transfer moves whole units or decimals, and its reversals the same")
		}
		if leg.Amount.Sign() < 0 {
			leg.Amount = amount.Neg()
		} else {
			leg.Amount = amount
		}
		back[i] = leg
	}
	return back, nil
}

// legsBack returns the legs of a reversal by legs.
// One that names no currency has that in which the original has moved the account.
func (c *Coordinator) legsBack(t document.Transfer, legs []Leg, whole []document.Leg) ([]document.Leg, error) {
	legs = slices.Clone(legs)
	for i, leg := range legs {
		account := document.IDCodec(c.settings.ids).Canonical(leg.Account)
		moved := document.Leg{Ledger: leg.Ledger, Account: account}.On(whole)
		switch {
		case moved == nil:
			return nil, invalid("it did not move account %s", words.Quote(leg.Account))
		case leg.Currency == "":
			legs[i].Currency = t.CurrencyOf(*moved)
		case leg.Currency != t.CurrencyOf(*moved):
			return nil, invalid("it moved %s on account %s, and not %s",
				nameCurrency(t.CurrencyOf(*moved)), words.Quote(leg.Account), nameCurrency(leg.Currency))
		}
	}
	back, err := c.net(legs, "", false)
	if err != nil {
		return nil, err
	}
	for i, leg := range back {
		moved := leg.On(whole)
		switch {
		case moved.Amount.Kind() != leg.Amount.Kind():
			return nil, invalid("a transfer moves whole units or decimals, and its reversals the same")
		case moved.Amount.Sign() != leg.Amount.Sign():
			return nil, invalid("the leg of account %s moves the same way as the original: "+
				"who was paid gets a negative one", words.Quote(leg.Account))
		}
		amount := leg.Amount
		back[i] = *moved
		back[i].Amount = amount
	}
	return back, nil
}

// cameTooLate answers a reversal for which too little is left.
// One that is stored keeps its outcome.
func (c *Coordinator) cameTooLate(
	ctx context.Context, t document.Transfer, fits document.Comparison, original document.Transfer, left []document.Leg,
) answer {
	switch _, err := c.stored(ctx, t.ID); {
	case err == nil, errors.Is(err, document.ErrUnreadable):
		if err := c.readyFor(ctx, &t); err != nil {
			return answerWith(Record{}, c.early(t.ID, err))
		}
		return answerWith(c.follow(ctx, t))
	case !errors.Is(err, ErrTransferNotFound):
		return answerWith(Record{}, c.early(t.ID, err))
	}
	rec := recordOf(original)
	err := ErrReversalExceeds
	switch {
	case len(original.Legs) == 0:
		err = fmt.Errorf("%w: it has moved no money", ErrNotReversible)
	case fits == document.Nothing:
		err = fmt.Errorf("%w, by %s", ErrAlreadyReversed, words.Quote(rec.ReversedBy))
	default:
		if over := document.Exceeding(t.Legs, left); over != nil {
			err = fmt.Errorf("%w on %s", err, document.Address{Name: over.Ledger}.NameOf(over.Account))
		}
	}
	return answerWith(rec, aboutTransfer(original.ID, err))
}

// awaitReversal has the transfer that has reserved an original come to its end, and is
// never done unless that one can't be what it should be.
func (c *Coordinator) awaitReversal(ctx context.Context, original document.Transfer, own, id string) answer {
	defer c.engine.HurryUp(id)()
	other, err := c.stored(ctx, id)
	switch {
	case err == nil && !other.State.Final():
		if err := c.resumeStalled(ctx, other); err != nil {
			return answerWith(recordOf(original), c.early(own, err))
		}
		return notYet(nil)
	case err != nil && !errors.Is(err, ErrTransferNotFound) && !errors.Is(err, document.ErrUnreadable):
		return notYet(err)
	}
	// It may have ended since the original was read.
	latest, err := c.storedBy(ctx, original.ID, c.queries.ReadTransferLinearizable)
	if err != nil || latest.ReservedByOther("") != id {
		return notYet(err)
	}
	err = fmt.Errorf("%w: it has a marker of transfer %s, which is not under way: see Audit", ErrNotReversible, words.Quote(id))
	return answerWith(recordOf(latest), aboutTransfer(original.ID, err))
}

// resumeStalled takes a transfer over that a caller waits for, if it has stalled.
// Its error says that a right is missing, without which waiting doesn't help.
func (c *Coordinator) resumeStalled(ctx context.Context, stored document.Transfer) error {
	_, start, due := c.nextStart(ctx, stored, true, stored)
	if !due || stored.State == protocol.Initiated {
		return nil
	}
	a := c.execute(ctx, stored, terms{start: start, reason: reasonOf(start)})
	var missing *UnauthorizedError
	if errors.As(asUnauthorized(a.err), &missing) {
		return missing // and not what it says of the other transfer
	}
	return nil
}

// replan returns a reversal of all that is left with what is left now.
// It was stored when more was left.
func (c *Coordinator) replan(ctx context.Context, t document.Transfer) (document.Transfer, error) {
	original, err := c.original(ctx, t.Reverses)
	if err != nil {
		return t, err
	}
	left, err := original.Left()
	if err != nil {
		return t, err
	}
	t.PlanAll(original.Back(), left)
	return t, nil
}
