// Package oplogreader keeps a change stream open while few callers move money on a set of
// one member, because the server answers them sooner then.
//
// On such a set a journaled write waits until it is visible in the oplog.
// A thread of the server makes it visible (WiredTigerOplogManager in its source).
// While nobody reads the oplog, the thread checks once a millisecond whether a write
// waits, and a command that writes two documents often comes too late for the first
// check.
// In a larger set the other members read the oplog.
//
// With many callers a stream takes more than it gives: the server examines each write for
// it.
// It is not open then, nor while nobody calls.
package oplogreader

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/words"
)

const (
	// few is how many callers there may be.
	few = 4
	// span is how many calls in a row are looked at before a stream is opened. Twice as
	// many show whether it is worth it.
	span = 64
	// slowest is the mean time between calls that are worth a stream.
	slowest = 25 * time.Millisecond
	// worthwhile is the share of the time that calls took without a stream which they may
	// take with one, in percent. Measured with one caller: 85 to 90.
	worthwhile = 97
	// term is how long a stream stays open before it is tried again whether it is worth
	// it: other processes may be at work by then.
	term = time.Minute
	// patience is how many looks in a row may find too few calls before a stream is
	// closed.
	patience = 5
	// awaited is how long a request for changes takes, and so the end of a stream.
	awaited = 100 * time.Millisecond
	// closeLimit bounds how long Close waits for it.
	closeLimit = 5 * awaited
	// shortestPause is how long no stream is opened after one that was closed because of
	// too many callers. After one that was not worth it, or has failed, the pause doubles
	// up to longestPause: the right to open one may be missing.
	// So it does after one that was closed before it was judged: perhaps it is the stream
	// that makes calls slow, because it has the only connection.
	shortestPause = time.Second
	longestPause  = 10 * time.Minute
)

// Why a stream is closed.
var (
	errNotWorthIt = errors.New("calls are not faster with a stream")
	errUnjudged   = errors.New("too few calls came to see whether they are faster with a stream")
	errCrowd      = errors.New("there are too many callers")
)

// errSeveralMembers is why a stream would be of no use.
var errSeveralMembers = errors.New("the set has several members")

// Stream is a change stream that shows nothing.
type Stream interface {
	// Next asks for changes, and waits for a while until the answer is that there was
	// none.
	Next(ctx context.Context) error
	// Close releases the stream's cursor on the server.
	Close(ctx context.Context)
}

// Opener opens a stream whose Next waits for so long.
type Opener func(ctx context.Context, awaited time.Duration) (Stream, error)

// Over opens streams on the server of the transfers, where it is the only member of its
// set.
func Over(q *queries.Queries) Opener {
	return func(ctx context.Context, awaited time.Duration) (Stream, error) {
		only, err := q.OnlyMember(ctx)
		if err != nil {
			return nil, err
		}
		if !only {
			return nil, errSeveralMembers
		}
		s, err := q.WatchNothing(ctx, awaited)
		return stream{s}, err
	}
}

// stream is a stream of [queries.Queries], which shows nothing.
type stream struct{ *queries.Stream }

// Next implements Stream.
func (s stream) Next(ctx context.Context) error {
	_, err := s.Stream.Next(ctx)
	return err
}

// Reader decides when a stream is open, and keeps it open.
// It is safe for concurrent use.
type Reader struct {
	open Opener
	log  *slog.Logger
	now  func() time.Time

	base       context.Context // of all commands; ends when Close gives up
	cancel     context.CancelFunc
	goroutines sync.WaitGroup

	crowded atomic.Int64 // calls beside too many others, since the latest look

	mu      sync.Mutex
	closed  bool
	running bool            // a goroutine keeps a stream open, or is about to
	since   time.Time       // the latest look
	calls   []time.Duration // what calls took since then, but for those beside too many others
	retryAt time.Time       // when a stream may be opened
	pause   time.Duration
}

// New returns a reader.
// Close ends it.
func New(open Opener, log *slog.Logger, now func() time.Time) *Reader {
	base, cancel := context.WithCancel(context.Background())
	return &Reader{open: open, log: log, now: now, base: base, cancel: cancel, pause: shortestPause}
}

// Answered counts a call that has ended, beside others that have not.
// It waits for nothing.
func (r *Reader) Answered(took time.Duration, others int) {
	if others >= few {
		r.crowded.Add(1)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.calls) == 0 && !r.running {
		r.since = r.now()
	}
	r.calls = append(r.calls, took)
	if r.running || len(r.calls) < span {
		return
	}
	without := r.look()
	if without.crowded > 0 || without.rare() || r.since.Before(r.retryAt) || r.closed {
		return
	}
	r.running = true
	r.goroutines.Go(func() { r.keepOpen(without.median()) })
}

// keepOpen keeps a stream open while it is worth it. Without one, calls took so long.
func (r *Reader) keepOpen(without time.Duration) {
	err := r.read(without)
	pause := r.rest(err)
	if err != nil { // logged without the lock: a log handler may block
		r.log.Debug("the oplog is not read any more", slog.Any(words.KeyCause, err), slog.Duration(words.KeyPause, pause))
	}
}

// rest records that no stream is open any more, and returns how long none will be.
func (r *Reader) rest(err error) (pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = false
	r.look()
	pause = shortestPause
	switch {
	case err == nil:
		pause = 0
	case errors.Is(err, errCrowd):
	case errors.Is(err, errSeveralMembers):
		pause = longestPause
	default:
		r.pause = min(2*r.pause, longestPause)
		pause = r.pause
	}
	r.retryAt = r.since.Add(pause)
	return pause
}

// read opens a stream and reads it.
// It returns nil once hardly anybody calls, or its term is over.
func (r *Reader) read(without time.Duration) error {
	stream, err := r.open(r.base, awaited)
	if err != nil {
		return err
	}
	defer stream.Close(r.base)
	opened, judged, rare := r.now(), false, 0
	var with sight
	if _, closed := r.lookAgain(); closed {
		return nil
	}
	for rare < patience && r.now().Sub(opened) < term {
		if err := stream.Next(r.base); err != nil {
			return err
		}
		seen, closed := r.lookAgain()
		if closed {
			return nil
		}
		if seen.crowded > len(seen.calls) {
			return errCrowd
		}
		if rare++; !seen.rare() {
			rare = 0
		}
		if judged {
			continue
		}
		if with.calls = append(with.calls, seen.calls...); len(with.calls) >= 2*span {
			judged = true
			if with.median() > without*worthwhile/100 {
				return errNotWorthIt
			}
			r.wasWorthIt()
		}
	}
	if !judged {
		return errUnjudged
	}
	return nil
}

// wasWorthIt records that a stream was worth it: the next pause is half as long.
func (r *Reader) wasWorthIt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pause = max(r.pause/2, shortestPause)
}

// sight is what was seen between two looks.
type sight struct {
	calls   []time.Duration // what calls took, but for those beside too many others
	crowded int             // calls beside too many others
	lasted  time.Duration
}

// rare reports whether too few calls came to be worth a stream.
func (s sight) rare() bool { return s.lasted > time.Duration(len(s.calls))*slowest }

// median returns what half of the calls took at most.
// A mean would show the few that took long for another reason.
func (s sight) median() time.Duration {
	sorted := slices.Sorted(slices.Values(s.calls))
	return sorted[len(sorted)/2]
}

// look returns what was seen since the latest look.
// The caller holds the lock.
func (r *Reader) look() sight {
	now := r.now()
	s := sight{calls: r.calls, crowded: int(r.crowded.Swap(0)), lasted: now.Sub(r.since)}
	r.since, r.calls = now, nil
	return s
}

// lookAgain is look while a stream is open, and reports whether Close was called.
func (r *Reader) lookAgain() (seen sight, closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.look(), r.closed
}

// Close ends the stream, and waits until it is closed.
// When ctx ends it returns, and the stream is closed a moment later.
// It gives up a server that does not answer.
func (r *Reader) Close(ctx context.Context) {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	limit := time.AfterFunc(closeLimit, r.cancel)
	ended := make(chan struct{})
	go func() {
		r.goroutines.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		limit.Stop()
		r.cancel()
	case <-ctx.Done():
	case <-r.base.Done():
	}
}
