package overload

import (
	"context"
	"time"

	transfer "github.com/mongotransfer/transfer"
)

// playSlow silences one of three clusters while thousands of callers want to move money
// there.
// Transfers that don't involve it go on, and so do those that are submitted elsewhere.
func playSlow(ctx context.Context, s *scene) error {
	const beside = 64
	many := s.number(2500, 2500)
	s.callers = beside + many
	b, err := s.openThree(ctx)
	if err != nil {
		return err
	}
	m, err := b.join(ctx, lines{"dead": 0})
	if err != nil {
		return err
	}
	dead := m.moves(func() transfer.Request { return b.across("", "dead") })
	// The library remembers the accounts that these calls use.
	// So later some transfers claim before they hang, and others don't get that far.
	if err := forEach(ctx, accounts, func(ctx context.Context, _ int) error { return dead(ctx) }); err != nil {
		return err
	}
	c := gather(ctx, beside, time.Minute, m.moves(func() transfer.Request { return b.across("", "healthy") }))
	var hanging *flood
	var told int64
	var drained time.Duration
	w, err := s.compare(ctx, c, s.duration(6*time.Second, 1200*time.Millisecond), func(ctx context.Context) error {
		m.clusters["dead"].line.set(silent)
		hanging = rush(ctx, many, giveUp, dead)
		return nil
	}, func(context.Context) error {
		told += hanging.answers()
		m.clusters["dead"].line.set(flowing)
		healed := time.Now()
		hanging.answered()
		drained = max(drained, time.Since(healed))
		s.expected("callers of the silent cluster told something odd", &hanging.tally)
		return nil
	})
	if err != nil {
		return err
	}
	c.disperse()
	s.keeps("transfers beside 2,500 that hang", w.before, w.during, 0.8)
	s.atMost("who hang and were told something meanwhile", told, 0)
	s.atMost("callers elsewhere left in doubt", c.doubt.Load(), 0)
	s.expected("callers elsewhere told something odd", &c.tally)
	s.note("until those that hung have answers, once it is back", drained.Round(time.Millisecond))
	s.atMost("commands under way at once to the silent cluster", m.clusters["dead"].counts.inFlight.peak.Load(), mostInFlight)
	if _, err := b.drained(ctx); err != nil {
		return err
	}
	if err := playQueue(ctx, s, b, m); err != nil {
		return err
	}
	return b.audit(ctx)
}

// openThree opens a bank on three clusters.
func (s *scene) openThree(ctx context.Context) (*bank, error) {
	healthy, err := s.server(ctx)
	if err != nil {
		return nil, err
	}
	dead, err := s.server(ctx)
	if err != nil {
		return nil, err
	}
	return s.open(ctx, map[string]string{"healthy": healthy, "dead": dead})
}

// playQueue submits thousands of transfers to the silent cluster and then a few
// elsewhere, which are run in time.
func playQueue(ctx context.Context, s *scene, b *bank, m *member) error {
	const (
		samples = 3
		bound   = 2 * time.Second
	)
	working, leave := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- m.Run(working) }()
	line := m.clusters["dead"].line
	line.set(silent)
	err := forEach(ctx, s.number(10_000, 1500), func(ctx context.Context, _ int) error {
		_, err := m.Submit(ctx, b.across("", "dead"))
		return err
	})
	pause(ctx, s.duration(5*time.Second, time.Second))
	var longest time.Duration
	for i := 0; i < samples && longest <= slack*bound && err == nil; i++ {
		var took time.Duration
		took, err = b.run(ctx, m, b.across("", "healthy"))
		longest = max(longest, took)
	}
	if err == nil {
		s.within("until one submitted elsewhere is final", longest, bound)
		line.set(flowing)
		var took time.Duration
		took, err = b.drained(ctx)
		s.note("until all that were queued are final, once it is back", took.Round(time.Millisecond))
	}
	line.set(flowing)
	leave()
	if ran := <-ended; err == nil {
		err = ran
	}
	return err
}

// run submits a transfer and returns how long it took until it was final, or how long
// that was waited for.
func (b *bank) run(ctx context.Context, m *member, req transfer.Request) (time.Duration, error) {
	const limit = 10 * time.Second
	if _, err := m.Submit(ctx, req); err != nil {
		return 0, err
	}
	took, _, err := eventually(ctx, limit, func() (bool, error) {
		rec, err := b.observer.Get(ctx, req.ID)
		return rec.State.Final(), err
	})
	return took, err
}
