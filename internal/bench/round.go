package main

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// stretch is how many times its length a window may grow to, if transfers are so slow
	// that not each caller has seen one end.
	stretch = 4
	// pollInterval is the pause between two checks for that.
	pollInterval = 10 * time.Millisecond
)

// timing says how long a round lasts.
type timing struct {
	// Warmup is the time before anything is counted.
	Warmup time.Duration
	// Window is the time in which transfers are counted, at least.
	Window time.Duration
	// Grace is the time after the window for transfers in progress.
	Grace time.Duration
}

// round is one measurement of one contender, or one process's part of it.
type round struct {
	Load    string
	Callers int
	First   int // number of the first caller
	// Number is the number of the round, from which the IDs of its transfers are made.
	Number int
	// Seed is what its accounts are drawn from.
	Seed   uint64
	Timing timing
}

// gate says when the callers stop.
type gate struct {
	opens time.Time // when the window opens
	shuts atomic.Int64
	ended atomic.Int64 // transfers since then
}

// caller is one loop.
// It makes one transfer after the other, or one batch after the other.
type caller struct {
	stream  *stream
	orders  []order
	alone   *chain // counts the waits of a caller who is alone
	samples samples
	err     error
}

// play moves money for the length of a round.
// Nothing is in progress when it returns.
func (s *stand) play(ctx context.Context, r round) (samples, error) {
	loops, share := s.contender.shares(r.Callers)
	callers := make([]*caller, loops)
	for i := range callers {
		orders, err := newStream(r.Load, len(s.bank.names), r.Seed, 'r', r.Number, r.First+i)
		if err != nil {
			return samples{}, err
		}
		callers[i] = &caller{stream: orders, orders: make([]order, share)}
		if r.Callers == 1 {
			callers[i].alone = &s.bank.meter.chain
		}
	}
	patience, lose := context.WithCancel(ctx)
	g := &gate{opens: time.Now().Add(r.Timing.Warmup)}
	g.shuts.Store(math.MaxInt64)
	sent := s.bank.meter.commands.Load()
	var all, keeper sync.WaitGroup
	for _, c := range callers {
		all.Go(func() { c.run(patience, g, s.mover) })
	}
	keeper.Go(func() { g.keep(patience, r, lose) })
	all.Wait()
	lose()
	keeper.Wait()
	together := samples{Window: time.Unix(0, g.shuts.Load()).Sub(g.opens)}
	for _, c := range callers {
		if c.err != nil {
			return samples{}, fmt.Errorf("%s, %s load, %d callers: %w", s.contender.name, r.Load, r.Callers, c.err)
		}
		together.append(c.samples)
	}
	if s.contender.marks {
		// What was put off until after the answer is a part of what a transfer costs.
		if err := s.bank.awaitFinished(ctx); err != nil {
			return samples{}, err
		}
	}
	together.Commands = s.bank.meter.commands.Load() - sent
	return together, ctx.Err()
}

// keep closes the window when it has been open for its length and as many transfers have
// ended as there are callers, or when it has been open for too long.
// Some time later it gives up on the transfers in progress.
func (g *gate) keep(ctx context.Context, r round, lose func()) {
	shut := g.opens.Add(r.Timing.Window)
	latest := g.opens.Add(stretch * r.Timing.Window)
	on := wait(ctx, time.Until(shut))
	for on && g.ended.Load() < int64(r.Callers) && time.Now().Before(latest) {
		on = wait(ctx, pollInterval)
	}
	g.shuts.Store(time.Now().UnixNano())
	wait(ctx, r.Timing.Grace)
	lose()
}

// wait returns false if ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (g *gate) isShut(at time.Time) bool { return at.UnixNano() >= g.shuts.Load() }

// run moves money until the window is closed.
// A transfer that is in progress when patience ends counts with the time that it has
// lasted.
func (c *caller) run(patience context.Context, g *gate, m mover) {
	for begun := time.Now(); !g.isShut(begun) && patience.Err() == nil; {
		c.stream.fill(c.orders)
		err := c.move(patience, m)
		ended := time.Now()
		cut := err != nil && patience.Err() != nil
		if err != nil && !cut {
			c.err = err
			return
		}
		if !cut {
			c.samples.Done += len(c.orders)
		}
		if ended.After(g.opens) {
			g.ended.Add(int64(len(c.orders)))
			c.samples.add(ended.Sub(begun), len(c.orders), !g.isShut(ended))
		}
		begun = ended
	}
}

// move makes the orders, and counts the waits of a caller who is alone.
func (c *caller) move(ctx context.Context, m mover) error {
	if c.alone == nil {
		return m.move(ctx, c.orders)
	}
	c.alone.begin()
	err := m.move(ctx, c.orders)
	if waits := c.alone.end(); err == nil {
		c.samples.Waits = append(c.samples.Waits, waits)
	}
	return err
}
