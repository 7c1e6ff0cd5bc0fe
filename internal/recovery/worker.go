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
	"github.com/mongotransfer/transfer/internal/liveness"
	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

const (
	// workerWidth is how many submitted transfers one worker works on at once.
	// A cluster that hangs has half of these slots at most: see route.
	workerWidth = 512
	// pollPeriod is the time between two scans for submitted transfers while there are
	// any.
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
	// countPeriod is the time between two counts of what is unfinished, where somebody
	// watches.
	// It is longer where counts take long: they take a hundredth of the time at most.
	countPeriod = 15 * time.Second
	countShare  = 100
)

// The names of a worker's jobs, by what they search for.
// The first is what its bell is rung for.
const (
	asking     = "what there is to do"
	submitting = "submitted transfers"
	sweeping   = "stalled transfers"
	expiring   = "expired holds"
	burying    = "dead processes"
	tidying    = "old notes"
	counting   = "unfinished transfers"
)

// worker runs submitted transfers, and sweeps again and again.
type worker struct {
	*Settings
	lose      context.CancelCauseFunc // ends the work for good
	all       sync.WaitGroup
	refused   atomic.Bool // a right is missing
	rivals    rivalry
	submitted *slots
	swept     *slots
	bells     bells
	watch     *liveness.Watch
	shift     *shift
	unable    *memory // what the looks of every second could not finish
	garbled   *memory // submitted transfers that can't be read
	failing   trouble // the search for submitted transfers; only the loop of Work uses it
}

// newWorker returns a worker that has not begun yet.
func newWorker(settings *Settings, shift *shift, lose context.CancelCauseFunc) *worker {
	return &worker{
		Settings: settings, lose: lose,
		submitted: newSlots(settings, settings.workerSlots()),
		swept:     newSlots(settings, settings.sweepSlots()),
		bells:     newBells(),
		watch:     liveness.NewWatch(settings.Process, settings.Now),
		shift:     shift,
		unable:    newMemory(settings.Now, settings.sweepPeriod()),
		garbled:   newMemory(settings.Now, settings.sweepPeriod()),
	}
}

// Work runs submitted transfers whose time has come, voids holds that have expired, and
// recovers what has stalled, until ctx ends.
func Work(ctx context.Context, settings Settings) (err error) {
	shift := settings.Health.begin()
	defer func() { shift.end(err) }()
	defer context.AfterFunc(ctx, shift.leave)()
	if err := settings.readyOnceUp(ctx, shift); err != nil {
		return err
	}
	ctx, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	working, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	w := newWorker(&settings, shift, lose)
	w.startJobs(ctx)
	w.awaitSubmitted(ctx)
	for ctx.Err() == nil && !w.Engine.Closed() {
		w.shift.ask(submitting)
		n := w.take(ctx, working, w.submitted.newScan(takePatience), 0)
		if !n.failed {
			w.shift.done(submitting)
		}
		w.idle(ctx, working, n)
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

// startJobs starts what a worker does beside the submitted transfers: a cluster that is
// away must not keep these waiting.
func (w *worker) startJobs(ctx context.Context) {
	w.all.Go(func() {
		if err := w.Permits(ctx); w.Denied(err) {
			w.lose(fmt.Errorf("a worker: %w", w.Named(err)))
		}
	})
	w.all.Go(func() { w.ring(ctx) })
	for _, j := range w.jobs() {
		w.all.Go(func() { w.repeat(ctx, j) })
	}
}

// jobs returns what a worker does again and again.
func (w *worker) jobs() []job {
	jobs := []job{
		{name: sweeping, period: w.sweepPeriod(), wake: w.swept.revived, failed: "a recovery sweep was cut short", do: w.recover},
		{
			name: expiring, period: longestPeriod, wake: w.bells[queries.Expired], rest: bellPeriod, later: true,
			failed: "a look for expired holds was cut short", do: w.expire,
		},
		{
			name: tidying, aside: true, period: tidyPeriod, later: true,
			failed: "old notes could not be removed", do: w.tidy,
		},
	}
	if w.Threshold > liveness.Silence {
		undertaker := &undertaker{worker: w}
		jobs = append(jobs, job{
			name: burying, period: longestPeriod, wake: w.bells[queries.Quiet], later: true,
			failed: "a look for dead processes was cut short", do: undertaker.look,
		})
	}
	if w.Count != nil {
		jobs = append(jobs, job{
			name: counting, aside: true, period: countPeriod,
			failed: "what is unfinished could not be counted", do: w.count,
		})
	}
	return jobs
}

// readyOnceUp waits until the servers are known to be fit.
// It returns nil when ctx ends.
func (s *Settings) readyOnceUp(ctx context.Context, shift *shift) error {
	for away := (trouble{}); ; {
		err := s.Ready(ctx)
		if err == nil {
			shift.rang()
		}
		if err == nil || errors.Is(err, s.ErrClosed) || errors.Is(err, collections.ErrUnsupported) || s.lasting(err) {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		shift.failed(asking, s.Named(err))
		s.Log.Log(ctx, away.level(s.Now()), "the server does not answer yet", slog.Any(words.KeyCause, err))
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
	s := w.newLook()
	err = s.recoverExpired(ctx)
	w.leave(s)
	return s.rest, w.loseIfDisconnected(err)
}

// newLook returns a sweep that comes again soon.
// What it can't finish is left to the others, which come once per stall threshold.
func (w *worker) newLook() *sweep {
	s := newSweep(w.Settings, w.swept)
	s.quiet, s.unable = true, w.unable
	return s
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
	w.all.Go(func() { s.report(s.end()) })
}

// take begins with the submitted transfers whose time has come and that have room.
// If recent is positive, it leaves out those that could have been found for longer than
// that.
func (w *worker) take(ctx, working context.Context, n *scan, recent time.Duration) *scan {
	for n.next() && ctx.Err() == nil {
		for t, err := range w.Queries.Initiated(ctx, recent, n.leftOut()...) {
			switch {
			case err == nil:
				n.found++
				w.failing.over()
				w.begin(ctx, working, n, t)
			case errors.Is(err, document.ErrUnreadable):
				w.reportGarbled(ctx, t.ID, err)
			default:
				n.failed = true
				w.reportFailed(ctx, err)
			}
			if n.anew || ctx.Err() != nil {
				break
			}
		}
	}
	return n
}

// reportFailed reports that the search for submitted transfers has failed.
func (w *worker) reportFailed(ctx context.Context, err error) {
	if w.loseIfDisconnected(err) == nil || ctx.Err() != nil {
		return
	}
	w.refused.Store(w.refused.Load() || w.Denied(err))
	w.shift.failed(submitting, w.Named(err))
	w.Log.Log(ctx, w.failing.level(w.Now()), "a look for submitted transfers has failed", slog.Any(words.KeyCause, err))
}

// reportGarbled logs that a submitted transfer can't be read, as a warning now and then.
// The search goes on: one document must not make the worker look as if it did nothing.
func (w *worker) reportGarbled(ctx context.Context, id string, err error) {
	level := slog.LevelDebug
	if w.garbled.add(id) {
		level = slog.LevelWarn
	}
	w.Log.LogAttrs(ctx, level, "a submitted transfer can't be read",
		slog.String(words.KeyTransfer, words.Clip(id)), slog.Any(words.KeyCause, err))
}

// begin begins with a submitted transfer, in the background, unless it is in progress or
// has no room, or is left to other workers.
func (w *worker) begin(ctx, working context.Context, n *scan, t document.Transfer) {
	if w.rivals.leaves(n.found) || !w.submitted.reserve(t.ID) {
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
		if w.Denied(err) {
			w.reportDenied(working, t.ID, err)
		}
		w.rivals.ended(how == Overtaken)
		w.submitted.leave(r, begun, how)
		w.submitted.release(t.ID)
	})
}

// reportDenied reports that a submitted transfer could not be run for lack of a right.
func (w *worker) reportDenied(ctx context.Context, id string, err error) {
	w.refused.Store(true)
	err = w.Named(err)
	w.Log.LogAttrs(ctx, w.shift.refused(err), "a submitted transfer could not be run, as a right is missing",
		slog.String(words.KeyTransfer, words.Clip(id)), slog.Any(words.KeyCause, err))
}

// idle waits until it is time for the next scan.
// After a scan that has found nothing, that is when something was submitted, here or
// elsewhere; where the scan has failed it is soon, in any case.
// After a scan that has left out what has no room it waits longer, since the server has
// gone through all of that.
// Meanwhile it begins with what is new, but not on the routes on which older transfers
// wait. It ends soon after one of those answers again.
func (w *worker) idle(ctx, working context.Context, n *scan) {
	end, incomplete := w.Now().Add(n.pause()), n.incomplete()
	if n.found == 0 && len(incomplete) == 0 {
		if n.failed {
			limited, cancel := context.WithTimeout(ctx, retryPause)
			defer cancel()
			ctx = limited
		}
		w.awaitSubmitted(ctx)
		return
	}
	for w.pause(ctx, pollPeriod, w.Submitted) && len(incomplete) > 0 && w.Now().Before(end) {
		recent := w.submitted.newScan(takePatience)
		recent.leaveOut(incomplete)
		w.take(ctx, working, recent, w.Now().Sub(n.begun)+recentMargin)
		if !w.pause(ctx, recent.pause(), nil) || w.submitted.anyRevived() {
			return
		}
	}
}

// awaitSubmitted waits until something was submitted, by this process or by another one.
func (w *worker) awaitSubmitted(ctx context.Context) {
	select {
	case <-w.Submitted:
	case <-w.bells[queries.Submitted]:
	case <-w.Engine.Closing():
	case <-ctx.Done():
	}
}
