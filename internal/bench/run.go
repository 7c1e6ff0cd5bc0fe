package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// run is the benchmark as it runs.
type run struct {
	timing      timing
	rounds      int
	deployments map[int]*deployment // by number of nodes
	baseline    string              // the program that plays the baseline
	touched     int                 // see deployment
	watched     bool                // a change stream is open all the time
	counter     int                 // counts rounds
	progress    progress
}

// group measures the cells of a group in alternating rounds.
func (r *run) group(ctx context.Context, g group, into results) (err error) {
	r.progress.begins(g)
	stands, err := r.stands(ctx, g)
	defer func() { err = errors.Join(err, closeAll(context.WithoutCancel(ctx), stands)) }()
	if err != nil {
		return err
	}
	for n := range r.rounds {
		for _, i := range turns(n, len(g.Cells)) {
			c := g.Cells[i]
			r.counter++
			f, err := stands[sharedCell(c)].measure(ctx, round{
				Load: c.Load, Callers: c.Callers, Number: r.counter, Seed: uint64(n), Timing: r.timing,
			})
			if err != nil {
				return fmt.Errorf("%s: %w", c, err)
			}
			into[c] = append(into[c], f)
			r.progress.shows(c, f)
		}
	}
	return nil
}

// stands opens the stands of a group side by side, as most of that is waiting.
// It returns those that are open, whatever the error is.
func (r *run) stands(ctx context.Context, g group) (map[cell]*stand, error) {
	opened := map[cell]*stand{}
	var mu sync.Mutex
	var all errgroup.Group
	for n, c := range g.Cells {
		at := sharedCell(c)
		if slices.ContainsFunc(g.Cells[:n], func(earlier cell) bool { return sharedCell(earlier) == at }) {
			continue
		}
		d, err := r.deployment(ctx, c.Nodes)
		if err != nil {
			return opened, errors.Join(err, all.Wait())
		}
		all.Go(func() error {
			s, err := openStand(ctx, d, fmt.Sprint(d.prefix, n), c)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			opened[at] = s
			return nil
		})
	}
	return opened, all.Wait()
}

// closeAll closes stands side by side.
func closeAll(ctx context.Context, stands map[cell]*stand) error {
	var all errgroup.Group
	for _, s := range stands {
		all.Go(func() error { return s.close(ctx) })
	}
	return all.Wait()
}

// turns returns the order in which the cells of a round have their turns.
// It begins elsewhere in each second round, and every other round runs backwards: so no
// cell always follows the same one, and of two cells each is first as often as the other.
func turns(round, cells int) []int {
	order := make([]int, cells)
	for i := range order {
		order[i] = (i + round/2) % cells
	}
	if round%2 == 1 {
		slices.Reverse(order)
	}
	return order
}

// sharedCell returns what cells have in common that can share one stand.
func sharedCell(c cell) cell {
	c.Load, c.Callers = "", 0
	return c
}

// deployment returns the replica set of that many nodes, and starts it when it is first
// wanted.
// It stops the others then, because they would take a part of the machine.
func (r *run) deployment(ctx context.Context, nodes int) (*deployment, error) {
	if d := r.deployments[nodes]; d != nil {
		return d, nil
	}
	if err := r.close(ctx); err != nil {
		return nil, err
	}
	d, err := deploy(ctx, nodes)
	if err != nil {
		return nil, err
	}
	d.baseline, d.touched = r.baseline, r.touched
	r.deployments[nodes] = d
	if r.watched {
		return d, d.watch(ctx)
	}
	return d, nil
}

// close stops all servers.
func (r *run) close(ctx context.Context) error {
	var failed []error
	for nodes, d := range r.deployments {
		failed = append(failed, d.close(context.WithoutCancel(ctx)))
		delete(r.deployments, nodes)
	}
	return errors.Join(failed...)
}
