package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/stages"
)

// job is one execution that the engine drives, and the caller who waits for it.
// Between two rounds it belongs to the goroutine that delivered the last answer.
// Only that goroutine touches the fields without a guard.
type job struct {
	attempt   *mongostore.Attempt
	execution *protocol.Execution
	until     protocol.Progress // of a commit, that the caller waits for
	caller    context.Context

	resumes          bool      // it takes over what has stalled
	submitted        bool      // a worker runs it
	busyWaitUntil    time.Time // until when it may wait for a busy participant
	reachServerUntil time.Time // before it has claimed
	backoff          backoff
	alone            bool          // it shares no command: one may have been refused because of it
	failedWrites     map[int]error // the latest of each participant
	missingRight     *missingRight
	evidence         *mongostore.Evidence // of its refusal
	callerKnows      bool                 // its caller knows of the commit
	deferred         bool                 // and what is left to be done may wait
	waitlist         *waitlist            // of the clusters that it touches
	member           *member              // of the crowd, for its caller; nil: nobody counts it
	hasPlace         bool                 // it has a place of the gate
	waitsForTurn     bool                 // another reversal has reserved its original
	tasks            []task               // of the present round
	trail            *stages.Trail        // of its caller; nil: nobody asks
	tellsStages      bool                 // its stages are logged
	stage            string               // the present one, where somebody asks
	stalled          *stalledTransfer     // that it is about to take over; nil: none
	unanswered       atomic.Int32         // tasks of the present round

	// The engine's lock guards these.
	claimWasLate   bool          // its claim came too late when it was checked last
	givesUp        bool          // its claim waits behind a lock, and the engine is closed
	heldUp         bool          // a command that carried one of its tasks was held up
	claimSentAt    time.Time     // when its first claim was sent
	counted        bool          // it counts as in progress, but while it waits
	waiting        int           // tasks that wait for documents that may be locked
	waitsSince     time.Time     // since when there are any
	waitedFor      time.Duration // how long there were any before
	inProgressThen int           // how many executions were in progress at that time

	replied chan struct{} // closed once result is what the caller waits for

	// The job's lock guards the rest.
	mu           sync.Mutex
	hasReplied   bool   // replied is closed
	result       Result // before the reply: the state at the commit, zero before that
	failure      error
	cause        error // the latest error on the way
	abandoned    bool  // the caller waits no longer
	claimSent    bool  // a claim was handed to the store
	claimed      bool
	claimInDoubt bool
}

func (e *Engine) newJob(ctx context.Context, attempt *mongostore.Attempt, start protocol.Start, until protocol.Progress) *job {
	now := e.now()
	return &job{
		attempt:          attempt,
		execution:        protocol.New(attempt.Start(start), attempt.Participants(), attempt.Transfer.Losers()...),
		until:            until,
		caller:           ctx,
		member:           memberOf(ctx),
		submitted:        ctx.Value(workerKey{}) != nil,
		resumes:          start.Claim == protocol.TakeOver,
		trail:            e.trailOf(ctx),
		tellsStages:      e.log.Enabled(ctx, slog.LevelDebug),
		stalled:          stalledBefore(&attempt.Transfer, start.Claim),
		busyWaitUntil:    now.Add(busyWaitLimit(ctx, now)),
		reachServerUntil: now.Add(AwayLimit),
		tasks:            make([]task, 0, attempt.Participants()),
		replied:          make(chan struct{}),
	}
}

// busyWaitLimit returns how long an execution may wait for a busy participant.
// A refusal has to be stored and returned before ctx ends.
func busyWaitLimit(ctx context.Context, now time.Time) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(maxBusyWait, deadline.Sub(now)/2)
	}
	return maxBusyWait
}

// losesTurn reports whether an execution may no longer wait for another reversal.
// It may as long as somebody waits for it.
// One that goes on with what has stalled leaves it to the next sweep: the one that it
// waits for may have stalled as well, and wait for a slot.
func (e *Engine) losesTurn(j *job, now time.Time) bool {
	if j.attempt.Transfer.Reverses == "" {
		return false
	}
	if j.resumes && !now.Before(j.busyWaitUntil) || e.Closed() {
		return true
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.abandoned
}

// withContextError wraps an error together with the reason why a context ended.
func withContextError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(ctx.Err(), cause) {
		return fmt.Errorf("%w: %w: %w", err, ctx.Err(), cause)
	}
	return fmt.Errorf("%w: %w", err, ctx.Err())
}

// mayBeStored reports whether the execution has claimed its transfer, or may have.
func (j *job) mayBeStored() bool {
	return j.execution.Claimed() || j.execution.ClaimInDoubt()
}

// failureOnGivingUp returns the error of a job that ends before its transfer has.
func (j *job) failureOnGivingUp() error {
	if j.mayBeStored() {
		return ErrUnfinished
	}
	return ErrNothingSent
}

// abandon records that the caller waits no longer.
// It reports whether a claim was sent; if not, none will be.
func (j *job) abandon() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.abandoned = true
	return j.claimSent
}

// mayStillClaim reports whether a claim may be sent, and records that it is.
// It may not if the caller left before any claim was sent.
func (j *job) mayStillClaim() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.isWanted() {
		return false
	}
	j.claimSent, j.cause = true, nil // what was in the way before is over
	return true
}

// shouldContinue reports whether another round is of use, and records the progress that a
// caller who leaves early gets to see.
// An execution ends if nobody waits for it and it has certainly claimed nothing.
// One whose claim is in doubt continues: its transfer may be stored, and nobody else
// works on it until recovery takes it over.
func (j *job) shouldContinue() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.claimed, j.claimInDoubt = j.execution.Claimed(), j.execution.ClaimInDoubt()
	j.cause = j.attempt.Cause
	if !j.hasReplied && j.result.State == "" && j.isCommitted() {
		j.result = Result{Outcome: protocol.Running, State: protocol.Committed, Transfer: j.attempt.Transfer}
		j.result.Transfer.State = protocol.Committed
	}
	return j.isWanted()
}

// isCommitted reports whether the transfer is committed, by fact or by record, and not
// final yet.
func (j *job) isCommitted() bool {
	x := j.execution
	return x.Progress() != protocol.Undecided && !x.State().Back() && !x.State().Final()
}

// isWanted reports whether a caller waits for the job, or its transfer may be stored.
// The caller holds the job's lock.
func (j *job) isWanted() bool { return j.claimed || j.claimInDoubt || !j.abandoned }

// callerResult returns what Execute returns to its caller.
// One that leaves early sees the commit if it is known to be stored.
func (j *job) callerResult(ctx context.Context) (Result, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case !j.hasReplied:
		result := j.result
		result.Cause = j.cause
		return result, withContextError(ctx, ErrUnfinished)
	case j.failure != nil && ctx.Err() != nil:
		return j.result, withContextError(ctx, j.failure)
	}
	return j.result, j.failure
}

// keepEvidence keeps what was read of the participant that has refused, once one has.
// When what others have prepared is undone, it may be looked at again: that shows nothing
// of the reason.
func (j *job) keepEvidence() {
	refusal := j.execution.Refusal()
	switch {
	case refusal.Reason == 0:
		j.evidence = nil
	case j.evidence == nil:
		evidence := j.attempt.Evidence(refusal.Participant)
		j.evidence = &evidence
	}
}

// reply makes the present state the result and releases the caller, once.
func (j *job) reply(failure error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.hasReplied {
		return
	}
	x := j.execution
	j.hasReplied, j.failure = true, failure
	j.result = Result{
		Outcome: x.Outcome(), State: x.State(), Transfer: j.attempt.Transfer,
		Refusal: x.Refusal(), ClaimInDoubt: x.ClaimInDoubt(), Cause: j.attempt.Cause,
	}
	if j.isCommitted() {
		j.result.State, j.result.Transfer.State = protocol.Committed, protocol.Committed
	}
	if reason, stuck := j.stuckReason(); stuck {
		j.result.Stuck = reason.Reason()
	}
	if err := x.Err(); err != nil {
		j.result.Cause = err
	}
	if j.evidence != nil {
		j.result.Evidence = *j.evidence
	}
	close(j.replied)
}
