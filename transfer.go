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
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// Request asks for a transfer: From, To and Amount for the common case, or Legs, not both.
type Request struct {
	// ID is the idempotency key, 1 to 255 bytes of UTF-8. The same ID with the same payload has the same outcome,
	// however often and from wherever it is asked for.
	ID string
	// From is debited with Amount, which is positive, and To is credited with it. Both are in the default ledger.
	From, To string
	Amount   Amount
	// Legs are signed movements that sum to zero.
	Legs []Leg
	// AtMost moves what is there, up to Amount: what From can spend is read before anything is stored, and that is what the transfer
	// moves. Where there is less by the time that it is prepared, it is refused with ErrInsufficientFunds. Where there is nothing it asks for
	// all of Amount, and is refused unless that has come in by then.
	AtMost bool
	// Effects are documents that change in step with the money: none of them before it moves, all of them once it does.
	Effects []Effect
	// Currency must be the currency of every account in the transfer; "" if they have none.
	Currency string
	// NotBefore lets workers wait until then, by the server's clock; Submit only. It is rounded up to the millisecond, and is not part of
	// the payload: of two with the same ID the first one's counts.
	NotBefore time.Time
	// Metadata is stored with the transfer and is not part of the payload. It is read back as the driver decodes it: a whole number as int32
	// or int64, a time as bson.DateTime, a map in it as bson.D, a list as bson.A. [Query].Metadata finds transfers by it.
	Metadata map[string]any
}

// Leg is one movement: a negative amount takes, a positive one gives.
type Leg struct {
	Ledger  string // "" is the default one
	Account string
	Amount  Amount
}

// Transfer moves money and answers with the final record.
//
//   - nil: the transfer is in StateSuccess (or StateCommitted, see [WithReturnAt]).
//   - ErrUnsettled: it is in StateCommitted, for good, and not all of it is in place: an
//     account is gone or can't be written, and Record.Stuck says why; or, with Stuck nil,
//     the context ended, or the coordinator was closed, after the commit. It goes on in
//     the background, or by recovery.
//   - a [RefusedError]: it is in StateFail, and nothing moved.
//   - ErrCancelled: somebody else rolled it back; it is in StateFail, and nothing moved.
//   - ErrInDoubt: the context ended, or the coordinator was closed, after something was
//     sent, and before the commit was known. What has claimed goes on in the background
//     until Close; recovery finishes what Close left. Ask again with the same ID.
//   - the context's own error, a server that can't be reached for 30 s,
//     ErrInvalidRequest, ErrClosed, ErrUnauthorized, ErrUnsupportedDeployment: this call
//     has stored nothing. An earlier one with the same ID keeps its outcome, a success
//     too: don't conclude that nothing moved, and ask again with the same ID.
//   - ErrIDConflict: the ID was used with another payload; the record is the first one's.
//
// A refused transfer that can't be undone, since an account that it has debited can't be
// written, is in StateRollback, and Record.Stuck says why: it has failed for good, and
// that account's money is reserved until the cause is repaired.
//
// A second caller with the same ID waits for the first one's outcome. Once that one has
// shown no sign of life for the stall threshold, the waiting call takes the transfer
// over.
func (c *Coordinator) Transfer(ctx context.Context, req Request) (rec Record, err error) {
	line := c.lineOf(ctx, "transfer", req.ID)
	defer func() { line.end(ctx, &rec, err) }()
	t, err := c.plan(req)
	if err != nil {
		return Record{}, err
	}
	if !req.NotBefore.IsZero() {
		return Record{}, invalid("NotBefore is for Submit")
	}
	if err := c.prepared(ctx, &t); err != nil {
		return Record{}, err
	}
	return c.complete(ctx, t, 0)
}

// TransferMany moves money many times: each request is a transfer of its own, as if by [Coordinator.Transfer], independent of the
// others and in no order among them. The n-th record and error answer the n-th request.
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
// record. Asked again, it answers with the record as it stands then; if the transfer has
// failed, with the error that it failed with. A Transfer with the same ID and payload
// runs it at once, also before its NotBefore; Cancel takes it back. The other errors are
// as those of [Coordinator.Transfer]: the context's own, ErrClosed and that of a server
// that is away say that this call has stored nothing, and nothing of an earlier one.
func (c *Coordinator) Submit(ctx context.Context, req Request) (rec Record, err error) {
	line := c.lineOf(ctx, "submit", req.ID)
	defer func() { line.end(ctx, &rec, err) }()
	t, err := c.plan(req)
	if err != nil {
		return Record{}, err
	}
	if t.NotBefore, err = startOf(req.NotBefore); err != nil {
		return Record{}, err
	}
	if err := c.prepared(ctx, &t); err != nil {
		return Record{}, err
	}
	var try retry
	for try.next(ctx, c) {
		result, err := c.store.InsertInitiated(ctx, &t)
		switch result {
		case protocol.Applied:
			c.wakeWorker()
			return recordOf(t), nil
		case protocol.NotMatched:
			var stored document.Transfer
			var found bool
			if stored, found, err = c.look(ctx, t.ID); err == nil && found {
				return c.judge(stored, t)
			}
		case protocol.Failed:
			return Record{}, c.early(t.ID, try.err(aboutTransfer(t.ID, fmt.Errorf("it could not be stored: %w", named(err)))))
		case protocol.Unknown, protocol.NotSent:
		}
		try.record(result, err)
	}
	return Record{}, c.early(t.ID, aboutTransfer(t.ID, try.err(nil)))
}

// prepared does what comes before a planned transfer is stored. With an error nothing
// was.
func (c *Coordinator) prepared(ctx context.Context, t *document.Transfer) error {
	if err := c.readyFor(ctx, t); err != nil {
		return c.early(t.ID, err)
	}
	return c.early(t.ID, c.fixAmount(ctx, t))
}

// startOf returns the time from which a worker may begin, as it is stored: never earlier than what was asked for.
func startOf(notBefore time.Time) (time.Time, error) {
	if notBefore.IsZero() {
		return time.Time{}, nil
	}
	if err := checkTime("NotBefore", notBefore); err != nil {
		return time.Time{}, err
	}
	return notBefore.Add(time.Millisecond - 1).Truncate(time.Millisecond).UTC(), nil
}

// wakeWorker tells a worker of this process, if there is one that sleeps.
func (c *Coordinator) wakeWorker() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// complete runs a planned transfer, or finds out what became of the one that has its ID. A hold is held for as long as holdFor says.
// Who finds others of this process at it follows them: a second execution would only find the ID taken.
func (c *Coordinator) complete(ctx context.Context, planned document.Transfer, holdFor time.Duration) (Record, error) {
	f := c.newFollower(planned, holdFor)
	defer f.leave()
	if f.turnIsFree() {
		rec, told, err := c.execute(ctx, attempt{transfer: planned, start: first(planned), holdFor: holdFor})
		if told {
			return rec, err
		}
	}
	return f.follow(ctx)
}

// first returns the start of the execution that stores a transfer.
func first(t document.Transfer) protocol.Start {
	return protocol.Start{Claim: protocol.Insert, WaitWhileBusy: true, Hold: t.Hold}
}

// attempt is one execution to be driven.
type attempt struct {
	transfer document.Transfer
	start    protocol.Start
	reason   string        // of a roll-back that is no participant's fault
	holdFor  time.Duration // from when a hold is stored
	post     *money.Amount // what is posted of a hold; nil: all of it
}

// execute drives one execution. It reports false where the execution did not get the transfer, or lost it to another one: then nothing
// is told yet.
func (c *Coordinator) execute(ctx context.Context, a attempt) (Record, bool, error) {
	id := a.transfer.ID
	w, err := c.newWork(ctx, a.transfer, a.reason)
	if err != nil {
		return Record{}, true, aboutTransfer(id, err)
	}
	w.HoldFor, w.Post = a.holdFor, a.post
	if c.barred(ctx, a.transfer) {
		w.Threshold = 0
	}
	result, err := c.engine.Execute(ctx, w, a.start, protocol.State(c.settings.returnAt))
	switch {
	case errors.Is(err, engine.ErrUnfinished) && result.State == protocol.Committed:
		result.Transfer.State = result.State
		rec, err := asKnown(id, recordOf(result.Transfer), withCause(err, result.Cause))
		return rec, true, err
	case errors.Is(err, engine.ErrUnfinished):
		return Record{}, true, inDoubt(id, withCause(err, result.Cause))
	case errors.Is(err, engine.ErrRefused):
		rec, err := asKnown(id, recordOf(result.Transfer), result.Cause)
		return rec, true, err
	case refused(result.Cause) && errors.Is(err, engine.ErrNothingSent):
		return Record{}, true, aboutTransfer(id, named(result.Cause))
	case errors.Is(err, engine.ErrNothingSent):
		return Record{}, true, c.early(id, aboutTransfer(id, withCause(err, result.Cause)))
	case err != nil:
		return Record{}, true, c.early(id, aboutTransfer(id, ErrClosed))
	}
	return c.answerOf(result)
}

// answerOf turns the result of an execution into an answer.
func (c *Coordinator) answerOf(result engine.Result) (Record, bool, error) {
	rec := recordOf(result.Transfer)
	switch result.Outcome {
	case protocol.Running: // in the background; the decision is stored
		if rec.State != StateCommitted {
			return rec, true, inDoubt(rec.ID, result.Cause)
		}
		return rec, true, nil
	case protocol.Held:
		return rec, true, nil
	case protocol.Finished:
		return rec, rec.State.Final(), refusal(rec, result)
	case protocol.Unclaimable:
		if result.ClaimInDoubt {
			return Record{}, true, inDoubt(rec.ID, result.Cause)
		}
		return Record{}, true, c.early(rec.ID, aboutTransfer(rec.ID, fmt.Errorf("it could not be stored: %w", named(result.Cause))))
	case protocol.Gone:
		return Record{}, true, inDoubt(rec.ID, errors.New("its document was removed while it was under way"))
	case protocol.Stuck:
		rec, err := stuck(rec, result)
		return rec, true, err
	case protocol.NotClaimed, protocol.Overtaken:
	}
	return Record{}, false, nil
}

// refusal returns the error of a final transfer.
func refusal(rec Record, result engine.Result) error {
	if rec.State != StateFail {
		return nil
	}
	return firstRefusal(rec, result)
}

// firstRefusal returns the error of a transfer that has failed. The execution that was
// refused knows what it saw.
func firstRefusal(rec Record, result engine.Result) error {
	err := failureError(rec)
	var refused *RefusedError
	if !errors.As(err, &refused) || rec.Failure.Code != result.Refusal.Reason.String() {
		return err // it was not this execution that was refused
	}
	refused.why = explained(result.Transfer, result.Refusal, result.Evidence)
	if result.SeenKnown {
		refused.Balance = &Amount{result.Seen}
	}
	return err
}

// stuck answers for a transfer that can't be finished. Of one that makes no sense nothing
// is known.
func stuck(rec Record, result engine.Result) (Record, error) {
	if result.Stuck.Code == "" {
		return rec, inDoubt(rec.ID, result.Cause)
	}
	rec.State, rec.Stuck = State(result.State), failureOf(&result.Stuck)
	if rec.State == StateRollback {
		return rec, withCause(firstRefusal(rec, result), obstacle(rec))
	}
	return asKnown(rec.ID, rec, nil)
}
