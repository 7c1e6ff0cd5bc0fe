package engine

import "github.com/mongotransfer/transfer/internal/protocol"

const (
	// mostSubmitted is how many submitted transfers are in progress at most while there
	// are callers of new ones. A worker has a thousand at hand, and no deadline: callers
	// would wait as long as all of those take.
	mostSubmitted = fewInProgress
	// mostYielding bounds how many claims are set aside. Each has a place of the gate.
	mostYielding = 1024
)

// yields sets the claim of a submitted transfer aside, if there are callers of new
// transfers and enough others are in progress that were submitted.
// When one of those ends, the claim is queued again.
// The caller holds the lock.
func (e *Engine) yields(t *task) bool {
	j := t.job
	w := j.waitlist
	if t.Op.Claim != protocol.FromInitiated || !j.claimSentAt.IsZero() || !w.isYielding() || w.yielding.length >= mostYielding {
		return false
	}
	w.yielding.push(t)
	return true
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
