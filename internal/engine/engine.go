// Package engine drives executions: it asks the protocol what is next, has the store
// perform it, and hands the answers back. What many executions want goes out together:
// while commands are on their way the next one gathers, and nothing waits for a timer. It
// owns the goroutines, the time limits of commands and the pauses between repeats, and
// decides nothing about money.
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
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// ErrClosed is returned once Close was called.
var ErrClosed = errors.New("the coordinator was closed")

// Engine drives executions, and performs what they want in commands that carry the
// requests of many. It is safe for many goroutines.
type Engine struct {
	store *mongostore.Store
	log   *slog.Logger
	now   func() time.Time

	base   context.Context // of all commands; ends when Close gives up
	cancel context.CancelFunc

	closing chan struct{} // closed by Close
	limits  Limits
	gate    *gate          // where executions wait for a place
	sending sync.WaitGroup // goroutines that send commands

	obstacles obstacles

	mu      sync.Mutex
	closed  bool
	stopped bool                // a Close has given up
	running map[string]underway // executions by transfer ID
	awaited map[string]int      // callers of Execute by transfer ID
	all     sync.WaitGroup      // executions
	lanes   map[mongostore.Lane]*lane
	servers map[collections.Cluster]*server
}

// Limits bound what is under way at once. All are positive.
type Limits struct {
	MaxBatch    int // requests in one command
	MaxInFlight int // commands to one cluster that are in time; see server
	MaxPending  int // executions under way; the others wait for a place
}

// New returns an engine. Close ends it.
func New(store *mongostore.Store, log *slog.Logger, now func() time.Time, limits Limits) *Engine {
	base, cancel := context.WithCancel(context.Background())
	return &Engine{
		store: store, log: log, now: now, base: base, cancel: cancel,
		closing: make(chan struct{}), limits: limits, gate: newGate(limits.MaxPending, store.ClusterCount() > 1),
		running: map[string]underway{}, awaited: map[string]int{}, lanes: map[mongostore.Lane]*lane{},
		servers: map[collections.Cluster]*server{},
	}
}

// Closed reports whether Close was called.
func (e *Engine) Closed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// Closing returns a channel that is closed when Close is called.
func (e *Engine) Closing() <-chan struct{} { return e.closing }

// underway are the executions of one transfer.
type underway struct {
	n     int
	sent  int       // of these, those that have sent a claim
	since time.Time // when the first of those began that have followed each other without a gap
}

// Executions returns how many executions of a transfer are under way here, and since when
// there was always one.
func (e *Engine) Executions(transferID string) (n int, since time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	here := e.running[transferID]
	return here.n, here.since
}

// Sent reports whether a claim of a transfer was sent by an execution that is under way
// here: the transfer is stored, or may be, whatever became of whoever asked for it.
func (e *Engine) Sent(transferID string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running[transferID].sent > 0
}

// Awaited reports whether somebody waits for an execution of a transfer to end, or to
// begin. The others go on in the background.
func (e *Engine) Awaited(transferID string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.awaited[transferID] > 0
}

// await counts a caller who waits for an execution of a transfer. The function that it
// returns says that this is over.
func (e *Engine) await(transferID string) (over func()) {
	add := func(n int) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.awaited[transferID] += n; e.awaited[transferID] == 0 {
			delete(e.awaited, transferID)
		}
	}
	add(1)
	return func() { add(-1) }
}

// Close lets no new execution begin and waits for those under way. When ctx ends they are
// stopped where they are, and recovery has to finish them.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	if !e.closed {
		e.closed = true
		close(e.closing)
	}
	before := e.stopped
	e.mu.Unlock()
	drained := make(chan struct{})
	go func() {
		e.all.Wait()
		e.sending.Wait()
		close(drained)
	}()
	defer e.cancel()
	select {
	case <-drained:
		return e.drained(before)
	case <-ctx.Done():
		e.mu.Lock()
		e.stopped = true
		e.mu.Unlock()
		e.cancel()
		<-drained
		return ctx.Err()
	}
}

// drained returns nil if everything came to its end, and an error if another Close has
// stopped it meanwhile.
func (e *Engine) drained(before bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped && !before {
		return fmt.Errorf("another Close ran out of time: %w", ErrUnfinished)
	}
	return nil
}

// Result is how an execution stands, or ended.
type Result struct {
	Outcome      protocol.Outcome
	State        protocol.State    // of the transfer, once claimed
	Transfer     document.Transfer // as this execution last saw its document, which may have been before that state
	Refusal      protocol.Refusal  // of this execution, if it rolled back
	ClaimInDoubt bool
	Stuck        document.Failure // what is in the way of a Stuck one, as it is stored
	Seen         money.Amount     // the balance of the participant that the refusal names
	SeenKnown    bool
	Evidence     mongostore.Evidence // what was seen of that participant
	Cause        error               // the latest error on the way
}

// begin registers an execution.
func (e *Engine) begin(transferID string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	here := e.running[transferID]
	if here.n == 0 {
		here.since = e.now()
	}
	here.n++
	e.running[transferID] = here
	e.all.Add(1)
	return nil
}

// countSent counts an execution whose claim is sent. The caller holds the lock.
func (e *Engine) countSent(transferID string) {
	here := e.running[transferID]
	here.sent++
	e.running[transferID] = here
}

// finish takes a run off the register.
func (e *Engine) finish(r *run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	transferID := r.work.Transfer.ID
	here := e.running[transferID]
	if !r.begun.IsZero() {
		r.line.pace.begun--
		r.line.pace.took(e.now().Sub(r.begun), r.beside)
		here.sent--
	}
	here.n--
	e.running[transferID] = here
	if here.n == 0 {
		delete(e.running, transferID)
	}
	e.all.Done()
}
