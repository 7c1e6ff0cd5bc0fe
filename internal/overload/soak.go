package overload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	transfer "github.com/mongotransfer/transfer"
)

const (
	shortestSoak = 20 * time.Second
	// soakers is the number of callers of a soak, which together ask for half of what the
	// library can do.
	soakers = 128
	// heapDrift and goroutinesDrift are how much more the last quarter may need than the
	// second one, besides a fifth of that.
	heapDrift       = 16 << 20
	goroutinesDrift = 50
	soakLookPeriod  = 200 * time.Millisecond
)

// playSoak mixes all verbs, at half of the highest rate, for as long as is asked for.
// Memory and goroutines stay level.
func playSoak(ctx context.Context, s *scene) error {
	s.callers = steadyCallers
	b, m, err := s.openAndJoin(ctx)
	if err != nil {
		return err
	}
	full := gather(ctx, steadyCallers, time.Minute, m.moves(func() transfer.Request { return b.move(0) }))
	pause(ctx, time.Second)
	top := full.rate(ctx, min(s.Soak/10, 20*time.Second))
	full.disperse()

	working, leave := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- m.Run(working) }()
	mix := &mixture{bank: b, member: m, turns: newBucket(int(top/2) + 1)}
	c := gather(ctx, soakers, time.Minute, mix.call)
	heap, goroutines := drift(ctx, s.Soak)
	rate := float64(c.done.Load()) / s.Soak.Seconds()
	c.disperse()
	leave()
	if err := <-ended; err != nil {
		return err
	}
	s.note("verbs in a second, at most and asked for", fmt.Sprintf("%.0f, %.0f", top, top/2))
	s.note("verbs in a second, answered", int(rate))
	s.note("verbs", mix.String())
	s.atMost("verbs left in doubt", c.doubt.Load(), 0)
	s.expected("callers told something odd", &c.tally)
	s.flat("heap in use, KB", heap, heapDrift, 1<<10)
	s.flat("goroutines over the time", goroutines, goroutinesDrift, 1)
	if _, err := b.drained(ctx); err != nil {
		return err
	}
	return b.audit(ctx)
}

// mixture draws verbs at random.
type mixture struct {
	bank   *bank
	member *member
	turns  *bucket // one byte for each verb

	transfers, holds, submits, waits, statements atomic.Int64
}

// String returns how often each verb was called.
func (m *mixture) String() string {
	return fmt.Sprintf("%d transfers, %d holds, %d submits, %d waits, %d statements",
		m.transfers.Load(), m.holds.Load(), m.submits.Load(), m.waits.Load(), m.statements.Load())
}

// call calls one verb, once its turn has come.
func (m *mixture) call(ctx context.Context) error {
	if !m.turns.pass(ctx.Done(), 1) {
		return ctx.Err()
	}
	switch dice := rand.IntN(100); {
	case dice < 75:
		m.transfers.Add(1)
		_, err := m.member.Transfer(ctx, m.bank.move(0))
		return err
	case dice < 85:
		m.holds.Add(1)
		return m.hold(ctx)
	case dice < 95:
		m.submits.Add(1)
		return m.submit(ctx)
	default:
		m.statements.Add(1)
		return m.statement(ctx)
	}
}

// hold holds money, and posts or voids the hold.
func (m *mixture) hold(ctx context.Context) error {
	req := m.bank.move(0)
	if _, err := m.member.Hold(ctx, req, time.Hour); err != nil {
		return err
	}
	decide := m.member.Void
	if rand.IntN(2) == 0 {
		decide = func(ctx context.Context, id string) (transfer.Record, error) { return m.member.Post(ctx, id) }
	}
	_, err := decide(ctx, req.ID)
	return err
}

// submit submits a transfer, and waits for every other one.
func (m *mixture) submit(ctx context.Context) error {
	req := m.bank.move(0)
	_, err := m.member.Submit(ctx, req)
	if err != nil || rand.IntN(2) == 0 {
		return err
	}
	m.waits.Add(1)
	_, err = m.member.Wait(ctx, req.ID)
	return err
}

// statement reads the newest page of an account's statement.
func (m *mixture) statement(ctx context.Context) error {
	const page = 20
	entries := m.member.Statement(ctx, account(rand.IntN(accounts)), transfer.StatementQuery{Limit: page, NewestFirst: true})
	for _, err := range entries {
		if err != nil {
			return err
		}
	}
	return nil
}

// drift samples memory and goroutines for the given time.
func drift(ctx context.Context, howLong time.Duration) (heap, goroutines []int64) {
	ctx, cancel := context.WithTimeout(ctx, howLong)
	defer cancel()
	for pause(ctx, soakLookPeriod) {
		heap = append(heap, heapInUse())
		goroutines = append(goroutines, int64(runtime.NumGoroutine()))
	}
	return heap, goroutines
}

// flat checks that the samples of the last quarter are about as high as those of the
// second one.
func (s *scene) flat(name string, seen []int64, more, unit int64) {
	n := len(seen) / 4
	second, last := median(seen[n:2*n]), median(seen[3*n:])
	bound := second + second/5 + more
	s.report.add(Figure{
		Name: name, Seen: fmt.Sprintf("second quarter %d, last %d", second/unit, last/unit),
		Must: fmt.Sprintf("at most %d", bound/unit), Holds: n > 0 && last <= bound,
	})
}

func median(numbers []int64) int64 {
	if len(numbers) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(numbers))
	return sorted[len(sorted)/2]
}
