package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"
)

// stand is one contender at work on one deployment, with a bank of its own.
type stand struct {
	deployment *deployment
	contender  contender
	bank       *bank
	mover      mover
	// workers are other processes that play instead of this one.
	workers []*worker
}

// openStand prepares a contender in a database with the given name.
// This process plays it, or several others do.
func openStand(ctx context.Context, d *deployment, database string, c cell) (_ *stand, err error) {
	j := job{
		Database: database, Contender: c.Contender, Accounts: c.Size.Accounts, Touched: d.touched,
		URI: d.uri, Account: d.patterns.account.document, Transfer: d.patterns.transfer.document,
	}
	s, err := join(ctx, d, j, true)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", c, errors.Join(err, s.close(context.WithoutCancel(ctx))))
		}
	}()
	if err := s.bank.fill(ctx, c.Size, s.contender); err != nil {
		return nil, err
	}
	program, apart, err := s.played(d)
	if err != nil {
		return nil, err
	}
	j.Contender = cmp.Or(s.contender.apart, j.Contender)
	for j.Number = 1; (c.Processes > 1 || apart) && j.Number <= c.Processes; j.Number++ {
		w, err := startWorker(program, j)
		if err != nil {
			return nil, err
		}
		s.workers = append(s.workers, w)
	}
	if apart {
		return s, nil // The workers have warmed up.
	}
	return s, s.warmUp(ctx, 0)
}

// played returns the program that plays, and whether only other processes do.
func (s *stand) played(d *deployment) (program string, apart bool, err error) {
	apart = s.contender.apart != ""
	if s.contender.name != "baseline" {
		program, err = os.Executable()
		return program, apart, err
	}
	if d.baseline == "" {
		return "", apart, errors.New("the contender baseline wants a program: -baseline")
	}
	return d.baseline, apart, nil
}

// join returns a stand over the documents that exist, or over none if fresh is set.
func join(ctx context.Context, d *deployment, j job, fresh bool) (*stand, error) {
	c, err := contenderOf(j.Contender)
	if err != nil {
		return nil, err
	}
	b, err := openBank(d, j.Database, j.Accounts, c.client...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	if fresh {
		err = b.db.Drop(ctx)
	}
	s := &stand{deployment: d, contender: c, bank: b}
	if err == nil {
		s.mover, err = c.open(ctx, b)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, errors.Join(err, b.client.Disconnect(ctx)))
	}
	return s, nil
}

const (
	maxTouched = 10_000
	touching   = 64
)

// warmUp moves money between all accounts once, unless there are too many, or the run is
// a quick one.
// So the service that is measured has already run for a while.
// Nothing is left to be done then that would count as a part of another round.
func (s *stand) warmUp(ctx context.Context, process int) error {
	var all errgroup.Group
	all.SetLimit(touching)
	pairs, err := newStream("uniform", len(s.bank.names), 0, 't', process, 0)
	if err != nil {
		return err
	}
	for i := 0; i+1 < min(len(s.bank.names), cmp.Or(s.deployment.touched, maxTouched)); i += 2 {
		orders := make([]order, 1)
		pairs.fill(orders)
		orders[0].from, orders[0].to = i, i+1
		all.Go(func() error { return s.mover.move(ctx, orders) })
	}
	if err := all.Wait(); err != nil || !s.contender.marks {
		return err
	}
	return s.bank.awaitFinished(ctx)
}

// players returns the processes that play: this one, if there are no others.
func (s *stand) players() []player {
	if len(s.workers) == 0 {
		return []player{s}
	}
	var others []player
	for _, w := range s.workers {
		others = append(others, w)
	}
	return others
}

func (s *stand) pid() int { return os.Getpid() }

// close closes the contender and removes its documents.
func (s *stand) close(ctx context.Context) error {
	var failed []error
	for _, w := range s.workers {
		failed = append(failed, w.end())
	}
	return errors.Join(append(failed, s.mover.close(ctx), s.bank.close(ctx))...)
}
