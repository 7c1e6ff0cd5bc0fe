package overload

import (
	"context"
	"fmt"
	"time"

	transfer "github.com/mongotransfer/transfer"
)

const (
	// never is after how long without a sign of life a transfer is taken over: later than
	// any scenario lasts.
	never = time.Hour
	// besideHang is how many move money beside those who ask for one transfer.
	besideHang = 32
)

// playHanging lets thousands ask for one transfer, of which another process has stored
// that it is under way and doesn't end it: its line holds back what it writes to the
// accounts. They wait, and cost the others little. When it goes on after all, all are
// told.
func playHanging(ctx context.Context, s *scene) error {
	const many = 2000
	s.callers = besideHang + many
	b, err := s.open(ctx, nil)
	if err != nil {
		return err
	}
	m, err := b.join(ctx, nil, transfer.WithStallThreshold(never))
	if err != nil {
		return err
	}
	stalled, err := b.join(ctx, lines{"": 0}, transfer.WithStallThreshold(never))
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

// besideHanging measures a crowd beside many who ask for the transfer that hangs.
func besideHanging(ctx context.Context, s *scene, b *bank, m *member, many int, call func(context.Context) error) error {
	var same *flood
	var told int64
	c := gather(ctx, besideHang, time.Minute, m.moves(func() transfer.Request { return b.move(0) }))
	w, err := s.compare(ctx, c, s.long(4*time.Second, 1200*time.Millisecond), func(ctx context.Context) error {
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

// claimed waits until so many transfers are claimed and not final.
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
