package overload

import (
	"context"
	"fmt"
	"time"

	transfer "github.com/mongotransfer/transfer"
)

const (
	// neverStalls is a stall threshold that is longer than any scenario.
	neverStalls = time.Hour
	// besideHang is the number of callers that move money beside those that ask for the
	// hanging transfer.
	besideHang = 32
)

// playHanging makes thousands of calls for one transfer that hangs in another process.
// That process has claimed it and doesn't end it, because its line holds back what it
// writes to the accounts.
// The callers wait, and cost the others little.
// When the transfer ends after all, all of them get its outcome.
func playHanging(ctx context.Context, s *scene) error {
	const many = 2000
	s.callers = besideHang + many
	b, err := s.open(ctx, nil)
	if err != nil {
		return err
	}
	m, err := b.join(ctx, nil, transfer.WithStallThreshold(neverStalls))
	if err != nil {
		return err
	}
	stalled, err := b.join(ctx, lines{"": 0}, transfer.WithStallThreshold(neverStalls))
	if err != nil {
		return err
	}
	req := b.move(0)
	call := func(by *member) func(context.Context) error { return by.moves(func() transfer.Request { return req }) }
	stalled.home().line.hold(func(command string) bool { return command == "update accounts" })
	first := rush(ctx, 1, giveUp, call(stalled))
	defer first.leave()
	if err := b.claimed(ctx, 1); err != nil {
		return err
	}
	if err := besideHanging(ctx, s, b, m, many, call(m)); err != nil {
		return err
	}

	same := rush(ctx, many, giveUp, call(m))
	pause(ctx, time.Second)
	stalled.home().line.hold(nil)
	first.answered()
	finished := time.Now()
	same.answered()
	s.within("until all are told, once it has ended", time.Since(finished), drainLimit)
	s.atMost("who were not told that it is done", int64(many)-same.done.Load()+1-first.done.Load(), 0)
	if _, err := b.drained(ctx); err != nil {
		return err
	}
	return b.audit(ctx)
}

// besideHanging measures a crowd beside many callers that ask for the hanging transfer.
func besideHanging(ctx context.Context, s *scene, b *bank, m *member, many int, call func(context.Context) error) error {
	var same *flood
	var told int64
	c := gather(ctx, besideHang, time.Minute, m.moves(func() transfer.Request { return b.move(0) }))
	w, err := s.compare(ctx, c, s.duration(4*time.Second, 1200*time.Millisecond), func(ctx context.Context) error {
		same = rush(ctx, many, giveUp, call)
		return nil
	}, func(context.Context) error {
		told += same.answers()
		same.leave()
		same.answered()
		return nil
	})
	c.disperse()
	s.keeps(fmt.Sprintf("transfers beside %d who ask for one", many), w.before, w.during, 0.8)
	s.atMost("callers of the one who were told something meanwhile", told, 0)
	s.expected("callers told something odd", &c.tally)
	return err
}

// claimed waits until n transfers are claimed and not final.
func (b *bank) claimed(ctx context.Context, n int64) error {
	_, enough, err := eventually(ctx, giveUp, func() (bool, error) {
		now, err := b.unfinished(ctx)
		return now >= n, err
	})
	if err == nil && !enough {
		err = context.Cause(ctx)
		if err == nil {
			err = context.DeadlineExceeded
		}
	}
	return err
}
