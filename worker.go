package transfer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
)

const (
	workerWidth = 256                    // submitted transfers that one Run works on at once
	pollPeriod  = 100 * time.Millisecond // between two looks for submitted transfers while there are none
	drainLimit  = 10 * time.Second       // how long Run waits, after its context ended, for what it has begun
	// Recovery sweeps come once per threshold, within these bounds.
	shortestSweep = time.Second
	longestSweep  = time.Minute
	expiryPeriod  = time.Second // between two looks for holds that have expired
)

// Run works until ctx ends: it runs submitted transfers whose time has come, voids holds that have expired, and recovers stalled
// transfers. Many processes may run it at once. It returns nil when ctx has ended and what it had begun is done, or goes on in the
// background because a server is away; ErrClosed on a closed coordinator, ErrUnsupportedDeployment on an unfit server. A server that is
// away is waited for.
func (c *Coordinator) Run(ctx context.Context) error {
	if err := c.readyWhenUp(ctx); err != nil {
		return err
	}
	working, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	w := worker{coordinator: c, slots: make(chan struct{}, workerWidth), busy: map[string]bool{}}
	sweep := func(ctx context.Context) error {
		_, err := c.Recover(ctx)
		return err
	}
	w.all.Go(func() {
		c.periodically(ctx, min(max(c.settings.stallThreshold, shortestSweep), longestSweep), "a recovery sweep was cut short", sweep)
	})
	w.all.Go(func() { c.periodically(ctx, expiryPeriod, "a look for expired holds was cut short", c.expireHolds) })
	for ctx.Err() == nil && !c.engine.Closed() {
		w.take(ctx, working)
		w.idle(ctx)
	}
	patience := time.AfterFunc(drainLimit, giveUp)
	defer patience.Stop()
	w.all.Wait()
	return nil
}

// readyWhenUp waits until the servers have been seen to be fit. It returns nil when ctx ends.
func (c *Coordinator) readyWhenUp(ctx context.Context) error {
	for {
		err := c.ready(ctx)
		if err == nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrUnsupportedDeployment) {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		c.log.Warn("the server does not answer yet", slog.Any("cause", err))
	}
}

// periodically does something at once and then once per period, until ctx ends.
func (c *Coordinator) periodically(ctx context.Context, period time.Duration, failed string, what func(context.Context) error) {
	ticks := time.NewTicker(period)
	defer ticks.Stop()
	for !c.engine.Closed() {
		if err := what(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn(failed, slog.Any("cause", err))
		}
		select {
		case <-ticks.C:
		case <-c.engine.Closing():
		case <-ctx.Done():
			return
		}
	}
}

// worker is one run of Run.
type worker struct {
	coordinator *Coordinator
	slots       chan struct{}
	all         sync.WaitGroup
	mu          sync.Mutex
	busy        map[string]bool // by transfer ID
}

// take starts on all submitted transfers that are due.
func (w *worker) take(ctx, working context.Context) {
	for t, err := range w.coordinator.store.Initiated(ctx) {
		if err != nil {
			if ctx.Err() == nil {
				w.coordinator.log.Warn("look for submitted transfers", slog.Any("cause", err))
			}
			continue
		}
		if !w.reserve(t.ID) {
			continue
		}
		select {
		case w.slots <- struct{}{}:
		case <-ctx.Done():
			w.release(t.ID)
			return
		}
		w.all.Add(1)
		go func() {
			defer func() { <-w.slots; w.release(t.ID); w.all.Done() }()
			w.run(working, t)
		}()
	}
}

// run runs one submitted transfer, unless another worker was first.
func (w *worker) run(ctx context.Context, t mongostore.Transfer) {
	ctx, cancel := context.WithTimeout(ctx, recoveryLimit) // then it goes on in the background, and others get its place
	defer cancel()
	start := protocol.Start{Claiming: protocol.FromInitiated, Patient: true}
	_, told, err := w.coordinator.try(ctx, attempt{transfer: t, start: start})
	w.coordinator.log.Debug("ran a submitted transfer", slog.String("transfer", t.ID), slog.Bool("mine", told), slog.Any("error", err))
}

func (w *worker) reserve(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy[id] {
		return false
	}
	w.busy[id] = true
	return true
}

func (w *worker) release(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.busy, id)
}

// idle waits until it is time to look again.
func (w *worker) idle(ctx context.Context) {
	timer := time.NewTimer(pollPeriod)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.coordinator.wake:
	case <-w.coordinator.engine.Closing():
	case <-ctx.Done():
	}
}
