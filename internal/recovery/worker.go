package recovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

const (
	// workerWidth is how many submitted transfers one worker works on at once.
	// A cluster that hangs has half of these slots at most: see route.
	workerWidth = 512
	// pollPeriod is the time between two scans for submitted transfers while there are
	// none.
	pollPeriod = 100 * time.Millisecond
	// takePatience is how long one scan for submitted transfers waits for room, before it
	// passes over what has none.
	takePatience = time.Second
	// recentMargin is how long it may take until a submitted transfer can be found.
	// Where it takes longer, the next scan that goes through everything finds it.
	recentMargin = 2 * time.Second
	// drainLimit is how long a worker waits, after its context has ended, for what it has
	// begun.
	drainLimit = 10 * time.Second
	// Recovery sweeps come once per stall threshold, within these bounds.
	shortestPeriod = time.Second
	longestPeriod  = time.Minute
	// refusedPause is how long a worker that lacks a right begins with nothing new.
	//
	//  1. The right to write to the accounts is revoked by mistake.
	//  2. Without the pause all submitted transfers would be claimed within seconds.
	//  3. Each of them would be stuck until the right is back and recovery has come by.
	refusedPause = 5 * time.Second
	// expiryPeriod is the time between two searches for holds that have expired.
	expiryPeriod = time.Second
	// countPeriod is the time between two counts of what is unfinished, where somebody
	// watches.
	// It is longer where counts take long: they take a hundredth of the time at most.
	countPeriod = 15 * time.Second
	countShare  = 100
)

// worker runs submitted transfers, and sweeps again and again.
type worker struct {
	*Settings
	lose      context.CancelCauseFunc // ends the work for good
	all       sync.WaitGroup
	refused   atomic.Bool // a right is missing
	submitted *slots
	swept     *slots
	failing   trouble // the search for submitted transfers; only the loop of Work uses it
}

// Work runs submitted transfers whose time has come, voids holds that have expired, and
// recovers what has stalled, until ctx ends.
func Work(ctx context.Context, settings Settings) error {
	if err := settings.readyOnceUp(ctx); err != nil {
		return err
	}
	ctx, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	working, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	w := worker{
		Settings: &settings, lose: lose,
		submitted: newSlots(&settings, settings.workerSlots()),
		swept:     newSlots(&settings, settings.sweepSlots()),
	}
	w.startSweeps(ctx)
	for ctx.Err() == nil && !w.Engine.Closed() {
		w.idle(ctx, working, w.take(ctx, working, w.submitted.newScan(takePatience), 0))
		if w.refused.Swap(false) {
			w.pause(ctx, refusedPause, nil)
		}
	}
	patience := time.AfterFunc(drainLimit, giveUp)
	defer patience.Stop()
	w.all.Wait()
	w.Engine.Drain(working)
	if cause := context.Cause(ctx); w.lasting(cause) {
		return cause
	}
	return nil
}

// startSweeps starts what a worker does beside the submitted transfers: a cluster that is
// away must not keep these waiting.
func (w *worker) startSweeps(ctx context.Context) {
	w.all.Go(func() {
		if err := w.Permits(ctx); w.Refused(err) {
			w.lose(fmt.Errorf("a worker: %w", w.Named(err)))
		}
	})
	w.all.Go(func() {
		period := min(max(w.Threshold, shortestPeriod), longestPeriod)
		w.periodically(ctx, period, w.swept.revived, "a recovery sweep was cut short", w.recover)
	})
	w.all.Go(func() {
		w.periodically(ctx, expiryPeriod, nil, "a look for expired holds was cut short", w.expire)
	})
	if w.Count != nil {
		w.all.Go(func() {
			w.periodically(ctx, countPeriod, nil, "what is unfinished could not be counted", w.count)
		})
	}
}

// readyOnceUp waits until the servers are known to be fit.
// It returns nil when ctx ends.
func (s *Settings) readyOnceUp(ctx context.Context) error {
	for away := (trouble{}); ; {
		err := s.Ready(ctx)
		if err == nil || errors.Is(err, s.ErrClosed) || errors.Is(err, collections.ErrUnsupported) || s.lasting(err) {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		s.Log.Log(ctx, away.level(s.Now()), "the server does not answer yet", slog.Any(words.KeyCause, err))
	}
}

// periodically does something at once, and then once per period and whenever it is woken,
// until ctx ends.
// The job returns how long the pause after it is, at least.
func (w *worker) periodically(
	ctx context.Context, period time.Duration, wake <-chan struct{}, failed string,
	job func(context.Context) (time.Duration, error),
) {
	for failing := (trouble{}); !w.Engine.Closed(); {
		begun := w.Now()
		rest, err := job(ctx)
		switch {
		case err == nil:
			failing.over()
		case ctx.Err() == nil:
			w.Log.Log(ctx, failing.level(w.Now()), failed, slog.Any(words.KeyCause, err))
		}
		if w.Refused(err) {
			rest = max(rest, refusedPause)
		}
		if !w.pause(ctx, max(rest, period-w.Now().Sub(begun)), wake) {
			return
		}
	}
}

// recover sweeps what has stalled and what has expired.
func (w *worker) recover(ctx context.Context) (rest time.Duration, err error) {
	if err := w.Ready(ctx); err != nil {
		return 0, err
	}
	s := newSweep(w.Settings, w.swept)
	err = s.everything(ctx)
	w.leave(s)
	return s.rest, w.loseIfDisconnected(err)
}

// expire sweeps the holds that have expired.
func (w *worker) expire(ctx context.Context) (rest time.Duration, err error) {
	s := newSweep(w.Settings, w.swept)
	s.quiet = true
	err = s.recoverExpired(ctx)
	w.leave(s)
	return s.rest, w.loseIfDisconnected(err)
}

// count counts what is unfinished.
func (w *worker) count(ctx context.Context) (rest time.Duration, err error) {
	begun := w.Now()
	err = w.loseIfDisconnected(w.Count(ctx))
	return countShare * w.Now().Sub(begun), err
}

// loseIfDisconnected ends the work where the client was disconnected: no search finds
// anything any more.
// It returns the error.
func (w *worker) loseIfDisconnected(err error) error {
	if wire.Disconnected(err) {
		w.lose(err)
	}
	return err
}

// leave waits for what a sweep has begun, but not for long: transfers to a cluster that
// is away must not keep the next sweep from what has stalled elsewhere.
// They go on in the background.
// When many of them hang the sweeps pass over the others like them: see route.
func (w *worker) leave(s *sweep) {
	s.waitForStep(stepLimit)
	w.all.Go(func() { s.tell(s.end()) })
}

// take begins with the submitted transfers whose time has come and that have room.
// If recent is positive, it leaves out those that could have been found for longer than
// that.
func (w *worker) take(ctx, working context.Context, n *scan, recent time.Duration) *scan {
	for n.next() && ctx.Err() == nil {
		for t, err := range w.Queries.Initiated(ctx, recent, n.leftOut()...) {
			if err == nil {
				w.failing.over()
				w.begin(ctx, working, n, t)
			} else if w.loseIfDisconnected(err) != nil && ctx.Err() == nil {
				w.refused.Store(w.refused.Load() || w.Refused(err))
				w.Log.Log(ctx, w.failing.level(w.Now()), "a look for submitted transfers has failed",
					slog.Any(words.KeyCause, err))
			}
			if n.anew || ctx.Err() != nil {
				break
			}
		}
	}
	return n
}

// begin begins with a submitted transfer, in the background, unless it is in progress or
// has no room.
func (w *worker) begin(ctx, working context.Context, n *scan, t document.Transfer) {
	if !w.submitted.reserve(t.ID) {
		return
	}
	r := w.submitted.routeOf(t)
	if !n.enter(ctx, r) {
		w.submitted.release(t.ID)
		return
	}
	begun := w.Now()
	w.all.Go(func() {
		how, err := w.Run(working, t)
		if w.Refused(err) {
			w.refused.Store(true)
		}
		w.submitted.leave(r, begun, how)
		w.submitted.release(t.ID)
	})
}

// idle waits until it is time for the next scan.
// After a scan that has left out what has no room it waits longer, since the server has
// gone through all of that.
// Meanwhile it begins with what is new, but not on the routes on which older transfers
// wait.
func (w *worker) idle(ctx, working context.Context, n *scan) {
	end, incomplete := w.Now().Add(n.pause()), n.incomplete()
	for w.pause(ctx, pollPeriod, w.Submitted) && len(incomplete) > 0 && w.Now().Before(end) {
		recent := w.submitted.newScan(takePatience)
		recent.leaveOut(incomplete)
		w.take(ctx, working, recent, w.Now().Sub(n.begun)+recentMargin)
		if !w.pause(ctx, recent.pause(), nil) {
			return
		}
	}
}
