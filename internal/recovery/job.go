package recovery

import (
	"context"
	"log/slog"
	"time"

	"github.com/mongotransfer/transfer/internal/liveness"
	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/words"
)

const (
	// bellPeriod is the time between two questions for what there is to do.
	// A transfer that another process has submitted is found within it, as a rule.
	bellPeriod = liveness.LookPeriod
	// bellFactor is how many times as long as the question took the pause after it is, so
	// that a busy server is asked less often.
	// The pause is never longer than longestBell.
	bellFactor  = 3
	longestBell = 600 * time.Millisecond
	// retryPause is how long a worker waits, at most, before it tries again what has
	// failed.
	//
	//  1. The server fails all commands for two seconds, and the searches with them.
	//  2. It works again, and nothing is submitted, so nobody wakes a job.
	//  3. Without the limit the job would wait for the end of its period, and the worker
	//     would be called unhealthy although everything works.
	retryPause = 2 * time.Second
)

// job is something that a worker does again and again.
type job struct {
	name string
	// aside says that the worker works without it, too: see [Health].
	aside bool
	// wake has it done early.
	wake <-chan struct{}
	// later says that the first round waits, as if there had been one before.
	later bool
	// period is the longest time between two rounds, and rest the shortest.
	period, rest time.Duration
	// failed is logged where a round fails.
	failed string
	// do does one round.
	// It returns how long the pause after it is, at least.
	do func(context.Context) (time.Duration, error)
}

// repeat does a job again and again, until ctx ends.
func (w *worker) repeat(ctx context.Context, j job) {
	if j.later && !w.pause(ctx, min(j.period, longestPeriod), j.wake) {
		return
	}
	for failing := (trouble{}); !w.Engine.Closed(); {
		if !j.aside {
			w.shift.ask(j.name)
		}
		begun := w.Now()
		rest, err := j.do(ctx)
		switch {
		case err == nil:
			failing.over()
			w.shift.done(j.name)
		case ctx.Err() == nil:
			w.shift.failed(j.name, w.Named(err))
			w.Log.Log(ctx, failing.level(w.Now()), j.failed, slog.Any(words.KeyCause, err))
		}
		if w.Denied(err) {
			rest = max(rest, refusedPause)
		}
		wait := j.period - w.Now().Sub(begun)
		if err != nil && !j.aside {
			wait = min(wait, retryPause)
		}
		if !w.restAndWait(ctx, max(rest, j.rest), wait, j.wake) {
			return
		}
	}
}

// restAndWait waits for the next round of a job: for the rest first, and then until the
// job is woken, or the wait, which includes the rest, is over.
func (w *worker) restAndWait(ctx context.Context, rest, wait time.Duration, wake <-chan struct{}) bool {
	if rest > 0 && !w.pause(ctx, rest, nil) {
		return false
	}
	return w.pause(ctx, wait-rest, wake)
}

// bells wake the jobs of a worker, by what there is to do.
type bells map[queries.Duty]chan struct{}

func newBells() bells {
	all := bells{}
	for _, duty := range []queries.Duty{queries.Submitted, queries.Expired, queries.Quiet} {
		all[duty] = make(chan struct{}, 1)
	}
	return all
}

// ring wakes a job.
func (b bells) ring(duty queries.Duty) {
	select {
	case b[duty] <- struct{}{}:
	default:
	}
}

// ring asks again and again what there is to do, by one command, and wakes who does it.
// So a worker with nothing to do costs next to nothing.
// Where the question fails it wakes everybody: what is wrong with the question need not
// keep the jobs from their work.
func (w *worker) ring(ctx context.Context) {
	var before time.Time
	var failing trouble
	for !w.Engine.Closed() {
		begun := w.Now()
		duties, err := w.Queries.Duties(ctx, liveness.Quiet)
		switch {
		case err == nil:
			failing.over()
			w.watch.Asked(before, begun)
			w.shift.rang()
			for _, duty := range duties {
				w.bells.ring(duty)
			}
		case ctx.Err() == nil:
			w.watch.HeldUp()
			w.shift.failed(asking, w.Named(w.loseIfDisconnected(err)))
			w.Log.Log(ctx, failing.level(w.Now()), "the question for what there is to do has failed", slog.Any(words.KeyCause, err))
			for duty := range w.bells {
				w.bells.ring(duty)
			}
		}
		before = begun
		took := w.Now().Sub(begun)
		if !w.pause(ctx, min(max(bellPeriod-took, bellFactor*took), longestBell), nil) {
			return
		}
	}
}
