package engine

import (
	"context"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// mostSubmitted is how many submitted transfers are in progress at most while there are
// callers of new ones. A worker has hundreds at hand: callers would wait as long as all
// of those take.
const mostSubmitted = fewInProgress

type workerKey struct{}

// ForWorker returns the context of an execution of a submitted transfer by a worker, for
// which no caller waits.
func ForWorker(ctx context.Context) context.Context {
	return context.WithValue(ctx, workerKey{}, true)
}

// yields sets the claim of a submitted transfer aside, if there are callers of new
// transfers and enough others are in progress that were submitted.
// When one of those ends, the claim is queued again.
// Those that are set aside have half of the places at most.
// The caller holds the lock.
func (e *Engine) yields(t *task) bool {
	j := t.job
	w := j.waitlist
	switch {
	case t.Op.Kind != protocol.Claim || !j.submitted || !j.claimSentAt.IsZero() || j.gone():
		return false
	case !w.isYielding() || w.yielding.length >= e.limits.MaxPending/2:
		return false
	}
	w.yielding.push(t)
	return true
}

// gone reports whether nobody waits for a job that has claimed nothing.
func (j *job) gone() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.isWanted()
}

func (w *waitlist) isYielding() bool {
	return w.pace.submitted >= mostSubmitted && w.crowd.inProgress() > 0
}

// count counts a job as in progress, with 1, or no longer, with -1.
// The caller holds the lock.
func (w *waitlist) count(j *job, change int) {
	w.pace.inProgress += change
	if !j.submitted {
		return
	}
	w.pace.submitted += change
	for !w.isYielding() && w.yielding.first != nil {
		t := w.yielding.pop()
		t.lane.enqueueSingle(t)
	}
}
