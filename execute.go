package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/liveness"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/words"
)

// terms say how one execution of a transfer goes.
type terms struct {
	start   protocol.Start
	reason  string        // stored with a roll-back that no participant has caused
	holdFor time.Duration // how long a hold lasts, from when it is stored
	post    *money.Amount // what is posted of a hold; nil: all of it
}

// answer is what a call returns about a transfer.
type answer struct {
	rec  Record
	err  error
	done bool // false: nothing can be returned yet, and err is why, if that is known
}

// answerWith answers with a record and an error.
func answerWith(rec Record, err error) answer { return answer{rec, err, true} }

// notYet says that nothing can be returned yet, and why.
func notYet(err error) answer { return answer{err: err} }

// complete runs a planned transfer, or finds out what became of the one that has its ID.
// A hold lasts as long as holdFor says.
//
// A caller that finds others of this process working on the transfer follows them: a
// second execution would only find the ID taken.
func (c *Coordinator) complete(ctx context.Context, planned document.Transfer, holdFor time.Duration) (Record, error) {
	joined, served, err := c.engine.Join(ctx, planned)
	if err != nil {
		return Record{}, c.early(planned.ID, aboutTransfer(planned.ID, err))
	}
	f := c.newFollower(planned, holdFor)
	defer f.turn.leave()
	if f.turn.isFree() {
		a := c.execute(joined, planned, terms{start: first(planned), holdFor: holdFor})
		served()
		if a.done {
			return a.rec, a.err
		}
	} else {
		served()
	}
	return f.follow(ctx)
}

// first returns the start of the execution that stores a transfer.
func first(t document.Transfer) protocol.Start {
	return protocol.Start{Claim: protocol.Insert, WaitWhileBusy: true, Hold: t.Hold}
}

// execute drives one execution.
// Its answer is not done where the execution did not get the transfer, or lost it to
// another one.
func (c *Coordinator) execute(ctx context.Context, t document.Transfer, how terms) answer {
	attempt, err := c.newAttempt(ctx, t, how.reason)
	if err != nil {
		return answerWith(Record{}, aboutTransfer(t.ID, err))
	}
	attempt.HoldFor, attempt.Post = how.holdFor, how.post
	if c.givenUp(ctx, t) {
		attempt.Threshold = 0
	}
	result, err := c.engine.Execute(ctx, attempt, how.start, c.settings.returnAt.progress())
	if err == nil && result.Outcome == protocol.Outdated {
		if t, err = c.replan(ctx, result.Transfer); err != nil {
			return answerWith(recordOf(result.Transfer), inDoubt(t.ID, err))
		}
		a := c.execute(ctx, t, terms{start: protocol.Start{Claim: protocol.Replan}, reason: how.reason})
		return asStored(recordOf(result.Transfer), a)
	}
	switch {
	case errors.Is(err, engine.ErrUnfinished) && result.State == protocol.Committed:
		result.Transfer.State = result.State
		return answerWith(asKnown(t.ID, recordOf(result.Transfer), withCause(err, result.Cause)))
	case errors.Is(err, engine.ErrUnfinished):
		return answerWith(Record{}, inDoubt(t.ID, withCause(err, result.Cause)))
	case errors.Is(err, engine.ErrDenied):
		return answerWith(asKnown(t.ID, recordOf(result.Transfer), result.Cause))
	case denied(result.Cause) && errors.Is(err, engine.ErrNothingSent):
		return answerWith(Record{}, c.early(t.ID, aboutTransfer(t.ID, asUnauthorized(result.Cause))))
	case errors.Is(err, engine.ErrNothingSent):
		return answerWith(Record{}, c.early(t.ID, aboutTransfer(t.ID, withCause(err, result.Cause))))
	case err != nil: // ErrClosed
		return answerWith(Record{}, c.early(t.ID, aboutTransfer(t.ID, err)))
	}
	return c.answerOf(result)
}

// answerOf turns the result of an execution into an answer.
func (c *Coordinator) answerOf(result engine.Result) answer {
	rec := recordOf(result.Transfer)
	switch result.Outcome {
	case protocol.Running: // in the background; it is committed, by fact or by record
		if rec.State != StateCommitted {
			return answerWith(rec, inDoubt(rec.ID, result.Cause))
		}
		rec.Stuck = nil // what was in the way of an earlier try is no longer
		return answerWith(rec, nil)
	case protocol.Held:
		return answerWith(rec, nil)
	case protocol.Finished:
		if rec.State == StateFail {
			return answerWith(rec, c.firstRefusal(rec, result))
		}
		return answer{rec: rec, done: rec.State.Final()}
	case protocol.Unclaimable:
		if result.ClaimInDoubt {
			return answerWith(Record{}, inDoubt(rec.ID, result.Cause))
		}
		err := fmt.Errorf("it could not be stored: %w", asUnauthorized(result.Cause))
		return answerWith(Record{}, c.early(rec.ID, aboutTransfer(rec.ID, err)))
	case protocol.Gone:
		return answerWith(Record{}, inDoubt(rec.ID, errors.New("its document was removed while it was under way")))
	case protocol.Stuck:
		return answerWith(c.stuck(rec, result))
	case protocol.Postponed:
		if c.engine.Closed() {
			return answerWith(rec, inDoubt(rec.ID, ErrClosed))
		}
	case protocol.NotClaimed, protocol.Overtaken, protocol.Outdated:
	}
	return notYet(nil)
}

// firstRefusal returns the error of a transfer that has failed.
// The execution that was refused knows what it has seen.
func (c *Coordinator) firstRefusal(rec Record, result engine.Result) error {
	err := failureError(rec)
	var refused *RefusedError
	if !errors.As(err, &refused) || rec.Failure.Code != result.Refusal.Reason.String() {
		return err // it was not this execution that was refused
	}
	refused.why = c.explained(result.Transfer, result.Refusal, result.Evidence)
	if result.Evidence.Balance != nil {
		refused.Balance = &Amount{*result.Evidence.Balance}
	}
	return err
}

// stuck answers for a transfer that can't be finished.
// About one that makes no sense nothing is known.
func (c *Coordinator) stuck(rec Record, result engine.Result) (Record, error) {
	if result.Stuck.Code == "" {
		return rec, inDoubt(rec.ID, result.Cause)
	}
	rec.State, rec.Stuck = State(result.State), failureOf(&result.Stuck)
	if rec.State == StateRollback {
		return rec, withCause(c.firstRefusal(rec, result), obstacle(rec))
	}
	return asKnown(rec.ID, rec, nil)
}

// errAway is returned where a server that a transfer needs has not answered yet whether
// it is fit.
var errAway = errors.New("a server can't be reached")

// newAttempt prepares an execution of a transfer, under an owner of its own.
// It does not take the process's: two executions of one process must not take each
// other's decisions for their own.
//
// A stored transfer whose legs are not those of its digest is left alone.
// Legs that were lost or changed since would make or lose money, and a digest of a later
// version may stand for what this one doesn't know.
func (c *Coordinator) newAttempt(ctx context.Context, t document.Transfer, reason string) (*mongostore.Attempt, error) {
	if err := sound(t); err != nil {
		return nil, err
	}
	attempt, err := c.store.NewAttempt(t, c.newOwner())
	if err != nil {
		return nil, err
	}
	if err := c.connect(ctx, &t); err != nil {
		return nil, err
	}
	c.pulse.Announce(ctx)
	attempt.Threshold = c.settings.stallThreshold
	attempt.Describe = func(refusal protocol.Refusal) string {
		if err := c.explained(attempt.Transfer, refusal, attempt.Evidence(refusal.Participant)); err != nil {
			return err.Error()
		}
		return reason
	}
	return attempt, nil
}

// newOwner returns a name that no other execution has.
func (c *Coordinator) newOwner() string { return liveness.NewOwner(c.pulse.Process()) }

// connect makes sure that the servers of a transfer are fit, where that isn't known yet.
func (c *Coordinator) connect(ctx context.Context, t *document.Transfer) error {
	if c.deployment.Connected(t) {
		return nil
	}
	switch err := c.deployment.Connect(ctx, t.Addresses()...); {
	case errors.Is(err, collections.ErrUnsupported), denied(err):
		return asUnauthorized(err)
	case err != nil:
		return fmt.Errorf("%w: %w", errAway, err)
	}
	return nil
}

// sound refuses a stored transfer that was changed since, or that a later version has
// written.
func sound(t document.Transfer) error {
	switch {
	case !genuine(t):
		return fmt.Errorf("%w: what it moves is not what its digest says", document.ErrUnreadable)
	case t.DecidedBefore(): // to go on with it would move the money once more
		return fmt.Errorf("%w: it is %s, and what an earlier decision has stored is there", document.ErrUnreadable, t.State)
	case !t.SoundPlan():
		return fmt.Errorf("%w: what it moves is not what is left of the transfer that it reverses", document.ErrUnreadable)
	case !t.SoundPart():
		return fmt.Errorf("%w: what is posted is no part of what is held", document.ErrUnreadable)
	}
	return nil
}

// genuine reports whether a stored transfer moves what was asked for.
func genuine(t document.Transfer) bool { return t.Digest.Same(digest(t)) && capped(t) }

// unknownState is the error of a stored transfer in a state that this version doesn't
// know.
func unknownState(t document.Transfer) error {
	return fmt.Errorf("%w: its state is %s", document.ErrUnreadable, words.Quote(string(t.State)))
}

// sweepVerb names what a sweep does.
func sweepVerb(start protocol.Start) string {
	if start.RollBack == protocol.Expired {
		return "expire"
	}
	return "recover"
}
