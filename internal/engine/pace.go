package engine

import "time"

// fewBegun is how many executions may be under way before any caller is told that it came too late.
const fewBegun = 64

// pace is how long executions take from their claims to their ends, smoothed as in RFC 6298, and how many
// come to their ends in a second.
type pace struct {
	mean, deviation time.Duration
	rate            float64   // in the latest second that is over
	since           time.Time // when the present one began
	ends            int       // in it
}

// took takes in that one has come to its end, and how long it has taken.
func (p *pace) took(d time.Duration, now time.Time) {
	if p.since.IsZero() {
		p.since = now
	}
	if p.ends++; now.Sub(p.since) >= time.Second {
		p.rate = float64(p.ends) / now.Sub(p.since).Seconds()
		p.since, p.ends = now, 0
	}
	if p.mean == 0 {
		p.mean, p.deviation = d, d/2
		return
	}
	p.deviation += ((p.mean - d).Abs() - p.deviation) / 4
	p.mean += (d - p.mean) / 8
}

// expected returns how long the next one takes, at most, where so many are under way: not longer than the
// latest ones, for some of those under way may hang, which hold up nobody else; and not longer than all those
// take at the present rate, for the latest may have hung. Executions come in waves, as large as commands are,
// and deviate little then, all of a wave alike: so there is a third on top.
func (p *pace) expected(underway int) time.Duration {
	like := p.mean + max(4*p.deviation, p.mean/3)
	if p.rate == 0 {
		return like
	}
	all := float64(underway) / p.rate * 4 / 3 // seconds
	return time.Duration(min(like.Seconds(), all) * float64(time.Second))
}

// mayClaim reports whether a run's claim may be sent, and counts it as begun. It may not where its caller has
// left, nor where so many are under way that it would not be at its end before its caller leaves: such a
// caller would be left in doubt, for work that others could have had done. The caller holds the lock.
func (e *Engine) mayClaim(r *run) bool {
	if !r.begun.IsZero() {
		return r.send()
	}
	if deadline, has := r.caller.Deadline(); has && e.begun >= fewBegun {
		r.hopeless = deadline.Sub(e.now()) < e.pace.expected(e.begun)
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
