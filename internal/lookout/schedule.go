package lookout

import (
	"container/heap"
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

const (
	// maxGlanced is how many transfers one command glances at.
	maxGlanced = 1000
	// glancePauseFactor is the pause after a glance, as a multiple of what the glance
	// took.
	// It bounds what glances cost the server, however many callers wait.
	glancePauseFactor = 20
	// firstGlancePeriod is the time from when a caller begins to wait to the first
	// glance.
	// It doubles with each glance, periodDoublings times.
	firstGlancePeriod = 5 * time.Millisecond
	periodDoublings   = 4
	// glancePeriod is the time between two glances at one transfer after that.
	glancePeriod = firstGlancePeriod << periodDoublings
	// streamedGlancePeriod is the same while a stream shows changes.
	streamedGlancePeriod = 5 * time.Second
	// linger is how long the polling goroutine stays when nobody waits.
	linger = time.Second
)

// schedule orders targets by when their next glance is due.
// It implements heap.Interface.
type schedule []*target

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].due.Before(s[j].due) }

func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

// Push implements heap.Interface.
func (s *schedule) Push(x any) {
	t := x.(*target)
	t.index = len(*s)
	*s = append(*s, t)
}

// Pop implements heap.Interface.
func (s *schedule) Pop() any {
	old := *s
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*s = old[:len(old)-1]
	return t
}

// isScheduled reports whether a target is in the schedule.
// The caller holds the lock.
func (l *Lookout) isScheduled(t *target) bool {
	return t.index < len(l.schedule) && l.schedule[t.index] == t
}

// scheduleGlance sets when the next glance at a target is due.
// The caller holds the lock.
func (l *Lookout) scheduleGlance(t *target) {
	if l.targets[t.id] != t { // nobody waits for it now
		return
	}
	wait := glancePeriod
	switch {
	case l.stream.live > 0 && t.coveredBy == l.stream.live && t.latest != nil && t.latest.Err == nil:
		wait = streamedGlancePeriod
	case t.glances < periodDoublings:
		wait = firstGlancePeriod << t.glances
	}
	t.due = l.now().Add(wait/2 + rand.N(wait))
	if l.isScheduled(t) {
		heap.Fix(&l.schedule, t.index)
	} else {
		heap.Push(&l.schedule, t)
	}
	if l.schedule[0] == t {
		l.notifyPoller()
	}
}

// startPolling starts the polling goroutine, unless it runs.
// The caller holds the lock.
func (l *Lookout) startPolling() {
	if !l.polling && !l.closed {
		l.polling, l.idleSince = true, time.Time{}
		l.goroutines.Go(l.poll)
	}
}

// poll glances at each target when its time has come, until no caller has waited for a
// while.
func (l *Lookout) poll() {
	var pauseUntil time.Time
	for {
		batch, wait, ended := l.nextBatch(pauseUntil)
		switch {
		case ended:
			return
		case len(batch) > 0:
			begun := l.now()
			l.glance(batch)
			pauseUntil = l.now().Add(pauseAfterGlance(len(batch), l.now().Sub(begun)))
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-l.wakePoller:
		case <-l.ended:
		}
		timer.Stop()
	}
}

// pauseAfterGlance returns how long to pause after a glance.
// A few targets cost the server next to nothing, however long the answer took on a busy
// machine.
func pauseAfterGlance(targets int, took time.Duration) time.Duration {
	return min(glancePauseFactor*took, max(glancePeriod, time.Duration(targets)*time.Millisecond))
}

// nextBatch returns the targets to glance at now, or how long to wait, or that polling
// ends.
func (l *Lookout) nextBatch(pauseUntil time.Time) (batch []*target, wait time.Duration, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if len(l.targets) > 0 {
		l.idleSince = time.Time{}
	} else if l.idleSince.IsZero() {
		l.idleSince = now
	}
	if l.closed || !l.idleSince.IsZero() && now.Sub(l.idleSince) >= linger {
		l.polling = false
		return nil, 0, true
	}
	if len(l.schedule) == 0 {
		return nil, linger, false
	}
	l.startStream(now)
	if wait = max(l.schedule[0].due.Sub(now), pauseUntil.Sub(now)); wait > 0 {
		return nil, wait, false
	}
	// Targets that are due soon join: one more target costs less than one more command.
	soon := now.Add(glancePeriod / 2)
	if l.stream.live > 0 {
		soon = now.Add(streamedGlancePeriod / 4)
	}
	for len(l.schedule) > 0 && len(batch) < maxGlanced && l.schedule[0].due.Before(soon) {
		batch = append(batch, heap.Pop(&l.schedule).(*target))
	}
	return batch, 0, false
}

// glance reads the marks of targets, and requests a read of those that have changed.
func (l *Lookout) glance(batch []*target) {
	ids := make([]string, 0, len(batch))
	for _, t := range batch {
		ids = append(ids, t.id)
	}
	l.mu.Lock()
	r := l.beginRead()
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(l.base, wire.CommandLimit)
	defer cancel()
	marks, err := l.queries.Fingerprints(ctx, ids)
	if err != nil {
		l.log.Debug("a look at transfers that are waited for has failed", slog.Any(words.KeyCause, err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range batch {
		if t.callers == 0 {
			continue
		}
		t.glances++
		switch {
		case err != nil:
			l.update(t, queries.Snapshot{}, err, r)
		case t.latest == nil && t.reads > 0: // the first read is in flight
		case t.latest == nil || t.latest.Err != nil || t.latest.mark != marks[t.id]:
			l.requestRead(t)
		default:
			t.coveredBy = max(t.coveredBy, r.stream)
		}
		l.scheduleGlance(t)
	}
}
