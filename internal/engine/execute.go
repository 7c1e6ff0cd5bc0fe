package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/stages"
	"github.com/mongotransfer/transfer/internal/wire"
)

// maxBusyWait bounds how long an execution waits, before it claims, for a participant
// with too many transfers in flight.
const maxBusyWait = 5 * time.Second

// AwayLimit is how long a call that has claimed nothing tries to reach a server.
// It begins anew when the transfers' server answers: that one is not away.
// An execution that has claimed continues for as long as it takes.
const AwayLimit = 30 * time.Second

// ErrNothingSent is returned when the caller's context ended, or the server was away for
// AwayLimit, before a claim was sent.
var ErrNothingSent = errors.New("nothing was sent")

// ErrUnfinished is returned when the caller's context ended, or the engine was closed, or
// the server went away, while the execution was in progress.
var ErrUnfinished = errors.New("still under way")

// ErrDenied is returned when an execution that has claimed, or may have, lacks a right
// that a command needs.
// The execution has stopped where it was, and recovery continues with its transfer.
var ErrDenied = errors.New("stopped for want of a right")

// errNoTimeLeft is the cause of a claim that was not sent because its caller would have
// left before the end.
func errNoTimeLeft() error { return errors.New("too much is under way for the time that is left") }

// errLocked is the cause of a claim that was not sent because others wait for one of its
// documents already.
func errLocked() error {
	return errors.New("an account or document is locked, as by an open transaction, and others wait for it already")
}

// Execute drives one execution to its end and returns its result.
// With until Decided or Settled it returns when a commit has come as far, and the rest
// happens in the background, a little later, together with that of others.
// Any other end is waited for.
// While too many executions are in progress it waits for a place.
// When ctx ends first, an execution that has claimed continues in the background, and the
// error is ErrUnfinished.
// One that has not sent its claim stops, and the error is ErrNothingSent.
// Both wrap the context's cause.
func (e *Engine) Execute(
	ctx context.Context, attempt *mongostore.Attempt, start protocol.Start, until protocol.Progress,
) (_ Result, err error) {
	begun, id := e.now(), attempt.Transfer.ID
	e.countWaiter(id, 1)
	defer func() { // the attempt may go on
		if others := e.countWaiter(id, -1); err == nil {
			e.onAnswer(e.now().Sub(begun), others)
		}
	}()
	if ctx.Err() != nil {
		return Result{}, withContextError(ctx, ErrNothingSent)
	}
	if trail := e.trailOf(ctx); trail != nil {
		trail.Enter(stages.Wait, e.now())
	}
	w := e.gate.waitlistFor(e.store.ClustersOf(attempt.Transfer))
	if err := e.gate.acquire(ctx, e.closing, w); err != nil {
		return Result{}, err
	}
	if err := e.register(attempt.Transfer.ID); err != nil {
		e.gate.release(w)
		return Result{}, err
	}
	j := e.newJob(ctx, attempt, start, until)
	j.waitlist, j.hasPlace = w, true
	e.advance(j, e.now())
	e.startAllBut(nil)
	select {
	case <-j.replied:
	case <-ctx.Done():
		if !j.abandon() {
			result, _ := j.callerResult(ctx)
			return result, withContextError(ctx, ErrNothingSent)
		}
	}
	return j.callerResult(ctx)
}

// advance asks an execution what is next and queues it, or ends the job.
// The caller owns the job.
func (e *Engine) advance(j *job, now time.Time) {
	x := j.execution
	for x.Outcome() == protocol.Running {
		if !now.Before(j.busyWaitUntil) {
			x.StopWaiting()
		}
		if e.losesTurn(j, now) {
			x.Postpone()
		}
		operations, err := x.Next()
		if err != nil || len(operations) == 0 { // it has just ended
			break
		}
		switch {
		case e.base.Err() != nil:
			e.leave(j, nil, fmt.Errorf("%w: %w", j.failureOnGivingUp(), ErrClosed))
			return
		case j.givesUp:
			e.end(j, fmt.Errorf("%w: %w", ErrNothingSent, ErrClosed))
			return
		case !x.Claimed() && now.After(j.reachServerUntil), !j.shouldContinue():
			e.end(j, j.failureOnGivingUp())
			return
		}
		if x.Progress() >= j.until && j.isCommitted() {
			e.answerCommitted(j)
		}
		if wire.Disconnected(j.attempt.Cause) { // it never comes back
			e.leave(j, j.attempt.Cause, j.failureOnGivingUp())
			return
		}
		if e.enqueueOperations(j, operations, now) {
			return
		}
	}
	e.end(j, nil)
}

// enqueueOperations answers operations from the cache where it can, and queues the
// others.
// It reports false if there are no others.
func (e *Engine) enqueueOperations(j *job, operations []protocol.Operation, now time.Time) bool {
	j.tasks = j.tasks[:0]
	for _, op := range operations {
		if answer, known := e.store.AnswerFromCache(j.attempt, op); known {
			j.execution.Observe(op, answer)
			continue
		}
		j.tasks = append(j.tasks, newTask(j, op))
	}
	if len(j.tasks) == 0 {
		return false
	}
	e.enterStage(j, operations, now)
	j.unanswered.Store(int32(len(j.tasks)))
	e.enqueue(j.tasks)
	return true
}

// endRound hands the answers of a round to the execution and advances it.
// It pauses first if the round brought nothing new, or if others were first too often.
// For an execution that still waits for a busy participant, "busy" is nothing new.
func (e *Engine) endRound(j *job, now time.Time) {
	progress, contended := true, false
	j.waitsForTurn = false
	for i := range j.tasks {
		t := &j.tasks[i]
		j.waitsForTurn = j.waitsForTurn || t.Answer.Facts.Taken
		j.keepCause(t)
		j.noteMissingRight(t)
		j.alone = j.alone || t.Alone
		if waits := e.inTheWay(j, t, now); waits || !t.answered() {
			progress = false
			e.traceRepeat(context.WithoutCancel(j.caller), &t.Call)
		}
		if t.answered() && t.Op.Participant == protocol.NoParticipant {
			j.reachServerUntil = now.Add(AwayLimit)
		}
		contended = contended || t.Answer.Result == protocol.NotMatched
		if t.Answer.Result == protocol.Failed {
			j.recordFailedWrite(t.Op.Participant, t.Cause)
		}
		j.execution.Observe(t.Op, t.Answer)
		e.takeBackClaim(j, t)
		e.reportTakeover(j, t)
	}
	j.keepEvidence()
	if j.missingRight != nil && j.execution.Outcome() == protocol.Running {
		e.stopForMissingRight(j)
		return
	}
	wait := j.backoff.next(progress, contended, j.busyWaitUntil.Sub(now))
	if wait == 0 {
		e.advance(j, now)
		return
	}
	go e.resumeAfter(wait, j)
}

// keepCause keeps the latest error.
// What was before the claim is over once that is stored.
func (j *job) keepCause(t *task) {
	if t.Cause != nil || t.Op.Kind == protocol.Claim && t.Answer.Result == protocol.Applied {
		j.attempt.Cause = t.Cause
	}
}

// inTheWay reports whether an execution waits because of what an answer shows: a
// participant with too many transfers in flight, or an original that another reversal has
// reserved.
// What this engine has deferred there is sent at once.
func (e *Engine) inTheWay(j *job, t *task, now time.Time) bool {
	facts := t.Answer.Facts
	busy := facts.Found && !facts.BelowMarkerLimit
	if busy || facts.Taken {
		e.sendDeferredAbout(t.subject)
	}
	return busy && now.Before(j.busyWaitUntil) || facts.Taken
}

// resumeAfter advances a job after a pause.
func (e *Engine) resumeAfter(pause time.Duration, j *job) {
	defer e.startAllBut(nil)
	e.lendPlace(j)
	e.pause(j, pause)
	if !j.hasPlace && !j.deferred {
		err := e.gate.acquire(j.caller, e.closing, j.waitlist)
		if err != nil && !j.mayBeStored() {
			e.end(j, err)
			return
		}
		j.hasPlace = err == nil // what is stored ends in advance: nobody waits for its turn
	}
	e.advance(j, e.now())
}

// pause waits before the next round of a job. One that the server gave up, because of a
// document that may be locked, waits for that as before.
func (e *Engine) pause(j *job, pause time.Duration) {
	e.mu.Lock()
	waits := j.heldUp
	if waits {
		j.beginWait(e.now())
		e.startOnAllBut(nil) // it makes room for others
	}
	e.mu.Unlock()
	sleep(e.base, nil, pause)
	if waits {
		e.mu.Lock()
		j.endWait(e.now())
		e.mu.Unlock()
	}
}

// lendPlace releases the place of a job that pauses, if none of it can be stored.
// One that has claimed, or may have, keeps its place: the number of transfers that are
// stored and unfinished is bounded.
// A reversal that waits for its turn has prepared nothing, and lends it all the same: the
// one before it may need it.
func (e *Engine) lendPlace(j *job) {
	j.mu.Lock()
	claimSent := j.claimSent
	j.mu.Unlock()
	if !claimSent || j.waitsForTurn {
		e.releasePlace(j)
	}
}

// releasePlace releases a job's place, if it has one.
func (e *Engine) releasePlace(j *job) {
	if j.hasPlace {
		j.hasPlace = false
		e.gate.release(j.waitlist)
	}
}

// end ends a job.
// One that is stuck ends once the reason is stored.
func (e *Engine) end(j *job, failure error) {
	if reason, stuck := j.stuckReason(); stuck && (failure == nil || j.missingRight != nil) {
		e.releasePlace(j)
		e.queueStuckReason(j, reason)
		return
	}
	j.reply(failure)
	e.releasePlace(j)
	e.unregister(j)
}
