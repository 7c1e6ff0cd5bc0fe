package overload

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	transfer "github.com/mongotransfer/transfer"
)

const (
	// pressing is how many times as many calls arrive as are served.
	pressing = 4
	// arrivalPatience is how long each of them may take.
	arrivalPatience = time.Second
)

// playArrivals makes more calls than are served, for as long as that lasts, each with a
// second of time, however many are under way already.
// As many succeed as of callers in closed loops, nearly: the others learn in good time
// that nothing was stored.
func playArrivals(ctx context.Context, s *scene) error {
	b, m, err := s.openAndJoin(ctx)
	if err != nil {
		return err
	}
	call := m.moves(func() transfer.Request { return b.move(0) })
	window := s.duration(3*time.Second, time.Second)
	before := s.steadyRate(ctx, window, call)
	s.callers = int(pressing * before * 2 * arrivalPatience.Seconds())
	a := arrivals{perSecond: pressing * before, call: call}
	during := a.rate(ctx, window)
	a.all.Wait()
	s.expected("callers that arrive told something odd", &a.tally)
	s.keeps("transfers done, beside those of 256 callers", before, during, 0.5)
	s.note("callers left in doubt", a.doubt.Load())
	s.note("callers told that nothing was stored", a.unsent.Load())
	s.atLeast("of these, in the first half of their time", a.early.Load(), 1)
	s.note("the slowest answer", time.Duration(a.longest.Load()).Round(time.Millisecond))
	took, err := b.drained(ctx)
	if err != nil {
		return err
	}
	s.within("until all is final, after the last answer", took, drainLimit)
	return b.audit(ctx)
}

// arrivals are calls that arrive evenly, however many are under way already.
type arrivals struct {
	tally
	perSecond float64
	call      func(context.Context) error
	all       sync.WaitGroup
	early     atomic.Int64 // answers that nothing was stored, in the first half of the time
}

// rate lets calls arrive, and returns how many transfers are done in a second, measured
// in a window that begins after twice the time that each call has.
func (a *arrivals) rate(ctx context.Context, window time.Duration) float64 {
	const tick = 10 * time.Millisecond
	begun, settled := time.Now(), 2*arrivalPatience
	var before int64
	var from time.Time
	for arrived := 0; ctx.Err() == nil; pause(ctx, tick) {
		since := time.Since(begun)
		if since > settled && from.IsZero() {
			before, from = a.done.Load(), time.Now()
		}
		if since > settled+window {
			break
		}
		for ; float64(arrived) < since.Seconds()*a.perSecond; arrived++ {
			a.all.Go(func() { a.one(ctx) })
		}
	}
	return float64(a.done.Load()-before) / time.Since(from).Seconds()
}

// one makes one call.
func (a *arrivals) one(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, arrivalPatience)
	defer cancel()
	begun := time.Now()
	err := a.call(limited)
	took := time.Since(begun)
	if transfer.OutcomeOf(err) == transfer.NothingStored && took < arrivalPatience/2 {
		a.early.Add(1)
	}
	a.take(err, took)
}
