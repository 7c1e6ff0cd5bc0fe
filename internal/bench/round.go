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
	// stretch is how many times its length a window may become, where transfers take so long that not each caller has seen one end.
	stretch = 4
	// peek is how often that is looked at.
	peek = 10 * time.Millisecond
)

// timing says how long a round lasts.
type timing struct {
	Warmup time.Duration // before anything is counted
	Window time.Duration // in which transfers are counted, at least
	Grace  time.Duration // after it, for what is under way
}

// round is one measurement of one contender, or one process's share of it.
type round struct {
	Load    string
	Callers int
	First   int    // number of the first caller
	Number  int    // of the round: makes the IDs of its transfers
	Seed    uint64 // what its accounts are drawn from
	Timing  timing
}

// gate tells callers when to stop.
type gate struct {
	opens time.Time // the window
	shuts atomic.Int64
	ended atomic.Int64 // transfers since it was opened
}

// caller is one loop: it wants one transfer after the other, or one batch after the other.
type caller struct {
	stream  *stream
	orders  []order
	samples samples
	err     error
}

// play moves money for the length of a round. Nothing of it is under way when it returns.
func (s *stand) play(ctx context.Context, r round) (samples, error) {
	loops, share := s.contender.shares(r.Callers)
	callers := make([]*caller, loops)
	for i := range callers {
		orders, err := newStream(r.Load, len(s.bank.names), r.Seed, 'r', r.Number, r.First+i)
		if err != nil {
			return samples{}, err
		}
		callers[i] = &caller{stream: orders, orders: make([]order, share)}
	}
	patience, lose := context.WithCancel(ctx)
	g := &gate{opens: time.Now().Add(r.Timing.Warmup)}
	g.shuts.Store(math.MaxInt64)
	sent := s.bank.commands.Load()
	var all, keeper sync.WaitGroup
	for _, c := range callers {
		all.Go(func() { c.run(patience, g, s.mover) })
	}
	keeper.Go(func() { g.keep(patience, r, lose) })
	all.Wait()
	together := samples{
		Commands: s.bank.commands.Load() - sent,
		Window:   time.Unix(0, g.shuts.Load()).Sub(g.opens),
	}
	lose()
	keeper.Wait()
	for _, c := range callers {
		if c.err != nil {
			return samples{}, fmt.Errorf("%s, %s load, %d callers: %w", s.contender.name, r.Load, r.Callers, c.err)
		}
		together.append(c.samples)
	}
	return together, ctx.Err()
}

// keep shuts the window when it has been open for its length and for so many transfers as there are callers, or for too long, and loses
// patience with what is under way some time later.
func (g *gate) keep(ctx context.Context, r round, lose func()) {
	shut := g.opens.Add(r.Timing.Window)
	latest := g.opens.Add(stretch * r.Timing.Window)
	on := wait(ctx, time.Until(shut))
	for on && g.ended.Load() < int64(r.Callers) && time.Now().Before(latest) {
		on = wait(ctx, peek)
	}
	g.shuts.Store(time.Now().UnixNano())
	wait(ctx, r.Timing.Grace)
	lose()
}

// wait reports false if ctx ends first.
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

// run moves money until the window is shut. What is still under way when the patience ends counts as long as it has lasted.
func (c *caller) run(patience context.Context, g *gate, m mover) {
	for begun := time.Now(); !g.isShut(begun) && patience.Err() == nil; {
		c.stream.fill(c.orders)
		err := m.move(patience, c.orders)
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
