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
	// maxGlance is how many transfers one command glances at.
	maxGlance = 1000
	// glancePause is how many times as long as a glance has taken the next one waits:
	// what they cost the server is bounded, however many wait.
	glancePause   = 20
	firstPeriod   = 5 * time.Millisecond // from when somebody begins to wait to the first glance
	doublings     = 4
	period        = firstPeriod << doublings // between glances at one transfer
	watchedPeriod = 5 * time.Second          // the same while a stream tells of changes
	linger        = time.Second              // for which the keeper stays when nobody waits any more
)

// rounds are the targets to be glanced at, by when they are due. It implements
// heap.Interface.
type rounds []*target

func (r rounds) Len() int           { return len(r) }
func (r rounds) Less(i, j int) bool { return r[i].due.Before(r[j].due) }

func (r rounds) Swap(i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].place, r[j].place = i, j
}

// Push implements heap.Interface.
func (r *rounds) Push(x any) {
	t := x.(*target)
	t.place = len(*r)
	*r = append(*r, t)
}

// Pop implements heap.Interface.
func (r *rounds) Pop() any {
	old := *r
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*r = old[:len(old)-1]
	return t
}

// planned reports whether a target is among the rounds. The caller holds the lock.
func (l *Lookout) planned(t *target) bool {
	return t.place < len(l.rounds) && l.rounds[t.place] == t
}

// plan sets when a target is glanced at next. The caller holds the lock.
func (l *Lookout) plan(t *target) {
	if l.targets[t.id] != t { // nobody waits for it any more
		return
	}
	wait := period
	switch {
	case l.stream.live > 0 && t.covered == l.stream.live && t.sight != nil && t.sight.Err == nil:
		wait = watchedPeriod
	case t.glances < doublings:
		wait = firstPeriod << t.glances
	}
	t.due = l.now().Add(wait/2 + rand.N(wait))
	if l.planned(t) {
		heap.Fix(&l.rounds, t.place)
	} else {
		heap.Push(&l.rounds, t)
	}
	if l.rounds[0] == t {
		l.rouse()
	}
}

// keep sees to it that somebody keeps the rounds. The caller holds the lock.
func (l *Lookout) keep() {
	if !l.keeping && !l.closed {
		l.keeping = true
		l.all.Go(l.keepRounds)
	}
}

// keepRounds glances at what is due, until nobody has waited for a while.
func (l *Lookout) keepRounds() {
	var idle, rest time.Time // since when nobody waits; until when the server is left alone
	for {
		batch, wait, over := l.next(&idle, rest)
		switch {
		case over:
			return
		case len(batch) > 0:
			begun := l.now()
			l.glance(batch)
			rest = l.now().Add(pauseAfter(len(batch), l.now().Sub(begun)))
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-l.wake:
		case <-l.ended:
		}
		timer.Stop()
	}
}

// pauseAfter returns for how long the server is left alone after a glance. A few targets
// cost it next to nothing, however long the answer took on a busy machine.
func pauseAfter(targets int, lasted time.Duration) time.Duration {
	return min(glancePause*lasted, max(period, time.Duration(targets)*time.Millisecond))
}

// next returns the targets to be glanced at now, or how long to wait. It reports whether
// there is nothing left to be done.
func (l *Lookout) next(idle *time.Time, rest time.Time) (batch []*target, wait time.Duration, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if len(l.targets) > 0 {
		*idle = time.Time{}
	} else if idle.IsZero() {
		*idle = now
	}
	if l.closed || !idle.IsZero() && now.Sub(*idle) >= linger {
		l.keeping = false
		return nil, 0, true
	}
	if len(l.rounds) == 0 {
		return nil, linger, false
	}
	l.startStream(now)
	if wait = max(l.rounds[0].due.Sub(now), rest.Sub(now)); wait > 0 {
		return nil, wait, false
	}
	// What is due soon goes along: a command costs more than one more transfer in it.
	soon := now.Add(period / 2)
	if l.stream.live > 0 {
		soon = now.Add(watchedPeriod / 4)
	}
	for len(l.rounds) > 0 && len(batch) < maxGlance && l.rounds[0].due.Before(soon) {
		batch = append(batch, heap.Pop(&l.rounds).(*target))
	}
	return batch, 0, false
}

// glance looks whether something has happened to targets, and has those read.
func (l *Lookout) glance(batch []*target) {
	ids := make([]string, 0, len(batch))
	for _, t := range batch {
		ids = append(ids, t.id)
	}
	l.mu.Lock()
	k := l.begin()
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
			l.show(t, queries.Snapshot{}, err, k)
		case t.sight == nil && t.reads > 0: // the first read is on its way
		case t.sight == nil || t.sight.Err != nil || t.sight.mark != marks[t.id]:
			l.ask(t)
		default:
			t.covered = max(t.covered, k.stream)
		}
		l.plan(t)
	}
}
