package overload

import (
	"context"
	"fmt"
	"time"

	transfer "github.com/mongotransfer/transfer"
)

const (
	// mostLegs is the largest number of legs that a transfer can have.
	mostLegs = 1000
	// largestCommand is the largest command that a server accepts, in KB.
	largestCommand = 16 << 10
)

// playNeighbours makes one caller move money between a thousand accounts at once, again
// and again.
// The callers that move money between two accounts still get their turn.
func playNeighbours(ctx context.Context, s *scene) error {
	const beside = 32
	s.callers = beside + 1
	b, m, err := s.openAndJoin(ctx)
	if err != nil {
		return err
	}
	c := gather(ctx, beside, time.Minute, m.moves(func() transfer.Request { return b.move(0) }))
	var (
		big  *crowd
		done int64
		rate float64
	)
	window := s.duration(5*time.Second, 1500*time.Millisecond)
	w, err := s.compare(ctx, c, window, func(ctx context.Context) error {
		big = gather(ctx, 1, time.Minute, m.moves(b.bigTransfer))
		return nil
	}, func(context.Context) error {
		big.disperse()
		done += big.done.Load()
		s.expected("the big one told something odd", &big.tally)
		return nil
	})
	if err != nil {
		return err
	}
	c.disperse()
	rate = float64(done) / (1.25 * float64(s.number(2, 1)) * window.Seconds())
	s.keeps("transfers beside big ones", w.before, w.during, 0.6)
	s.atLeast("big transfers done", done, 1)
	s.note("big transfers in a second", fmt.Sprintf("%.1f", rate))
	s.note("longest of the small ones", time.Duration(c.longest.Load()).Round(time.Millisecond))
	s.expected("callers told something odd", &c.tally)
	s.atMost("largest command, KB", m.home().counts.largest.Load()>>10, largestCommand)
	if _, err := b.drained(ctx); err != nil {
		return err
	}
	return b.audit(ctx)
}

// bigTransfer returns a new transfer that takes a unit from every other account and gives
// it to the next account.
func (b *bank) bigTransfer() transfer.Request {
	legs := make([]transfer.Leg, mostLegs)
	for i := range legs {
		legs[i] = transfer.Leg{Account: account(i), Amount: transfer.Units(int64(2*(i%2) - 1))}
	}
	return transfer.Request{ID: b.id(), Legs: legs}
}
