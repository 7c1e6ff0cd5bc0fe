package mongostore

import (
	"context"
	"sync"
	"time"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/wire"
)

// trialPause is how long a trial that was not answered is not repeated.
const trialPause = time.Minute

// trials remember which clusters evaluate a pipeline as they should. It is the zero value
// that is ready for use.
type trials struct {
	mu   sync.Mutex
	done map[collections.Cluster]trial
}

// trial is what is known of a cluster.
type trial struct {
	passed bool
	again  time.Time // when it is tried again; zero: never
}

// begin returns what is known of a cluster. It reports true for who has to try it.
func (t *trials) begin(cluster collections.Cluster, now time.Time) (passed, try bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, ok := t.done[cluster]; ok && (known.again.IsZero() || now.Before(known.again)) {
		return known.passed, false
	}
	t.set(cluster, trial{again: now.Add(trialPause)})
	return false, true
}

// end remembers whether a cluster has passed.
func (t *trials) end(cluster collections.Cluster, passed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set(cluster, trial{passed: passed})
}

func (t *trials) set(cluster collections.Cluster, is trial) {
	if t.done == nil {
		t.done = map[collections.Cluster]trial{}
	}
	t.done[cluster] = is
}

// pipelines reports whether updates of a collection may share a statement. Each process
// tries each cluster once, by a read. Until that is answered they share none.
func (s *Store) pipelines(ctx context.Context, l *collections.Collection) bool {
	if !l.HoldsAccounts() || s.catalog.Routed(l.Commands) {
		return false
	}
	passed, try := s.trials.begin(l.Cluster(), s.catalog.Clock.Now())
	if !try {
		return passed
	}
	passed, err := s.try(ctx, l)
	if err != nil {
		return false
	}
	s.trials.end(l.Cluster(), passed)
	return passed
}

// try has a server evaluate the pipelines on accounts that are not stored.
func (s *Store) try(ctx context.Context, l *collections.Collection) (passed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	t, err := s.bodies.Trial(l.Fields)
	if err != nil {
		return false, err
	}
	got, err := wire.Aggregate(ctx, l.Majority, t.Pipeline)
	return err == nil && t.Passed(got), err
}

// failTrial remembers that a cluster can't evaluate a pipeline.
func (s *Store) failTrial(l *collections.Collection) { s.trials.end(l.Cluster(), false) }
