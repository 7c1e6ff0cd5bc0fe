// Package lookout looks at stored transfers for all who wait for them in this process.
// However many wait, and for however many transfers, they share few commands, one at a
// time of each kind, and no waiter holds a connection or a goroutine:
//
//   - reads of whole transfers, up to 100 in one command: the first look at each, and one
//     whenever something has happened to it;
//   - glances at the marks of up to 1,000 transfers, in turn, with pauses in proportion
//     to what they cost the server: from these it is seen that something has happened;
//   - deciding reads of whether transfers exist;
//   - one change stream, from which the same is seen sooner, as long as little happens.
//
// Measured with 64 callers who move money (a server of 2 cores, which they share): the
// cheapest change stream takes 10 to 20 % of their throughput, with one waiter as with
// thousands, because the server looks at each write for it and wakes it up. Glances take
// 0 to 5 %, and no more for 10,000 waiters than for one, who are only told later. So the
// glances are what waiters rely on, and a stream is kept only while it costs next to
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

// Lookout looks at transfers. It is safe for many goroutines.
type Lookout struct {
	queries *queries.Queries
	log     *slog.Logger
	now     func() time.Time

	base   context.Context // of all commands; ends when Close gives up
	cancel context.CancelFunc
	ended  chan struct{}  // closed by Close
	all    sync.WaitGroup // goroutines

	mu       sync.Mutex
	closed   bool
	targets  map[string]*target // those that somebody waits for, by ID
	asked    []*target          // to be read
	doubted  []*doubt           // to be looked for by a deciding read
	rounds   rounds             // to be glanced at
	looks    int                // reads and glances begun so far
	readers  int                // reads on their way, but for those that are overdue
	hanging  int                // those that are
	deciding bool               // a deciding read is on its way
	keeping  bool               // somebody sees to the glances
	wake     chan struct{}      // tells that one
	stream   stream
}

// New returns a lookout. Close ends it.
func New(queries *queries.Queries, log *slog.Logger, now func() time.Time) *Lookout {
	base, cancel := context.WithCancel(context.Background())
	return &Lookout{
		queries: queries, log: log, now: now, base: base, cancel: cancel, ended: make(chan struct{}),
		targets: map[string]*target{}, wake: make(chan struct{}, 1),
	}
}

// Close ends the lookout and waits for its commands, but no longer than ctx lets it: then
// they are cut off. Whoever still waits learns elsewhere that it is closed.
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
		l.all.Wait()
		close(drained)
	}()
	select {
	case <-drained:
	case <-ctx.Done():
	}
}

// target is a transfer that somebody waits for. The lookout's lock guards it.
type target struct {
	id      string
	callers int
	sight   *Sight // the latest; nil before the first
	serial  int    // of the look that has shown it
	covered int    // the stream that was live when the latest look began

	asked   chan struct{} // closed once a read is done that begins from now on; nil: nobody wants one
	queued  bool          // it is among those to be read, or will be after a pause
	reads   int           // on their way
	began   time.Time     // when the latest read began
	lasted  time.Duration // the latest read
	glances int           // since somebody began to wait, or something was seen to happen
	due     time.Time     // of the next glance
	place   int           // among the rounds, where it is in them
}

// Sight is how a transfer was found by a read.
type Sight struct {
	Transfer document.Transfer
	Found    bool
	Err      error // of the read: then nothing is known
	// Replaced is closed once a read has found something else, or has failed.
	Replaced <-chan struct{}

	replaced chan struct{}
	mark     queries.Fingerprint
}

// Watch is one caller's view of a transfer. It belongs to one goroutine.
type Watch struct {
	lookout *Lookout
	target  *target
}

// Watch begins to watch a transfer. End ends it.
func (l *Lookout) Watch(id string) *Watch {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.targets[id]
	if t == nil {
		t = &target{id: id}
		l.targets[id] = t
		if !l.closed {
			l.plan(t)
			l.keep()
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
	if l.planned(t) {
		heap.Remove(&l.rounds, t.place)
	}
	if len(l.targets) == 0 {
		l.rouse()
	}
}

// Look returns what a read finds that begins after this call: an answer must not rest on
// what was true before it was asked for. Callers share the read. The error is that of
// ctx; on a closed lookout it is context.Canceled.
func (w *Watch) Look(ctx context.Context) (*Sight, error) {
	l := w.lookout
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, context.Canceled
	}
	done := l.ask(w.target)
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

// Latest returns what the latest read has found, nil before the first.
func (w *Watch) Latest() *Sight {
	w.lookout.mu.Lock()
	defer w.lookout.mu.Unlock()
	return w.target.sight
}

// rouse tells the keeper that there is something new. The caller holds the lock.
func (l *Lookout) rouse() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
