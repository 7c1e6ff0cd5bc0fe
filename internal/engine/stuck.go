package engine

import (
	"log/slog"
	"sync"

	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// stuckQueue holds stuck jobs whose reasons are to be stored.
// While one command is in flight the next one gathers, so that hundreds of poisoned
// transfers don't delay the others.
type stuckQueue struct {
	mu      sync.Mutex
	waiting []*job
	busy    bool
}

// stuckReason returns why a job is stuck, if it is.
// A job whose document makes no sense has no reason: nothing is written to that document.
func (j *job) stuckReason() (reason mongostore.StuckReason, stuck bool) {
	x := j.execution
	if j.missingRight != nil && x.Outcome() == protocol.Running {
		return mongostore.StuckReason{
			Attempt: j.attempt, State: x.State(), Participant: j.missingRight.participant, Cause: j.missingRight.cause,
		}, x.Claimed()
	}
	if x.Outcome() != protocol.Stuck || x.Err() != nil {
		return mongostore.StuckReason{}, false
	}
	at := x.StuckAt()
	return mongostore.StuckReason{Attempt: j.attempt, State: x.State(), Participant: at, Cause: j.failedWrites[at]}, true
}

// recordFailedWrite records that the server refused to write to a participant, or to the
// transfer.
func (j *job) recordFailedWrite(participant int, cause error) {
	if j.failedWrites == nil {
		j.failedWrites = map[int]error{}
	}
	j.failedWrites[participant] = cause
}

// queueStuckReason queues a job whose reason is to be stored.
// The job ends after that.
func (e *Engine) queueStuckReason(j *job, reason mongostore.StuckReason) {
	e.log.Warn("a transfer is stuck", slog.String(words.KeyTransfer, words.Clip(j.attempt.Transfer.ID)),
		slog.String(words.KeyCause, reason.Reason().Message))
	e.stuck.mu.Lock()
	defer e.stuck.mu.Unlock()
	e.stuck.waiting = append(e.stuck.waiting, j)
	if e.stuck.busy {
		return
	}
	e.stuck.busy = true
	e.sending.Add(1)
	go func() {
		defer e.sending.Done()
		for jobs := e.stuck.take(e.limits.MaxBatch); len(jobs) > 0; jobs = e.stuck.take(e.limits.MaxBatch) {
			e.storeStuckReasons(jobs)
		}
	}()
}

// take removes at most limit jobs from the queue.
// When it returns none, the queue is no longer busy.
func (q *stuckQueue) take(limit int) []*job {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(limit, len(q.waiting))
	jobs := q.waiting[:n:n]
	q.waiting = q.waiting[n:]
	q.busy = n > 0
	return jobs
}

// noteTries is how often a reason is sent that may not be stored: a connection may break,
// and a primary be replaced. People read the reason, and each sweep gives it again.
const noteTries = 5

// storeStuckReasons stores the reasons of jobs, and ends the jobs even if that fails.
func (e *Engine) storeStuckReasons(jobs []*job) {
	reasons := make([]mongostore.StuckReason, len(jobs))
	for i, j := range jobs {
		reasons[i], _ = j.stuckReason()
	}
	limited, cancel := e.store.WithLimit(e.base, wire.CommandLimit)
	defer cancel()
	result, err := e.store.NoteStuck(limited, reasons)
	for n := 1; n < noteTries && !isKnown(result) && e.Pause(limited, n); n++ {
		result, err = e.store.NoteStuck(limited, reasons)
	}
	if err != nil {
		e.log.Warn("why transfers are stuck could not be stored", slog.Int(words.KeyCount, len(jobs)), slog.Any(words.KeyCause, err))
	}
	for _, j := range jobs {
		j.reply(j.failureWhenStuck())
		e.unregister(j)
	}
	e.startAllBut(nil) // others may have waited for the end of these
}
