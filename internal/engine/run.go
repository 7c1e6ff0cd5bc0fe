package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// maxPatience bounds how long an execution waits, before it claims, for a participant with too many transfers in flight.
const maxPatience = 5 * time.Second

// AwayLimit is how long a call tries to reach a server that is away, before anything was sent that may have been stored. One that has
// claimed goes on for as long as it takes.
const AwayLimit = 30 * time.Second

// ErrNothingSent is returned when the caller's context ended, or the server was away for AwayLimit, before a claim was sent.
var ErrNothingSent = errors.New("nothing was sent")

// ErrUnfinished is returned when the caller's context ended, or the engine was closed, or the server went away, while the execution was
// under way.
var ErrUnfinished = errors.New("still under way")

// run is one execution under way.
type run struct {
	work      *mongostore.Work
	execution *protocol.Execution
	until     protocol.State // Committed: the caller waits for the decision only
	answered  chan struct{}  // closed once result is what the caller waits for

	mu        sync.Mutex
	once      sync.Once
	result    Result
	failure   error
	abandoned bool // the caller waits no longer
	sent      bool // a claim was handed to the store
	claimed   bool
}

// Execute drives one execution of a work to its end and returns its result; with until Committed, to its decision, and the rest in
// the background. When ctx ends first, an execution that has claimed goes on in the background, and the error is ErrUnfinished;
// one that has not sent its claim stops, and the error is ErrNothingSent. Both wrap the context's cause.
func (e *Engine) Execute(
	ctx context.Context, w *mongostore.Work, start protocol.Start, until protocol.State,
) (Result, error) {
	if ctx.Err() != nil {
		return Result{}, ended(ctx, ErrNothingSent)
	}
	if err := e.begin(w.Transfer.ID); err != nil {
		return Result{}, err
	}
	r := &run{
		work:      w,
		execution: protocol.New(start, len(w.Transfer.Legs)),
		until:     until,
		answered:  make(chan struct{}),
	}
	patience := e.patience(ctx)
	// The commands see the caller's values, for tracing, but not its end.
	commands, stop := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(e.base, stop)
	go func() {
		defer e.finish(w.Transfer.ID)
		defer stop()
		defer unhook()
		e.drive(commands, r, patience)
	}()
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

// ended says that a context's end is the cause of an error.
func ended(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(ctx.Err(), cause) {
		return fmt.Errorf("%w: %w: %w", err, ctx.Err(), cause)
	}
	return fmt.Errorf("%w: %w", err, ctx.Err())
}

// patience returns until when the execution may wait for a busy participant: a refusal has to be stored and told before ctx ends.
func (e *Engine) patience(ctx context.Context) time.Time {
	limit := maxPatience
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, deadline.Sub(e.now())/2)
	}
	return e.now().Add(limit)
}

// abandon says that the caller waits no longer. It reports whether a claim was sent: if not, none will be.
func (r *run) abandon() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abandoned = true
	return r.sent
}

// mayGoOn reports whether the next round may be sent. An execution that nobody waits for and that has claimed nothing ends.
func (r *run) mayGoOn(operations []protocol.Operation) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.abandoned && !r.claimed {
		return false
	}
	if operations[0].Kind == protocol.Claim {
		r.sent = true
	}
	return true
}

// outcome returns what the caller is told.
func (r *run) outcome(ctx context.Context) (Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.answered:
		if r.failure != nil && ctx.Err() != nil {
			return r.result, ended(ctx, r.failure)
		}
		return r.result, r.failure
	default:
		return r.result, ended(ctx, ErrUnfinished)
	}
}

// drive runs the execution to its end.
func (e *Engine) drive(ctx context.Context, r *run, patience time.Time) {
	defer r.answer(nil)
	var pause backoff
	x := r.execution
	away := e.now().Add(AwayLimit)
	for x.Outcome() == protocol.Running {
		waiting := e.now().Before(patience)
		if !waiting {
			x.Hurry()
		}
		operations, err := x.Next()
		if err != nil || len(operations) == 0 { // it has just ended
			r.publish()
			return
		}
		if !x.Claimed() && e.now().After(away) {
			r.answer(r.gaveUp())
			return
		}
		if !r.mayGoOn(operations) { // the caller may be about to ask how it went
			r.answer(r.gaveUp())
			return
		}
		progress := e.round(ctx, r, operations, waiting)
		r.publish()
		if !pause.after(ctx, progress, patience.Sub(e.now())) {
			r.answer(fmt.Errorf("%w: %w", ErrUnfinished, ErrClosed))
			return
		}
	}
}

// gaveUp returns the error of an execution that ends without a claim.
func (r *run) gaveUp() error {
	if r.execution.ClaimInDoubt() {
		return ErrUnfinished
	}
	return ErrNothingSent
}

// round performs one round and reports whether it brought anything new. To one that still waits for a busy participant, "busy"
// is nothing new.
func (e *Engine) round(ctx context.Context, r *run, operations []protocol.Operation, waiting bool) bool {
	limited, cancel := context.WithTimeout(ctx, mongostore.CommandLimit)
	defer cancel()
	e.traceSent(ctx, r.work, operations)
	answers := e.store.Perform(limited, r.work, operations)
	progress := true
	for i, op := range operations {
		busy := answers[i].Facts.Found && !answers[i].Facts.Free
		if answers[i].Result == protocol.Unknown || answers[i].Result == protocol.NotSent || waiting && busy {
			progress = false
			e.traceRepeat(ctx, r.work, op, answers[i])
		}
		r.execution.Observe(op, answers[i])
	}
	return progress
}

// publish makes the present state the result, and answers the caller if that is what it waits for.
func (r *run) publish() {
	x := r.execution
	r.mu.Lock()
	r.claimed = x.Claimed()
	r.result = Result{
		Outcome: x.Outcome(), State: x.State(), Transfer: r.work.Transfer, Refusal: x.Refusal(), ClaimInDoubt: x.ClaimInDoubt(),
		StuckAt: x.StuckAt(), Cause: r.work.Cause,
	}
	if err := x.Err(); err != nil {
		r.result.Cause = err
	}
	r.result.Seen, r.result.SeenKnown = r.work.Seen(x.Refusal().Participant)
	r.mu.Unlock()
	if r.until == protocol.Committed && x.State() == protocol.Committed {
		r.answer(nil)
	}
}

// answer lets the caller go, once.
func (r *run) answer(failure error) {
	r.once.Do(func() {
		r.mu.Lock()
		r.failure = failure
		r.mu.Unlock()
		close(r.answered)
	})
}
