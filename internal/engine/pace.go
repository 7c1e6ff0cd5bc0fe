package engine

import "time"

// fewBegun is how many executions may be under way before any caller is told that it came too late.
const fewBegun = 64

// pace is how long executions take from their claims to their ends, smoothed as in RFC 6298.
type pace struct{ mean, deviation time.Duration }

// took takes in how long one has taken.
func (p *pace) took(d time.Duration) {
	if p.mean == 0 {
		p.mean, p.deviation = d, d/2
		return
	}
	p.deviation += ((p.mean - d).Abs() - p.deviation) / 4
	p.mean += (d - p.mean) / 8
}

// expected returns how long the next one takes, at most, unless something is wrong. Executions come in waves,
// as large as commands are, and deviate little then, all of a wave alike: so there is a third on top.
func (p *pace) expected() time.Duration { return p.mean + max(4*p.deviation, p.mean/3) }

// mayClaim reports whether a run's claim may be sent, and counts it as begun. It may not where its caller has
// left, nor where so many are under way that it would not be at its end before its caller leaves: such a
// caller would be left in doubt, for work that others could have had done. Size is how many claims a command
// may carry. The caller holds the lock.
func (e *Engine) mayClaim(r *run, size int) bool {
	if !r.begun.IsZero() {
		return r.send()
	}
	if deadline, has := r.caller.Deadline(); has && e.begun >= max(fewBegun, size) {
		r.hopeless = deadline.Sub(e.now()) < e.pace.expected()
	}
	if r.hopeless || !r.send() {
		return false
	}
	r.begun = e.now()
	e.begun++
	return true
}

// drop ends a run whose claim may not be sent. One that came too late for its caller ends when that one
// leaves, and keeps no place until then.
func (e *Engine) drop(r *run) {
	if !r.hopeless {
		e.end(r, r.gaveUp())
		return
	}
	e.leave(r)
	go func() {
		select {
		case <-r.caller.Done():
			e.end(r, r.gaveUp())
		case <-e.closing:
			e.end(r, ErrClosed)
		}
	}()
}
