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
	w := worker{coordinator: c, slots: make(chan struct{}, workerWidth)}
	w.all.Go(func() {
		c.periodically(ctx, min(max(c.settings.stallThreshold, shortestSweep), longestSweep), "a recovery sweep was cut short", w.recover)
	})
	w.all.Go(func() { c.periodically(ctx, expiryPeriod, "a look for expired holds was cut short", w.expire) })
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
	submitted   inHand
	swept       inHand
}

// recover sweeps what has stalled and what has expired.
func (w *worker) recover(ctx context.Context) error {
	if err := w.coordinator.ready(ctx); err != nil {
		return err
	}
	s := w.coordinator.newSweep(&w.swept)
	err := s.everything(ctx)
	w.leave(s)
	return err
}

// expire sweeps the holds that have expired.
func (w *worker) expire(ctx context.Context) error {
	s := w.coordinator.newSweep(&w.swept)
	s.often = true
	err := s.over(ctx, w.coordinator.store.Expired(ctx), expire())
	w.leave(s)
	return err
}

// leave waits for what a sweep has begun, but not for long: transfers to a cluster that is away must not keep the next sweep from what
// has stalled elsewhere. They go on in the background, and when many of them hang the sweeps pass over the others like them: see route.
func (w *worker) leave(s *sweep) {
	s.step()
	w.all.Go(func() { s.end() })
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
		if !w.submitted.reserve(t.ID) {
			continue
		}
		select {
		case w.slots <- struct{}{}:
		case <-ctx.Done():
			w.submitted.release(t.ID)
			return
		}
		w.all.Add(1)
		go func() {
			defer func() { <-w.slots; w.submitted.release(t.ID); w.all.Done() }()
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

// inHand are the transfers that are worked on, by ID. The zero value is none.
type inHand struct {
	mu     sync.Mutex
	busy   map[string]bool
	routes routes // of those that are swept
}

// reserve takes a transfer in hand. It reports false for one that is.
func (h *inHand) reserve(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.busy[id] {
		return false
	}
	if h.busy == nil {
		h.busy = map[string]bool{}
	}
	h.busy[id] = true
	return true
}

func (h *inHand) release(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.busy, id)
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
