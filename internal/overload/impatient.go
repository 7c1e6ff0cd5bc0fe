package overload

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	transfer "github.com/mongotransfer/transfer"
)

// impatientCallers are more than can be served in the time that each of them has.
const impatientCallers = 2048

// playImpatient has thousands of callers ask in closed loops, each with as much time as
// one of 256 callers needs: for one kind of calls after the other.
// Most are refused, and ask again at once.
// They leave the processor and the connections to those that are served.
func playImpatient(ctx context.Context, s *scene) error {
	s.callers = impatientCallers
	b, m, err := s.openAndJoin(ctx)
	if err != nil {
		return err
	}
	held, err := m.hold(ctx, b, s.number(12_000, 4000))
	if err != nil {
		return err
	}
	next := func() transfer.Request { return b.move(0) }
	s.beImpatient(ctx, "transfers", m.moves(next))
	s.beImpatient(ctx, "posts", func(ctx context.Context) error { return m.postOneOf(ctx, held) })
	s.beImpatient(ctx, "submissions", func(ctx context.Context) error { _, err := m.Submit(ctx, next()); return err })
	s.beImpatient(ctx, "reads of accounts", func(ctx context.Context) error { _, err := m.GetAccount(ctx, next().From); return err })
	if _, err := b.transfers(b.observer).DeleteMany(ctx, bson.D{{Key: "state", Value: "Initiated"}}); err != nil {
		return err
	}
	if err := forEach(ctx, len(held), func(ctx context.Context, _ int) error { return m.postOneOf(ctx, held) }); err != nil {
		return err
	}
	took, err := b.drained(ctx)
	if err != nil {
		return err
	}
	s.within("until all is final, after the last answer", took, drainLimit)
	return b.audit(ctx)
}

// beImpatient compares 256 patient callers with thousands of impatient ones.
func (s *scene) beImpatient(ctx context.Context, name string, call func(context.Context) error) {
	window := s.duration(3*time.Second, time.Second)
	before := s.steadyRate(ctx, window, call)
	patience := min(time.Duration(steadyCallers/max(before, 1)*float64(time.Second)), 10*time.Second)
	c := gather(ctx, impatientCallers, patience, call)
	pause(ctx, 2*patience)
	during := c.rate(ctx, window)
	c.disperse()
	s.expected("impatient callers told something odd", &c.tally)
	s.keeps(fmt.Sprintf("%s, with %s each", name, patience.Round(time.Millisecond)), before, during, 0.2)
	s.note("in doubt, and told that nothing was sent", []int64{c.doubt.Load(), c.unsent.Load()})
}

// hold holds a number of transfers.
func (m *member) hold(ctx context.Context, b *bank, n int) (held chan string, err error) {
	held = make(chan string, n)
	return held, forEach(ctx, n, func(ctx context.Context, _ int) error {
		req := b.move(0)
		_, err := m.Hold(ctx, req, time.Hour)
		held <- req.ID
		return err
	})
}

// postOneOf posts the next of the holds.
// If it is not posted, a later call does it.
func (m *member) postOneOf(ctx context.Context, held chan string) error {
	select {
	case id := <-held:
		_, err := m.Post(ctx, id)
		if err != nil {
			held <- id
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
