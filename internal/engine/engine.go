// Package engine drives executions.
// It asks the protocol what is next, lets the store perform it, and returns the answers
// to the protocol.
// Operations of many executions share commands: while some commands are in flight, the
// next one gathers, and nothing waits for a timer.
// The engine owns the goroutines, the time limits of commands and the pauses between
// repeats, and decides nothing about money.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// stopLimit is how long Close waits, once its context has ended, for the executions that
// it stops.
// They stop at once, unless a function of the service that they call doesn't return: an
// observer, a log handler or a command monitor of the driver.
const stopLimit = time.Second

// ErrClosed is returned once Close was called.
var ErrClosed = errors.New("the coordinator is closed")

// Engine drives executions, and performs their operations in commands that carry those of
// many executions.
// It is safe for concurrent use.
type Engine struct {
	store *mongostore.Store
	log   *slog.Logger
	now   func() time.Time

	observer Observer

	base   context.Context // of all commands; ends when Close gives up
	cancel context.CancelFunc

	closing chan struct{} // closed by Close
	limits  Limits
	gate    *gate          // admits executions
	sending sync.WaitGroup // goroutines that send commands

	stuck    stuckQueue
	begun    func()                               // called when an execution begins while none is in progress
	onAnswer func(took time.Duration, others int) // called when a caller was answered

	mu          sync.Mutex
	closed      bool
	stopped     bool                    // a Close gave up
	left        int                     // executions that Close, or a disconnected client, has left unfinished
	leftBecause error                   // the latest error of a disconnected client
	running     map[string]registration // by transfer ID
	waiters     map[string]int          // callers of Execute by transfer ID
	jobs        sync.WaitGroup
	lanes       map[mongostore.Lane]*lane
	servers     map[collections.Cluster]*server

	deferredJobs  int                // executions that nobody waits for
	deferredTasks map[string][]*task // by transfer ID
	hurried       map[string]int     // callers of HurryUp by transfer ID
	draining      int                // callers of Drain
	someEnded     chan struct{}      // closed when an execution ends; nil: nobody waits for that
}

// Limits bound what is in progress at once.
// All of them are positive.
type Limits struct {
	// MaxBatch is the largest number of operations in one command.
	MaxBatch int
	// MaxInFlight is the largest number of commands to one cluster that are in time.
	// As many again may be overdue, and as many again may be about suspects.
	MaxInFlight int
	// MaxPending is the largest number of executions in progress.
	// The others wait for a place.
	MaxPending int
}

// New returns an engine.
// Close ends it.
func New(store *mongostore.Store, log *slog.Logger, now func() time.Time, limits Limits) *Engine {
	base, cancel := context.WithCancel(context.Background())
	return &Engine{
		store: store, log: log, now: now, base: base, cancel: cancel,
		closing: make(chan struct{}), limits: limits, gate: newGate(limits.MaxPending, store.ClusterCount() > 1),
		running: map[string]registration{}, waiters: map[string]int{}, lanes: map[mongostore.Lane]*lane{},
		servers:       map[collections.Cluster]*server{},
		deferredTasks: map[string][]*task{}, hurried: map[string]int{}, begun: func() {}, onAnswer: func(time.Duration, int) {},
	}
}

// OnBegin has a function called whenever an execution begins while none is in progress.
// The function waits for nothing.
// It is set before the first execution.
func (e *Engine) OnBegin(begun func()) { e.begun = begun }

// OnAnswer has a function called whenever a caller was answered, with how long that took,
// and how many other transfers are waited for.
// The function waits for nothing.
// It is set before the first execution.
func (e *Engine) OnAnswer(answered func(took time.Duration, others int)) { e.onAnswer = answered }

// Busy reports whether an execution is in progress.
func (e *Engine) Busy() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.running) > 0
}

// Closed reports whether Close was called.
func (e *Engine) Closed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// Closing returns a channel that is closed when Close is called.
func (e *Engine) Closing() <-chan struct{} { return e.closing }

// registration counts the executions of one transfer that are in progress.
type registration struct {
	executions  int
	claimsSent  int       // executions that sent a claim
	callersKnow int       // executions whose caller knows of the commit
	since       time.Time // since when there was always at least one execution
}

// Executions returns how many executions of a transfer are in progress in this engine,
// and since when there was always at least one.
func (e *Engine) Executions(transferID string) (n int, since time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	entry := e.running[transferID]
	return entry.executions, entry.since
}

// Sent reports whether an execution that is in progress in this engine sent a claim of a
// transfer.
// The transfer is stored then, or may be, even if its caller has left.
func (e *Engine) Sent(transferID string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running[transferID].claimsSent > 0
}

// Answered reports whether an execution that is in progress in this engine has answered
// its caller that the transfer is committed.
// The transfer may still be stored as Preparing.
func (e *Engine) Answered(transferID string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running[transferID].callersKnow > 0
}

// Awaited reports whether a caller waits for an execution of a transfer to begin or to
// end.
// Other executions continue in the background.
func (e *Engine) Awaited(transferID string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.waiters[transferID] > 0
}

// countWaiter counts a caller who begins to wait for an execution of a transfer, with 1,
// or waits no longer, with -1. It returns how many transfers are waited for.
func (e *Engine) countWaiter(transferID string, change int) (transfers int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := e.waiters[transferID] + change; n > 0 {
		e.waiters[transferID] = n
	} else {
		delete(e.waiters, transferID)
	}
	return len(e.waiters)
}

// Close admits no further execution and waits for those in progress.
// When ctx ends they are stopped where they are, and recovery has to finish them.
// So it has to if a client was disconnected first, which is an error, too.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	stoppedBefore, late := e.stopped, ctx.Err() != nil
	if late { // what is deferred is not sent any more
		e.stopped = true
		e.cancel()
	}
	if !e.closed {
		e.closed = true
		close(e.closing)
		e.sendAllDeferred()
	}
	e.mu.Unlock()
	drained := make(chan struct{})
	go func() {
		e.jobs.Wait()
		e.sending.Wait()
		close(drained)
	}()
	defer e.cancel()
	select {
	case <-drained:
		if late {
			return ctx.Err()
		}
		return e.closeError(stoppedBefore)
	case <-ctx.Done():
		e.mu.Lock()
		e.stopped = true
		e.mu.Unlock()
		e.cancel()
		stopping, end := context.WithTimeout(context.Background(), stopLimit)
		defer end()
		select {
		case <-drained:
		case <-stopping.Done():
		}
		return ctx.Err()
	}
}

// closeError returns the error of a Close that waited until nothing was in progress: nil,
// unless another Close stopped the executions in the meantime, or their client was
// disconnected.
func (e *Engine) closeError(stoppedBefore bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.stopped && !stoppedBefore:
		return fmt.Errorf("another Close ran out of time: %w", ErrUnfinished)
	case e.leftBecause != nil:
		return fmt.Errorf("what was begun was left to recovery (transfers: %d): %w", e.left, e.leftBecause)
	}
	return nil
}

// leave ends a job, and counts it if recovery has to finish it.
// The cause is that of a disconnected client, nil where Close has run out of time.
func (e *Engine) leave(j *job, cause, failure error) {
	if j.mayBeStored() {
		e.mu.Lock()
		e.left++
		if cause != nil {
			e.leftBecause = cause
		}
		e.mu.Unlock()
	}
	e.end(j, failure)
}

// HasLeft reports whether executions were left unfinished: recovery has to finish them.
func (e *Engine) HasLeft() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.left > 0
}

// Result is the present state of an execution, or its end.
type Result struct {
	// Outcome says how the execution ended, or that it is running.
	Outcome protocol.Outcome
	// State is the state of the transfer, once claimed.
	State protocol.State
	// Transfer is the transfer as this execution last saw its document.
	// That may have been before it reached State.
	Transfer document.Transfer
	// Refusal is why this execution rolled back, if it did.
	Refusal protocol.Refusal
	// ClaimInDoubt is true if a claim was sent that may be stored.
	ClaimInDoubt bool
	// Stuck is what keeps a stuck execution from finishing, as it is stored.
	Stuck document.Failure
	// Evidence is what was read of the participant that Refusal names, when it refused.
	Evidence mongostore.Evidence
	// Cause is the latest error on the way.
	Cause error
}

// register counts an execution of a transfer.
// The error is ErrClosed.
func (e *Engine) register(transferID string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	if len(e.running) == 0 {
		e.begun()
	}
	entry := e.running[transferID]
	if entry.executions == 0 {
		entry.since = e.now()
	}
	entry.executions++
	e.running[transferID] = entry
	e.jobs.Add(1)
	return nil
}

// countClaims counts executions whose claim is sent.
// The caller holds the lock.
func (e *Engine) countClaims(transferID string, n int) {
	entry := e.running[transferID]
	entry.claimsSent += n
	e.running[transferID] = entry
}

// unregister removes a job that has ended from the counts.
func (e *Engine) unregister(j *job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	transferID := j.attempt.Transfer.ID
	entry := e.running[transferID]
	if !j.claimSentAt.IsZero() {
		entry.claimsSent--
	}
	if j.deferred {
		e.deferredJobs--
	} else {
		e.recordPace(j)
	}
	if j.callerKnows {
		entry.callersKnow--
	}
	entry.executions--
	e.running[transferID] = entry
	if entry.executions == 0 {
		delete(e.running, transferID)
	}
	if e.someEnded != nil {
		close(e.someEnded)
		e.someEnded = nil
	}
	e.jobs.Done()
}
