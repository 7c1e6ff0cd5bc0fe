package overload

import (
	"context"
	"fmt"
	"time"
)

const (
	// steadyCallers is the number of callers in closed loops with which the library is
	// fastest.
	steadyCallers = 256
	// mostDoubt is how many callers may be left in doubt, out of any number: 1 % of
	// 20,000.
	// Their transfers are in progress when all contexts end at once.
	mostDoubt = 200
)

func playFastLine(ctx context.Context, s *scene) error {
	return playCongestion(ctx, s, congestion{
		callers: s.number(20_000, 4000), patience: s.duration(time.Minute, 30*time.Second),
		window: s.duration(3*time.Second, time.Second), turns: s.number(2, 1),
	})
}

func playNarrowLine(ctx context.Context, s *scene) error {
	return playCongestion(ctx, s, congestion{
		over: lines{"": narrowRate}, callers: s.number(20_000, 4000), patience: s.duration(time.Minute, 4*time.Second),
		window: s.duration(8*time.Second, 1200*time.Millisecond), turns: 1,
	})
}

// congestion is how many callers come at once, over which line, and how long they wait.
type congestion struct {
	over     lines
	callers  int
	patience time.Duration
	// window is how long the rate of the steady callers is measured, with which theirs is
	// compared.
	window time.Duration
	turns  int
}

// playCongestion makes thousands of calls at once. Most of these have to wait for their
// turn.
// Those that get their turn are served as fast as a few callers would be.
// Those whose time ends first learn that nothing was stored.
func playCongestion(ctx context.Context, s *scene, size congestion) error {
	s.callers = size.callers
	b, err := s.open(ctx, nil)
	if err != nil {
		return err
	}
	m, err := b.join(ctx, size.over)
	if err != nil {
		return err
	}
	claimed := b.watchClaimed(ctx)
	r := rushes{bank: b, member: m, congestion: size}
	if err := r.play(ctx); err != nil {
		return err
	}
	most, err := claimed()
	if err != nil {
		return err
	}
	s.keeps("transfers done, beside those of 256 callers", r.before, r.during, 0.8)
	s.share("callers left in doubt", r.doubt, int64(r.turns*r.callers), mostDoubt/float64(r.callers))
	s.note("callers told that nothing was stored", r.unsent)
	// As many as have a place may be answered, while what is left to be done is put off.
	s.atMost("claimed and not final", most, 2*defaultPending)
	s.within("until all is final, after the last answer", r.drained, drainLimit)
	s.note("statements of updates for each transfer", fmt.Sprintf("before %.2f, during %.2f", r.calm, r.statements))
	s.atMost("commands under way at once", m.home().counts.inFlight.peak.Load(), mostInFlight)
	s.note("connections", m.home().counts.connections.peak.Load())
	s.note("largest command, KB", m.home().counts.largest.Load()>>10)
	return b.audit(ctx)
}

// rushes is a congestion as it is played, with what is measured.
type rushes struct {
	congestion
	bank   *bank
	member *member

	// before and during are transfers in a second.
	before, during float64
	// calm and statements are the update statements for each transfer, before and during.
	calm, statements float64
	doubt, unsent    int64
	drained          time.Duration // the longest time that was needed
}

// play measures a crowd and a flood in turns, beginning and ending with the crowd.
func (r *rushes) play(ctx context.Context) error {
	for turn := range r.turns + 1 {
		statements, err := r.statementsOf(ctx, func() { r.crowd(ctx) })
		if err != nil {
			return err
		}
		r.calm += statements / float64(r.turns+1)
		if turn == r.turns {
			return ctx.Err()
		}
		if statements, err = r.statementsOf(ctx, func() { r.flood(ctx) }); err != nil {
			return err
		}
		r.statements += statements / float64(r.turns)
	}
	return nil
}

func (r *rushes) call(ctx context.Context) error {
	_, err := r.member.Transfer(ctx, r.bank.move(0))
	return err
}

func (r *rushes) crowd(ctx context.Context) {
	c := gather(ctx, steadyCallers, time.Minute, r.call)
	pause(ctx, r.window/4)
	r.before += c.rate(ctx, r.window) / float64(r.turns+1)
	c.disperse()
	r.bank.scene.expected("callers in closed loops told something odd", &c.tally)
}

func (r *rushes) flood(ctx context.Context) {
	f := rush(ctx, r.callers, r.patience, r.call)
	f.answered()
	r.during += f.rate() / float64(r.turns)
	r.doubt += f.doubt.Load()
	r.unsent += f.unsent.Load()
	r.bank.scene.expected("callers all at once told something odd", &f.tally)
}

// statementsOf returns how many update statements were sent for each transfer that do has
// stored, once all of them are final.
func (r *rushes) statementsOf(ctx context.Context, do func()) (float64, error) {
	stored, err := r.bank.stored(ctx)
	if err != nil {
		return 0, err
	}
	sent := r.member.home().counts.statements.Load()
	do()
	took, err := r.bank.drained(ctx)
	if err != nil {
		return 0, err
	}
	r.drained = max(r.drained, took)
	now, err := r.bank.stored(ctx)
	return ratio(float64(r.member.home().counts.statements.Load()-sent), float64(now-stored)), err
}
