package engine

import (
	"time"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// fewBegun is how many executions may be under way before any caller is told that it came
// too late.
const fewBegun = 64

// pace is how long executions that touch the same clusters take from their claims to
// their ends, for each that was under way when they began, smoothed as in RFC 6298. What
// hangs is under way as well, and holds up nobody: so the others are still expected to be
// quick. The engine's lock guards it.
type pace struct {
	begun           int // executions that have sent a claim and are not at their ends
	mean, deviation time.Duration
}

// took takes in that one has come to its end, how long it has taken, and how many were
// under way when it began.
func (p *pace) took(d time.Duration, underway int) {
	d /= time.Duration(max(underway, fewBegun))
	if p.mean == 0 {
		p.mean, p.deviation = d, d/2
		return
	}
	p.deviation += ((p.mean - d).Abs() - p.deviation) / 4
	p.mean += (d - p.mean) / 8
}

// expected returns how long the next one takes, at most, unless something is wrong.
// Executions come in waves, as large as commands are, and deviate little then, all of a
// wave alike: so there is half as much on top.
func (p *pace) expected() time.Duration {
	return time.Duration(p.begun) * (p.mean + max(4*p.deviation, p.mean/2))
}

// tooLate reports whether so many are under way that a claim would not be at its end
// before its caller leaves. Such a caller would be left in doubt, for work that others
// could have had done. It asks again after pauses, and is let through once there is twice
// the time that it takes: what is expected goes up and down. The caller holds the lock.
func (e *Engine) tooLate(t *task) bool {
	r := t.run
	deadline, has := r.caller.Deadline()
	fresh := t.Op.Claim == protocol.Insert || t.Op.Claim == protocol.FromInitiated
	if !has || !fresh || !r.begun.IsZero() || r.line.pace.begun < fewBegun {
		return false
	}
	now := e.now()
	expected := r.line.pace.expected()
	if r.wasLate {
		expected *= 2
	}
	r.wasLate = deadline.Sub(now) < expected
	return r.wasLate
}

// mayClaim reports whether a run's claim may be sent, and counts it as begun. It may not
// where it is too late, or where its caller has left. The caller holds the lock.
func (e *Engine) mayClaim(t *task) bool {
	r := t.run
	if e.tooLate(t) || !r.send() {
		return false
	}
	if r.begun.IsZero() {
		r.begun, r.beside = e.now(), r.line.pace.begun
		r.line.pace.begun++
		e.countSent(r.work.Transfer.ID)
	}
	return true
}

// refuse gives a claim back that may not be sent. Its run ends if its caller has left.
func (e *Engine) refuse(t *task) {
	t.Answer, t.Cause = protocol.Answer{Result: protocol.NotSent}, errTooLate()
	t.run.away = e.now().Add(AwayLimit) // the server is there
	e.deliver([]*task{t})
}
