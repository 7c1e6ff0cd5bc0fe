package engine

import (
	"log/slog"
	"sync"

	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// obstacles are of runs that are stuck and whose reasons are to be stored: what comes
// while a command is on its way goes out with the next one, so that hundreds of poisoned
// transfers don't hold up the others.
type obstacles struct {
	mu      sync.Mutex
	waiting []*run
	busy    bool
}

// obstacle returns what a run is stuck at, and false if it isn't, or if its document
// makes no sense: nothing is written there.
func (r *run) obstacle() (mongostore.StuckReason, bool) {
	x := r.execution
	if r.barred != nil && x.Outcome() == protocol.Running {
		o := mongostore.StuckReason{
			Attempt: r.work, State: x.State(), Participant: r.barred.participant, Cause: r.barred.cause,
		}
		return o, x.Claimed()
	}
	if x.Outcome() != protocol.Stuck || x.Err() != nil {
		return mongostore.StuckReason{}, false
	}
	at := x.StuckAt()
	return mongostore.StuckReason{Attempt: r.work, State: x.State(), Participant: at, Cause: r.refused[at]}, true
}

// refuses takes down that the server has refused to write to a participant, or to the
// transfer.
func (r *run) refuses(participant int, cause error) {
	if r.refused == nil {
		r.refused = map[int]error{}
	}
	r.refused[participant] = cause
}

// note has a reason stored, and ends the run after that.
func (e *Engine) note(r *run, o mongostore.StuckReason) {
	e.log.Warn("a transfer is stuck", slog.String(words.KeyTransfer, words.Clip(r.work.Transfer.ID)),
		slog.String(words.KeyCause, o.Reason().Message))
	e.obstacles.mu.Lock()
	defer e.obstacles.mu.Unlock()
	e.obstacles.waiting = append(e.obstacles.waiting, r)
	if e.obstacles.busy {
		return
	}
	e.obstacles.busy = true
	e.sending.Add(1)
	go func() {
		defer e.sending.Done()
		for runs := e.obstacles.take(e.limits.MaxBatch); len(runs) > 0; runs = e.obstacles.take(e.limits.MaxBatch) {
			e.storeObstacles(runs)
		}
	}()
}

// take takes some that wait. After none there is nobody who stores.
func (o *obstacles) take(limit int) []*run {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := min(limit, len(o.waiting))
	runs := o.waiting[:n:n]
	o.waiting = o.waiting[n:]
	o.busy = n > 0
	return runs
}

// storeObstacles stores reasons and ends the runs, whether that worked or not.
func (e *Engine) storeObstacles(runs []*run) {
	list := make([]mongostore.StuckReason, len(runs))
	for i, r := range runs {
		list[i], _ = r.obstacle()
	}
	limited, cancel := e.store.WithLimit(e.base, wire.CommandLimit)
	defer cancel()
	if err := e.store.NoteStuck(limited, list); err != nil {
		e.log.Warn("why transfers are stuck could not be stored", slog.Int(words.KeyCount, len(runs)), slog.Any(words.KeyCause, err))
	}
	for _, r := range runs {
		r.answer(r.stuckFailure())
		e.finish(r)
	}
}
