package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// maxPatience bounds how long an execution waits, before it claims, for a participant
// with too many transfers in flight.
const maxPatience = 5 * time.Second

// AwayLimit is how long a call tries to reach a server that is away, before anything was
// sent that may have been stored. One that has claimed goes on for as long as it takes.
const AwayLimit = 30 * time.Second

// ErrNothingSent is returned when the caller's context ended, or the server was away for
// AwayLimit, before a claim was sent.
var ErrNothingSent = errors.New("nothing was sent")

// ErrUnfinished is returned when the caller's context ended, or the engine was closed, or
// the server went away, while the execution was under way.
var ErrUnfinished = errors.New("still under way")

// ErrRefused is returned when the server has refused a command of an execution that has
// claimed, or may have, because a right is missing. It has stopped where it was: recovery
// goes on with the transfer.
var ErrRefused = errors.New("stopped for want of a right")

// errTooLate is the cause where a claim was not sent because its caller would have left
// before the end.
func errTooLate() error { return errors.New("too much is under way for the time that is left") }

// run is one execution under way. Between two rounds it belongs to whoever has delivered
// the last answer; nobody else touches its execution, its work and its pause.
type run struct {
	work      *mongostore.Attempt
	execution *protocol.Execution
	until     protocol.State  // Committed: the caller waits for the decision only
	values    context.Context // the caller's, without its end
	patience  time.Time       // until when it may wait for a busy participant
	away      time.Time       // until when it may try to reach a server before it has claimed
	pause     backoff
	alone     bool          // its requests share no command with others: one of its own may have been refused as a whole
	refused   map[int]error // by participant, the latest write that the server has refused
	barred    *barrier      // a right is missing
	caller    context.Context
	line      *line        // of the clusters that it touches
	admitted  bool         // it has a place among those that are under way
	wasLate   bool         // its claim came too late when it was asked for last; guarded by the engine's lock
	heldUp    bool         // a command with it was held up; guarded by the engine's lock
	tasks     []task       // of the present round
	open      atomic.Int32 // of these, those that are not answered

	answered  chan struct{} // closed once result is what the caller waits for
	mu        sync.Mutex
	done      bool // answered is closed
	result    Result
	failure   error
	cause     error // the latest error on the way
	abandoned bool  // the caller waits no longer
	sent      bool  // a claim was handed to the store
	claimed   bool
	doubtful  bool      // a claim may be stored
	committed Result    // how it stood when it had committed; the zero value before
	begun     time.Time // when a claim was sent first; guarded by the engine's lock
	beside    int       // how many were under way then
}

// Execute drives one execution of a work to its end and returns its result; with until
// Committed, to its decision, and the rest in the background. While too many are under
// way it waits for a place. When ctx ends first, an execution that has claimed goes on in
// the background, and the error is ErrUnfinished; one that has not sent its claim stops,
// and the error is ErrNothingSent. Both wrap the context's cause.
func (e *Engine) Execute(
	ctx context.Context, w *mongostore.Attempt, start protocol.Start, until protocol.State,
) (Result, error) {
	defer e.await(w.Transfer.ID)()
	if ctx.Err() != nil {
		return Result{}, ended(ctx, ErrNothingSent)
	}
	l := e.gate.line(e.store.ClustersOf(w))
	if err := e.gate.enter(ctx, e.closing, l); err != nil {
		return Result{}, err
	}
	if err := e.begin(w.Transfer.ID); err != nil {
		e.gate.leave(l)
		return Result{}, err
	}
	r := e.newRun(ctx, w, start, until)
	r.line, r.admitted = l, true
	e.step(r)
	e.startAll(nil)
	select {
	case <-r.answered:
	case <-ctx.Done():
		if !r.abandon() {
			result, _ := r.outcome(ctx)
			return result, ended(ctx, ErrNothingSent)
		}
	}
	return r.outcome(ctx)
}

func (e *Engine) newRun(ctx context.Context, w *mongostore.Attempt, start protocol.Start, until protocol.State) *run {
	now := e.now()
	return &run{
		work:      w,
		execution: protocol.New(w.Start(start), w.Participants()),
		until:     until,
		values:    context.WithoutCancel(ctx),
		patience:  now.Add(patience(ctx, now)),
		away:      now.Add(AwayLimit),
		caller:    ctx,
		tasks:     make([]task, 0, w.Participants()),
		answered:  make(chan struct{}),
	}
}

// leave gives a run's place to the next one, if it has one.
func (e *Engine) leave(r *run) {
	if r.admitted {
		r.admitted = false
		e.gate.leave(r.line)
	}
}

// ended says that a context's end is the cause of an error.
func ended(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(ctx.Err(), cause) {
		return fmt.Errorf("%w: %w: %w", err, ctx.Err(), cause)
	}
	return fmt.Errorf("%w: %w", err, ctx.Err())
}

// patience returns how long the execution may wait for a busy participant: a refusal has
// to be stored and told before ctx ends.
func patience(ctx context.Context, now time.Time) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(maxPatience, deadline.Sub(now)/2)
	}
	return maxPatience
}

// abandon says that the caller waits no longer. It reports whether a claim was sent: if
// not, none will be.
func (r *run) abandon() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abandoned = true
	return r.sent
}

// send says that a claim is about to be sent. It reports false if the caller has left
// before.
func (r *run) send() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.abandoned && !r.claimed && !r.doubtful {
		return false
	}
	r.sent = true
	return true
}

// mayGoOn reports whether there is a point in another round. An execution that nobody
// waits for, and that has certainly claimed nothing, ends. One whose claim is in doubt
// goes on: its transfer may be stored, and nobody else is at it until recovery comes by.
func (r *run) mayGoOn() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.claimed, r.doubtful, r.cause = r.execution.Claimed(), r.execution.ClaimInDoubt(), r.work.Cause
	if state := r.execution.State(); state == protocol.Committed && r.committed.State != state {
		r.committed = Result{Outcome: protocol.Running, State: state, Transfer: r.work.Transfer}
		r.committed.Transfer.State = state
	}
	return r.claimed || r.doubtful || !r.abandoned
}

// outcome returns what the caller is told. One who leaves early is told of the commit, if
// that is known to be stored.
func (r *run) outcome(ctx context.Context) (Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.done:
		result := r.committed
		result.Cause = r.cause
		return result, ended(ctx, ErrUnfinished)
	case r.failure != nil && ctx.Err() != nil:
		return r.result, ended(ctx, r.failure)
	}
	return r.result, r.failure
}

// step asks an execution what is next and puts it into the queues, or ends the run. The
// caller owns the run.
func (e *Engine) step(r *run) {
	x := r.execution
	for x.Outcome() == protocol.Running {
		now := e.now()
		if !now.Before(r.patience) {
			x.StopWaiting()
		}
		operations, err := x.Next()
		if err != nil || len(operations) == 0 { // it has just ended
			break
		}
		switch {
		case e.base.Err() != nil:
			e.end(r, fmt.Errorf("%w: %w", ErrUnfinished, ErrClosed))
			return
		case !x.Claimed() && now.After(r.away), !r.mayGoOn():
			e.end(r, r.gaveUp())
			return
		}
		if r.until == protocol.Committed && x.State() == protocol.Committed {
			r.answer(nil)
		}
		if wire.Disconnected(r.work.Cause) { // for good: what is stored is for recovery to finish
			e.end(r, r.gaveUp())
			return
		}
		if e.ask(r, operations) {
			return
		}
	}
	e.end(r, nil)
}

// ask answers operations from what is known, where it can, and puts the rest into the
// queues. It reports false if nothing was left.
func (e *Engine) ask(r *run, operations []protocol.Operation) bool {
	r.tasks = r.tasks[:0]
	for _, op := range operations {
		if answer, known := e.store.AnswerFromCache(r.work, op); known {
			r.execution.Observe(op, answer)
			continue
		}
		r.tasks = append(r.tasks, task{
			Call: mongostore.Call{Attempt: r.work, Op: op}, run: r, subject: mongostore.SubjectOf(r.work, op),
		})
	}
	if len(r.tasks) == 0 {
		return false
	}
	r.open.Store(int32(len(r.tasks)))
	e.enqueue(r.tasks)
	return true
}

// conclude hands the answers of a round to the execution and goes on with it, after a
// pause if the round has brought nothing new, or if others were first once too often. To
// one that still waits for a busy participant, "busy" is nothing new.
func (e *Engine) conclude(r *run) {
	now := e.now()
	progress, contended := true, false
	for i := range r.tasks {
		t := &r.tasks[i]
		if t.Cause != nil {
			r.work.Cause = t.Cause
		}
		r.bar(t)
		r.alone = r.alone || t.Alone
		busy := t.Answer.Facts.Found && !t.Answer.Facts.BelowMarkerLimit
		if t.Answer.Result == protocol.Unknown || t.Answer.Result == protocol.NotSent || busy && now.Before(r.patience) {
			progress = false
			e.traceRepeat(r.values, &t.Call)
		}
		contended = contended || t.Answer.Result == protocol.NotMatched
		if t.Answer.Result == protocol.Failed {
			r.refuses(t.Op.Participant, t.Cause)
		}
		r.execution.Observe(t.Op, t.Answer)
	}
	if r.barred != nil && r.execution.Outcome() == protocol.Running {
		e.stop(r)
		return
	}
	wait := r.pause.next(progress, contended, r.patience.Sub(now))
	if wait == 0 {
		e.step(r)
		return
	}
	go e.resume(r, wait)
}

// resume goes on with a run after a pause.
func (e *Engine) resume(r *run, wait time.Duration) {
	e.letPass(r)
	sleep(e.base, wait)
	if !r.admitted {
		if err := e.gate.enter(r.caller, e.closing, r.line); err != nil {
			e.end(r, err)
			return
		}
		r.admitted = true
	}
	e.step(r)
	e.startAll(nil)
}

// letPass gives the place of a run that pauses to another one, for as long as nothing of
// it can be stored. One that has claimed, or may have, keeps its place: what is stored
// and unfinished is bounded.
func (e *Engine) letPass(r *run) {
	r.mu.Lock()
	sent := r.sent
	r.mu.Unlock()
	if !sent {
		e.leave(r)
	}
}

// gaveUp returns the error of an execution that ends before its transfer has.
func (r *run) gaveUp() error {
	if r.execution.Claimed() || r.execution.ClaimInDoubt() {
		return ErrUnfinished
	}
	return ErrNothingSent
}

// end ends a run. One that is stuck ends when it is stored why.
func (e *Engine) end(r *run, failure error) {
	if o, stuck := r.obstacle(); stuck && (failure == nil || r.barred != nil) {
		e.leave(r)
		e.note(r, o)
		return
	}
	r.answer(failure)
	e.leave(r)
	e.finish(r)
}

// answer makes the present state the result and lets the caller go, once.
func (r *run) answer(failure error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return
	}
	x := r.execution
	r.done, r.failure = true, failure
	r.result = Result{
		Outcome: x.Outcome(), State: x.State(), Transfer: r.work.Transfer, Refusal: x.Refusal(), ClaimInDoubt: x.ClaimInDoubt(),
		Cause: r.work.Cause,
	}
	if o, stuck := r.obstacle(); stuck {
		r.result.Stuck = o.Reason()
	}
	if err := x.Err(); err != nil {
		r.result.Cause = err
	}
	r.result.Seen, r.result.SeenKnown = r.work.Seen(x.Refusal().Participant)
	r.result.Evidence = r.work.Evidence(x.Refusal().Participant)
	close(r.answered)
}
