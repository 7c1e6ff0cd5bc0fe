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
	// glancesBeforeStream is how many glances a caller waits before a stream is opened.
	// Most callers have their answer by then.
	glancesBeforeStream = 3
	// streamPause is how long changes gather before the stream is asked again.
	streamPause = 10 * time.Millisecond
	// maxChanges is how many changes a second a stream may show.
	// Beyond that it slows the transfers down by more than it gives to those who wait.
	maxChanges = 100
	// firstRetry is the pause before a stream is opened again that has failed, or has
	// shown too many changes.
	// It doubles each time up to longestRetry: the right to open one may be missing.
	firstRetry   = 5 * time.Second
	longestRetry = time.Minute
)

// errTooManyChanges is the reason for giving up a stream that shows too many changes.
var errTooManyChanges = errors.New("it shows too many changes to be worth its cost")

// stream is the state of the change stream.
// The lookout's lock guards it.
type stream struct {
	running    bool      // a goroutine opens or follows it
	opened     int       // streams opened so far
	live       int       // the number of the stream that shows changes; 0: none
	retryAt    time.Time // when it may be opened again
	retryPause time.Duration
}

// startStream opens a stream if that is worth its cost.
// The caller holds the lock.
func (l *Lookout) startStream(now time.Time) {
	if l.stream.running || now.Before(l.stream.retryAt) || l.closed {
		return
	}
	first := l.schedule[0]
	if first.glances >= glancesBeforeStream && first.latest != nil && first.latest.Err == nil {
		l.stream.running = true
		l.goroutines.Go(l.followStream)
	}
}

// followStream opens a stream and follows it while callers wait.
// The driver resumes it when a server goes away.
// If it fails all the same, glances become more frequent again.
func (l *Lookout) followStream() {
	begun := l.now()
	s, err := l.queries.Watch(l.base)
	if err == nil {
		l.setStreamLive(true)
		err = l.requestChanged(s)
		l.setStreamLive(false)
		s.Close(l.base)
	}
	pause := l.rest(begun, err)
	if err != nil { // logged without the lock: a log handler may block
		l.log.Debug("transfers that are waited for are looked at without a change stream",
			slog.Any(words.KeyCause, err), slog.Duration(words.KeyPause, pause))
	}
}

// rest records that no stream is open any more, and returns how long none will be, if the
// one that has begun then failed.
func (l *Lookout) rest(begun time.Time, err error) (pause time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stream.running = false
	if err == nil {
		return 0
	}
	now := l.now()
	if now.Sub(begun) > longestRetry {
		l.stream.retryPause = 0
	}
	l.stream.retryPause = min(max(2*l.stream.retryPause, firstRetry), longestRetry)
	l.stream.retryAt = now.Add(l.stream.retryPause)
	return l.stream.retryPause
}

// setStreamLive records whether a stream shows changes from now on.
// Either way the next glance at each target is due soon, even if a stream begins:
//
//  1. A target is read.
//  2. It becomes final.
//  3. The stream is opened, and shows nothing of that.
func (l *Lookout) setStreamLive(live bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stream.live = 0
	if live {
		l.stream.opened++
		l.stream.live = l.stream.opened
	}
	now := l.now()
	for _, t := range l.schedule {
		if soon := now.Add(rand.N(glancePeriod)); t.due.After(soon) {
			t.due = soon
		}
	}
	heap.Init(&l.schedule)
	l.notifyPoller()
}

// requestChanged requests reads of the targets that the stream shows as changed.
// It returns nil when nobody waits.
func (l *Lookout) requestChanged(s *queries.Stream) error {
	pause := time.NewTimer(streamPause)
	defer pause.Stop()
	since, changes := l.now(), 0
	for l.anyoneWaits() {
		ids, err := s.Next(l.base)
		l.requestReads(ids)
		if err != nil {
			return err
		}
		if now := l.now(); now.Sub(since) > time.Second {
			since, changes = now, 0
		}
		if changes += len(ids); changes > maxChanges {
			return errTooManyChanges
		}
		pause.Reset(streamPause)
		select {
		case <-pause.C:
		case <-l.ended:
		}
	}
	return nil
}

func (l *Lookout) anyoneWaits() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.polling && !l.closed
}

// requestReads requests reads of those targets among some transfers.
func (l *Lookout) requestReads(ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if t := l.targets[id]; t != nil {
			l.requestRead(t)
		}
	}
}
