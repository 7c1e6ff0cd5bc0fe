// Package lookout reads stored transfers for all callers in this process that wait for
// them.
// However many callers wait, and for however many transfers, they share few commands, one
// at a time of each kind, and no caller holds a connection or a goroutine:
//
//   - Reads of whole transfers, up to 100 in one command: the first read of each, and one
//     whenever it has changed.
//   - Glances: reads of the marks of up to 1,000 transfers at a time, with pauses in
//     proportion to what they cost the server. A changed mark shows that a transfer has
//     changed.
//   - Deciding reads of whether transfers exist.
//   - One change stream, which shows changes sooner, as long as there are few.
//
// Measured with 64 callers who move money on a server with 2 cores, which they share: the
// cheapest change stream takes 10 to 20 % of their throughput, with one waiter as with
// thousands, because the server examines each write for it and wakes it up.
// Glances take 0 to 5 %, and no more for 10,000 waiters than for one: with many waiters
// they only come later.
// So waiters rely on the glances, and a stream is kept only while it costs next to
// nothing.
//
// Nothing runs while nobody waits.
package lookout

import (
	"container/heap"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/queries"
)

// Lookout reads transfers for those who wait for them.
// It is safe for concurrent use.
type Lookout struct {
	queries *queries.Queries
	log     *slog.Logger
	now     func() time.Time

	base       context.Context // of all commands; ends when Close gives up
	cancel     context.CancelFunc
	ended      chan struct{} // closed by Close
	goroutines sync.WaitGroup

	mu             sync.Mutex
	closed         bool
	targets        map[string]*target // by transfer ID
	readQueue      []*target          // to be read
	checks         []*existenceCheck  // to be answered by a deciding read
	schedule       schedule           // of glances
	readsBegun     int                // including glances
	readersInTime  int                // 1 while a read is in flight that is not overdue
	readersOverdue int
	checking       bool          // a deciding read is in flight
	polling        bool          // a goroutine glances at targets
	wakePoller     chan struct{} // wakes that goroutine
	idleSince      time.Time     // since when nobody waits, as far as that goroutine knows
	stream         stream
}

// New returns a lookout.
// Close ends it.
func New(queries *queries.Queries, log *slog.Logger, now func() time.Time) *Lookout {
	base, cancel := context.WithCancel(context.Background())
	return &Lookout{
		queries: queries, log: log, now: now, base: base, cancel: cancel, ended: make(chan struct{}),
		targets: map[string]*target{}, wakePoller: make(chan struct{}, 1),
	}
}

// Close ends the lookout and waits for its commands.
// When ctx ends it cancels them.
// Callers that still wait learn elsewhere that the lookout is closed.
func (l *Lookout) Close(ctx context.Context) {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.ended)
	}
	l.mu.Unlock()
	defer l.cancel()
	drained := make(chan struct{})
	go func() {
		l.goroutines.Wait()
		close(drained)
	}()
	select {
	case <-drained:
	case <-ctx.Done():
	}
}

// target is a transfer that callers wait for.
// The lookout's lock guards it.
type target struct {
	id         string
	callers    int
	latest     *Sight // nil before the first
	latestRead int    // the serial number of the read that found it
	coveredBy  int    // the number of the stream that was live when the latest read began

	readDone chan struct{} // closed by the next read that begins; nil: nobody asked for one
	queued   bool          // it is in the read queue, or will be after a pause
	reads    int           // in flight
	readAt   time.Time     // when the latest read began
	readTook time.Duration // the latest read
	glances  int           // since a caller began to wait, or the transfer changed
	due      time.Time     // of the next glance
	index    int           // in the schedule, if it is there
}

// Sight is a transfer as a read found it.
type Sight struct {
	// Transfer is the transfer as a majority has it stored, if Found.
	Transfer document.Transfer
	// Found is true if the transfer exists.
	Found bool
	// Err is the error of the read.
	// If there is one, nothing is known of the transfer.
	Err error
	// Replaced is closed once a read has found something else, or has failed.
	Replaced <-chan struct{}

	replaced chan struct{}
	mark     queries.Fingerprint
}

// Watch is one caller's interest in a transfer.
// It belongs to one goroutine.
type Watch struct {
	lookout *Lookout
	target  *target
}

// Watch begins to watch a transfer.
// End ends it.
func (l *Lookout) Watch(id string) *Watch {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.targets[id]
	if t == nil {
		t = &target{id: id}
		l.targets[id] = t
		if !l.closed {
			l.scheduleGlance(t)
			l.startPolling()
		}
	}
	t.callers++
	return &Watch{l, t}
}

// End ends the watch.
func (w *Watch) End() {
	l, t := w.lookout, w.target
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.callers--; t.callers > 0 {
		return
	}
	delete(l.targets, t.id)
	if l.isScheduled(t) {
		heap.Remove(&l.schedule, t.index)
	}
	if len(l.targets) == 0 {
		l.notifyPoller()
	}
}

// Look returns what the next read finds that begins after this call: an answer must not
// rest on what was true before it was asked for.
// Callers share the read.
// The error is that of ctx; on a closed lookout it is context.Canceled.
func (w *Watch) Look(ctx context.Context) (*Sight, error) {
	l := w.lookout
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, context.Canceled
	}
	done := l.requestRead(w.target)
	l.mu.Unlock()
	select {
	case <-done:
		return w.Latest(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.ended:
		return nil, context.Canceled
	}
}

// Latest returns what the latest read found, nil before the first.
func (w *Watch) Latest() *Sight {
	w.lookout.mu.Lock()
	defer w.lookout.mu.Unlock()
	return w.target.latest
}

// notifyPoller wakes the polling goroutine.
// The caller holds the lock.
func (l *Lookout) notifyPoller() {
	select {
	case l.wakePoller <- struct{}{}:
	default:
	}
}
