package pipeline

import (
	"context"
	"sync"
	"time"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/wire"
)

// trialPause is how long a trial that was not answered is not repeated.
const trialPause = time.Minute

// Trials remember which clusters evaluate a pipeline as they should. It is the zero value
// that is ready for use.
type Trials struct {
	mu   sync.Mutex
	done map[collections.Cluster]trialResult
}

// trialResult is what is known of a cluster.
type trialResult struct {
	passed bool
	again  time.Time // when it is tried again; zero: never
}

// Passed reports whether a collection's cluster has passed the trial. Each process tries
// each cluster once, by a read. Until that is answered none has passed.
func (t *Trials) Passed(ctx context.Context, l *collections.Collection, bodies Bodies, now time.Time) bool {
	passed, try := t.begin(l.Cluster(), now)
	if !try {
		return passed
	}
	passed, err := bodies.try(ctx, l)
	if err != nil {
		return false
	}
	t.end(l.Cluster(), passed)
	return passed
}

// Failed remembers that a collection's cluster can't evaluate a pipeline.
func (t *Trials) Failed(l *collections.Collection) { t.end(l.Cluster(), false) }

// begin returns what is known of a cluster. try is true for the one caller that has to
// try it.
func (t *Trials) begin(cluster collections.Cluster, now time.Time) (passed, try bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, ok := t.done[cluster]; ok && (known.again.IsZero() || now.Before(known.again)) {
		return known.passed, false
	}
	t.set(cluster, trialResult{again: now.Add(trialPause)})
	return false, true
}

// end remembers whether a cluster has passed.
func (t *Trials) end(cluster collections.Cluster, passed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set(cluster, trialResult{passed: passed})
}

func (t *Trials) set(cluster collections.Cluster, result trialResult) {
	if t.done == nil {
		t.done = map[collections.Cluster]trialResult{}
	}
	t.done[cluster] = result
}

// try has a server evaluate the pipelines on accounts that are not stored.
func (b Bodies) try(ctx context.Context, l *collections.Collection) (passed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	t, err := b.Trial(l.Fields)
	if err != nil {
		return false, err
	}
	got, err := wire.Aggregate(ctx, l.Majority, t.Pipeline)
	return err == nil && t.Passed(got), err
}
