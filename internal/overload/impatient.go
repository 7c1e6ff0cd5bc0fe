package overload

import (
	"context"
	"time"

	transfer "github.com/mongotransfer/transfer"
)

// impatientCallers are more than can be served in the time that each of them has.
const impatientCallers = 2048

// playImpatient has thousands of callers ask in closed loops, each with as much time as
// one of 256 callers needs.
// Most are refused, and ask again at once.
// They leave the processor to those that are served.
func playImpatient(ctx context.Context, s *scene) error {
	s.callers = impatientCallers
	b, m, err := s.openAndJoin(ctx)
	if err != nil {
		return err
	}
	call := m.moves(func() transfer.Request { return b.move(0) })
	window := s.duration(3*time.Second, time.Second)
	c := gather(ctx, steadyCallers, time.Minute, call)
	pause(ctx, window/4)
	before := c.rate(ctx, window)
	c.disperse()
	s.expected("patient callers told something odd", &c.tally)
	patience := time.Duration(float64(steadyCallers) / before * float64(time.Second))
	c = gather(ctx, impatientCallers, patience, call)
	pause(ctx, 2*patience)
	during := c.rate(ctx, window)
	c.disperse()
	s.expected("impatient callers told something odd", &c.tally)
	s.note("time of each", patience.Round(time.Millisecond))
	s.keeps("transfers done, beside those of 256 callers", before, during, 0.2)
	s.note("callers left in doubt", c.doubt.Load())
	s.note("callers told that nothing was stored", c.unsent.Load())
	took, err := b.drained(ctx)
	if err != nil {
		return err
	}
	s.within("until all is final, after the last answer", took, drainLimit)
	return b.audit(ctx)
}
