package overload

import (
	"context"
	"time"

	transfer "github.com/mongotransfer/transfer"
)

// never is after how long without a sign of life a transfer is taken over: later than any scenario lasts.
const never = time.Hour

// playHanging lets thousands ask for one transfer, of which another process has stored that it is under way and doesn't end it: its line
// holds back what it writes to the accounts. They wait, and cost the others little. When it goes on after all, all are told.
func playHanging(ctx context.Context, s *scene) error {
	const beside = 32
	many := s.many(2000, 2000)
	s.callers = beside + many
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
	stalled.home().line.hold(func(command string) bool { return command == "update accounts" })
	req := b.move(0)
	call := func(by *member) func(context.Context) error { return by.moves(func() transfer.Request { return req }) }
	first := rush(ctx, 1, giveUp, call(stalled))
	defer first.leave()
	if err := b.claimed(ctx, 1); err != nil {
		return err
	}

	c := gather(ctx, beside, time.Minute, m.moves(func() transfer.Request { return b.move(0) }))
	var same *flood
	var told int64
	w, err := s.compare(ctx, c, s.long(4*time.Second, 1200*time.Millisecond), func(ctx context.Context) error {
		same = rush(ctx, many, giveUp, call(m))
		return nil
	}, func(context.Context) error {
		told += same.answers()
		same.leave()
		same.answered()
		return nil
	})
	if err != nil {
		return err
	}
	c.disperse()
	s.keeps("transfers beside 2,000 who ask for one", w.before, w.during, 0.8)
	s.atMost("callers of the one who were told something meanwhile", told, 0)
	s.expected("callers told something odd", &c.tally)

	same = rush(ctx, many, giveUp, call(m))
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
