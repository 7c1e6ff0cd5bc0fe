package transfer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

const (
	// workerWidth is how many submitted transfers one Run works on at once. A cluster that hangs has
	// half of them at most: see route.
	workerWidth = 512
	// pollPeriod is the time between two looks for submitted transfers while there are none.
	pollPeriod = 100 * time.Millisecond
	// takePatience is how long one look waits for room, until it passes over what there is none for.
	takePatience = time.Second
	// recentMargin is how long it may take until what was submitted can be found. Where it takes
	// longer, it is found by the next look that goes through everything.
	recentMargin = 2 * time.Second
	// drainLimit is how long Run waits, after its context ended, for what it has begun.
	drainLimit = 10 * time.Second
	// Recovery sweeps come once per threshold, within these bounds.
	shortestSweep = time.Second
	longestSweep  = time.Minute
	// barredPause is how long a worker that lacks a right begins with nothing new. 1. The
	// right to write to the accounts is revoked by mistake. 2. All that is submitted
	// would be claimed, within seconds, and each would be stuck, until the right is back
	// and recovery has come by.
	barredPause = 5 * time.Second
	// expiryPeriod is the time between two looks for holds that have expired.
	expiryPeriod = time.Second
)

// Run works until ctx ends: it runs submitted transfers whose time has come, voids holds
// that have expired, and recovers stalled transfers. Many processes may run it at once.
// It returns nil when ctx has ended and what it had begun is done, or goes on in the
// background because a server is away; ErrClosed on a closed coordinator,
// ErrUnsupportedDeployment on an unfit server, and mongo.ErrClientDisconnected once the
// client is disconnected. A server that is away is waited for.
//
// Where a right that it needs is missing when it begins, or the password is wrong, it
// returns ErrUnauthorized. One that is revoked later doesn't end it: it logs a warning
// and tries again every few seconds, so that a mistake in the rights, once it is
// corrected, costs no restart.
func (c *Coordinator) Run(ctx context.Context) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if err := c.readyWhenUp(ctx); err != nil {
		return err
	}
	ctx, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	working, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	submitted := c.newHands(min(workerWidth, max(2, c.settings.group.MaxPending)))
	w := worker{coordinator: c, lost: lost, submitted: submitted, swept: c.newSweepHands()}
	w.all.Go(func() { // beside the work: a cluster that is away must not keep the others waiting
		if err := c.deployment.CheckRights(ctx); refused(err) {
			lost(fmt.Errorf("a worker: %w", named(err)))
		}
	})
	w.all.Go(func() {
		period := min(max(c.settings.stallThreshold, shortestSweep), longestSweep)
		c.periodically(ctx, period, w.swept.revived, "a recovery sweep was cut short", w.recover)
	})
	w.all.Go(func() { c.periodically(ctx, expiryPeriod, nil, "a look for expired holds was cut short", w.expire) })
	for ctx.Err() == nil && !c.engine.Closed() {
		w.rest(ctx, working, w.take(ctx, working, w.submitted.look(takePatience), 0))
		if w.barred.Swap(false) {
			c.rests(ctx, barredPause, nil)
		}
	}
	patience := time.AfterFunc(drainLimit, giveUp)
	defer patience.Stop()
	w.all.Wait()
	if cause := context.Cause(ctx); lasting(cause) {
		return cause
	}
	return nil
}

// readyWhenUp waits until the servers have been seen to be fit. It returns nil when ctx ends.
func (c *Coordinator) readyWhenUp(ctx context.Context) error {
	for away := (trouble{}); ; {
		err := c.readyForAny(ctx)
		if err == nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrUnsupportedDeployment) || lasting(err) {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		c.log.Log(ctx, away.level(c.now()), "the server does not answer yet", slog.Any(words.KeyCause, err))
	}
}

// periodically does something at once and then once per period, and when it is called for, until ctx ends. If that takes long the pause
// after it is longer.
func (c *Coordinator) periodically(
	ctx context.Context, period time.Duration, called <-chan struct{}, failed string, what func(context.Context) (time.Duration, error),
) {
	for fails := (trouble{}); !c.engine.Closed(); {
		begun := c.now()
		rest, err := what(ctx)
		switch {
		case err == nil:
			fails.over()
		case ctx.Err() == nil:
			c.log.Log(ctx, fails.level(c.now()), failed, slog.Any(words.KeyCause, err))
		}
		if refused(err) {
			rest = max(rest, barredPause)
		}
		if !c.rests(ctx, max(rest, period-c.now().Sub(begun)), called) {
			return
		}
	}
}

// rests waits for so long, or until it is called for, and not beyond the end of ctx or of the coordinator, which it reports.
func (c *Coordinator) rests(ctx context.Context, pause time.Duration, called <-chan struct{}) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-called:
	case <-c.engine.Closing():
		return false
	case <-ctx.Done():
		return false
	}
	return true
}

// worker is one run of Run.
type worker struct {
	coordinator *Coordinator
	lost        context.CancelCauseFunc // ends the run
	all         sync.WaitGroup
	barred      atomic.Bool // a right is missing
	submitted   *hands
	swept       *hands
	fails       trouble // the search for submitted transfers; only the loop of Run looks at it
}

// recover sweeps what has stalled and what has expired.
func (w *worker) recover(ctx context.Context) (rest time.Duration, err error) {
	if err := w.coordinator.readyForAny(ctx); err != nil {
		return 0, err
	}
	s := w.coordinator.newSweep(w.swept)
	err = s.everything(ctx)
	w.leave(s)
	return s.rest, w.endsFor(err)
}

// expire sweeps the holds that have expired.
func (w *worker) expire(ctx context.Context) (rest time.Duration, err error) {
	s := w.coordinator.newSweep(w.swept)
	s.often = true
	err = s.recoverEach(ctx, s.expired(ctx), expire())
	w.leave(s)
	return s.rest, w.endsFor(err)
}

// endsFor ends the run where its client was disconnected: no search finds anything any
// more. It returns the error.
func (w *worker) endsFor(err error) error {
	if wire.Disconnected(err) {
		w.lost(err)
	}
	return err
}

// leave waits for what a sweep has begun, but not for long: transfers to a cluster that is away must not keep the next sweep from what
// has stalled elsewhere. They go on in the background, and when many of them hang the sweeps pass over the others like them: see route.
func (w *worker) leave(s *sweep) {
	s.step(recoveryStep)
	w.all.Go(func() { s.end() })
}

// take starts on the submitted transfers that are due, as far as there is room for them; if recent is positive, on those that could not
// have been found for longer.
func (w *worker) take(ctx, working context.Context, l *look, recent time.Duration) *look {
	for l.again() && ctx.Err() == nil {
		for t, err := range w.coordinator.queries.Initiated(ctx, recent, l.routes()...) {
			if err == nil {
				w.fails.over()
				w.begin(ctx, working, l, t)
			} else if w.endsFor(err) != nil && ctx.Err() == nil {
				w.barred.Store(w.barred.Load() || refused(err))
				w.coordinator.log.Log(ctx, w.fails.level(w.coordinator.now()), "a look for submitted transfers has failed",
					slog.Any(words.KeyCause, err))
			}
			if l.anew || ctx.Err() != nil {
				break
			}
		}
	}
	return l
}

// begin starts on a submitted transfer, unless it is in hand or there is no room for it.
func (w *worker) begin(ctx, working context.Context, l *look, t document.Transfer) {
	if !w.submitted.reserve(t.ID) {
		return
	}
	r := w.submitted.of(t)
	if !l.enter(ctx, r) {
		w.submitted.release(t.ID)
		return
	}
	begun := w.coordinator.now()
	w.all.Go(func() {
		how := w.run(working, t)
		w.submitted.leave(r, begun, how)
		w.submitted.release(t.ID)
	})
}

// run runs one submitted transfer, unless another worker was first, and returns what that tells of its route.
func (w *worker) run(ctx context.Context, t document.Transfer) ending {
	limited, cancel := context.WithTimeout(ctx, recoveryLimit) // then it goes on in the background, and others get its place
	defer cancel()
	start := protocol.Start{Claim: protocol.FromInitiated, WaitWhileBusy: true}
	line := w.coordinator.lineOf(ctx, "run", t.ID)
	rec, told, err := w.coordinator.execute(limited, attempt{transfer: t, start: start})
	if told { // else it is another one's
		line.end(ctx, &rec, err)
	}
	switch {
	case refused(err):
		w.barred.Store(true)
		return asAlive
	case told && (rec.State.Final() || rec.State == StateCommitted):
		return asAlive
	case told && gaveUp(ctx, err):
		return asHanging
	}
	return asNothing
}

// rest waits until it is time to look again. After a look that has left out what there is no room for it takes longer, since the server
// has gone through all of that; meanwhile it starts on what is new, but for the routes on which older ones wait.
func (w *worker) rest(ctx, working context.Context, l *look) {
	c := w.coordinator
	end, behind := c.now().Add(l.rest()), l.behind()
	for c.rests(ctx, pollPeriod, c.wake) && len(behind) > 0 && c.now().Before(end) {
		recent := w.submitted.look(takePatience)
		recent.leaveOut(behind)
		w.take(ctx, working, recent, c.now().Sub(l.begun)+recentMargin)
		if !c.rests(ctx, recent.rest(), nil) {
			return
		}
	}
}
