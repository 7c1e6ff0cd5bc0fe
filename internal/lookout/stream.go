package lookout

import (
	"container/heap"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/words"
)

const (
	// patience is how many glances somebody waits for before a stream is opened: most are
	// told by then.
	patience = 3
	// streamPause is how long changes gather before the stream is asked again.
	streamPause = 10 * time.Millisecond
	// maxChanges is how many changes a second a stream may tell of. Beyond that it costs
	// the transfers that it tells of more than it is worth to those who wait.
	maxChanges = 100
	// After a stream has failed, or has told too much, the next one is opened after a
	// pause, doubled each time: it may be that there is no right to open one.
	firstRetry   = 5 * time.Second
	longestRetry = time.Minute
)

// errBusy is why a stream is given up that tells too much.
var errBusy = errors.New("it tells of more changes than is worth while")

// stream is what is known of the change stream. The lookout's lock guards it.
type stream struct {
	running bool      // somebody opens it, or follows it
	opened  int       // streams opened so far
	live    int       // the number of the one that tells what happens; 0: none
	retry   time.Time // when it may be opened again
	pause   time.Duration
}

// startStream has a stream opened where that is worth while. The caller holds the lock.
func (l *Lookout) startStream(now time.Time) {
	if l.stream.running || now.Before(l.stream.retry) || l.closed {
		return
	}
	first := l.rounds[0]
	if first.glances >= patience && first.sight != nil && first.sight.Err == nil {
		l.stream.running = true
		l.all.Go(l.follow)
	}
}

// follow opens a stream and follows it while somebody waits. The driver resumes it where
// a server has gone; when it fails after all, what is waited for is glanced at more often
// again.
func (l *Lookout) follow() {
	begun := l.now()
	s, err := l.queries.Watch(l.base)
	if err == nil {
		l.live(true)
		err = l.listen(s)
		l.live(false)
		s.Close(l.base)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stream.running = false
	if err == nil {
		return
	}
	now := l.now()
	if now.Sub(begun) > longestRetry {
		l.stream.pause = 0
	}
	l.stream.pause = min(max(2*l.stream.pause, firstRetry), longestRetry)
	l.stream.retry = now.Add(l.stream.pause)
	l.log.Debug("transfers that are waited for are looked at without a change stream",
		slog.Any(words.KeyCause, err), slog.Duration(words.KeyPause, l.stream.pause))
}

// live says that what happens from now on is told by a stream, or that it is not. Either
// way each target is glanced at soon. With a stream: 1. A target is looked at. 2. It
// becomes final. 3. The stream is opened, and says nothing of it.
func (l *Lookout) live(is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stream.live = 0
	if is {
		l.stream.opened++
		l.stream.live = l.stream.opened
	}
	now := l.now()
	for _, t := range l.rounds {
		if soon := now.Add(rand.N(period)); t.due.After(soon) {
			t.due = soon
		}
	}
	heap.Init(&l.rounds)
	l.rouse()
}

// listen has those targets read that the stream tells of. It returns nil when nobody
// waits any more.
func (l *Lookout) listen(s *queries.Stream) error {
	pause := time.NewTimer(streamPause)
	defer pause.Stop()
	since, changes := l.now(), 0
	for l.waitedFor() {
		ids, err := s.Next(l.base)
		l.tell(ids)
		if err != nil {
			return err
		}
		if now := l.now(); now.Sub(since) > time.Second {
			since, changes = now, 0
		}
		if changes += len(ids); changes > maxChanges {
			return errBusy
		}
		pause.Reset(streamPause)
		select {
		case <-pause.C:
		case <-l.ended:
		}
	}
	return nil
}

func (l *Lookout) waitedFor() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.keeping && !l.closed
}

// tell has the targets read that have changed.
func (l *Lookout) tell(ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if t := l.targets[id]; t != nil {
			l.ask(t)
		}
	}
}
