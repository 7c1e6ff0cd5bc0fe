package engine

import (
	"time"

	"github.com/mongotransfer/transfer/internal/protocol"
)

const (
	// fewBegun is how many executions may be under way before any caller is told that it came too late.
	fewBegun = 64
	// paceAge is for how long a rate is believed, and how long the time may be in which it was measured.
	paceAge = 10 * time.Second
)

// pace is how long executions that touch the same clusters take from their claims to their ends, smoothed as in
// RFC 6298, and how many come to their ends in a second. The engine's lock guards it.
type pace struct {
	begun           int // executions that have sent a claim and are not at their ends
	mean, deviation time.Duration
	rate            float64   // in a second, or some more, that is over; 0: not known
	since           time.Time // when the present one began
	ends            int       // in it
}

// took takes in that one has come to its end, and how long it has taken. After a long time without any nothing
// is known of the rate.
func (p *pace) took(d time.Duration, now time.Time) {
	p.ends++
	switch over := now.Sub(p.since); {
	case p.since.IsZero() || over > paceAge:
		p.since, p.ends, p.rate = now, 0, 0
	case over >= time.Second:
		p.rate = float64(p.ends) / over.Seconds()
		p.since, p.ends = now, 0
	}
	if p.mean == 0 {
		p.mean, p.deviation = d, d/2
		return
	}
	p.deviation += ((p.mean - d).Abs() - p.deviation) / 4
	p.mean += (d - p.mean) / 8
}

// expected returns how long the next one takes, at most, 0 if that is not known: not longer than the latest
// ones, for some of those under way may hang, which hold up nobody else; and not longer than all those take at
// the present rate, for the latest may have hung. Executions come in waves, as large as commands are, and
// deviate little then, all of a wave alike: so there is a third on top.
func (p *pace) expected(now time.Time) time.Duration {
	if p.rate == 0 || now.Sub(p.since) > paceAge {
		return 0
	}
	like := p.mean + max(4*p.deviation, p.mean/3)
	all := float64(p.begun) / p.rate * 4 / 3 // seconds
	return time.Duration(min(like.Seconds(), all) * float64(time.Second))
}

// tooLate reports whether so many are under way that a claim would not be at its end before its caller leaves.
// Such a caller would be left in doubt, for work that others could have had done. It asks again after a pause.
// The caller holds the lock.
func (e *Engine) tooLate(t *task) bool {
	r := t.run
	deadline, has := r.caller.Deadline()
	fresh := t.Op.Claiming == protocol.Insert || t.Op.Claiming == protocol.FromInitiated
	if !has || !fresh || !r.begun.IsZero() || r.line.pace.begun < fewBegun {
		return false
	}
	now := e.now()
	return deadline.Sub(now) < r.line.pace.expected(now)
}

// mayClaim reports whether a run's claim may be sent, and counts it as begun. It may not where it is too late,
// or where its caller has left. The caller holds the lock.
func (e *Engine) mayClaim(t *task) bool {
	r := t.run
	if e.tooLate(t) || !r.send() {
		return false
	}
	if r.begun.IsZero() {
		r.begun = e.now()
		r.line.pace.begun++
	}
	return true
}

// refuse gives a claim back that may not be sent. Its run ends if its caller has left.
func (e *Engine) refuse(t *task) {
	t.Answer, t.Cause = protocol.Answer{Result: protocol.NotSent}, errTooLate()
	t.run.away = e.now().Add(AwayLimit) // the server is there
	e.deliver([]*task{t})
}
