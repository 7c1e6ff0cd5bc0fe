package engine

import (
	"time"

	"github.com/mongotransfer/transfer/internal/protocol"
)

const (
	// fewInProgress is how many executions may be in progress before a claim counts as
	// too late.
	fewInProgress = 64
	// nearlyAlone is how many may be in progress where one takes as long as it would
	// alone.
	nearlyAlone = fewInProgress / 8
)

// smoothedTime is a moving average of durations and their deviation, as in RFC 6298.
type smoothedTime struct{ mean, deviation time.Duration }

func (s *smoothedTime) add(d time.Duration) {
	if s.mean == 0 {
		s.mean, s.deviation = d, d/2
		return
	}
	s.deviation += ((s.mean - d).Abs() - s.deviation) / 4
	s.mean += (d - s.mean) / 8
}

// pace is how long executions of one waitlist take from claim to end: what one takes
// alone, and what each more of them adds.
// An execution that hangs counts as in progress and slows nobody down, so the others are
// still expected to be quick.
// The time doesn't count for which it waits for a document that may be locked (see
// suspect), nor does the execution then.
// The engine's lock guards it.
type pace struct {
	inProgress int // executions that sent a claim and have not ended, nor are deferred
	submitted  int // of these, executions of submitted transfers
	alone      aloneTime
	smoothedTime
}

// aloneTime is how long something takes where nearly nothing else is in progress: on a
// link that is slow most of the time passes on the way, however many there are.
type aloneTime time.Duration

// record records how long something took, and how many were in progress when it began.
// It returns what that was longer than alone.
func (a *aloneTime) record(d time.Duration, inProgress int) (longer time.Duration) {
	known := time.Duration(*a)
	switch {
	case d < known || known == 0 && inProgress < nearlyAlone:
		*a = aloneTime(d)
	case inProgress < nearlyAlone:
		*a = aloneTime(min(d, known+known/64+1)) // a few that hang don't matter
	}
	return max(0, d-time.Duration(*a))
}

// record records how long an execution took that has ended, and how many were in progress
// when it sent its claim.
func (p *pace) record(d time.Duration, inProgress int) {
	p.add(p.alone.record(d, inProgress) / time.Duration(max(inProgress, fewInProgress)))
}

// expected returns how long the next of n executions takes at most, unless something is
// wrong.
func (p *pace) expected(n int) time.Duration {
	return time.Duration(p.alone) + time.Duration(n)*p.each()
}

// each returns how much longer each execution makes it for the next one.
// Executions come in waves as large as commands are.
// Those of one wave take equally long, so the deviation is small, and at least half of
// the mean is added.
func (p *pace) each() time.Duration { return p.mean + max(2*p.deviation, p.mean/2) }

// claimTooLate reports whether a claim would not end before its caller leaves, because of
// the number of executions in progress.
// Such a caller would be left in doubt, and the server would work for nobody.
// The execution asks again after a pause.
// It passes once there is twice the expected time, because the expectation goes up and
// down.
// The caller holds the lock.
func (e *Engine) claimTooLate(t *task) bool {
	j := t.job
	deadline, hasDeadline := j.caller.Deadline()
	isNew := t.Op.Claim == protocol.Insert || t.Op.Claim == protocol.FromInitiated
	pace := &j.waitlist.pace
	if !hasDeadline || !isNew || !j.claimSentAt.IsZero() || pace.inProgress < fewInProgress {
		return false
	}
	now := e.now()
	expected := pace.expected(pace.inProgress)
	if j.claimWasLate {
		expected *= 2
	}
	j.claimWasLate = deadline.Sub(now) < expected
	return j.claimWasLate
}

// mayClaim reports whether a claim may be sent, and counts its job as in progress.
// It may not if it is too late, if too many wait for a locked document already, or if its
// caller has left.
// The caller holds the lock.
func (e *Engine) mayClaim(t *task) bool {
	j := t.job
	locked := e.waitsBehindLock(t)
	j.member.wait(locked)
	switch {
	case locked:
		t.Cause, j.givesUp = errLocked(), e.closed
		return false
	case e.claimTooLate(t):
		t.Cause = errNoTimeLeft()
		return false
	case !j.mayStillClaim():
		return false
	}
	if j.claimSentAt.IsZero() {
		j.claimSentAt, j.inProgressThen = e.now(), j.waitlist.pace.inProgress
		j.counted = true
		j.waitlist.count(j, 1)
		e.countClaims(j.attempt.Transfer.ID, 1)
	}
	return true
}

// takeBackClaim counts a job as one that has sent no claim, if the client has reached no
// server with it, nor with an earlier one.
func (e *Engine) takeBackClaim(j *job, t *task) {
	if t.Op.Kind != protocol.Claim || t.Answer.Result != protocol.NotSent || j.mayBeStored() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if j.claimSentAt.IsZero() {
		return
	}
	e.recordPace(j)
	j.claimSentAt = time.Time{}
	e.countClaims(j.attempt.Transfer.ID, -1)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.claimSent = false
}

// recordPace counts a job no longer as in progress, if it was.
// The caller holds the lock.
func (e *Engine) recordPace(j *job) {
	if !j.counted {
		return
	}
	j.counted = false
	p, c := &j.waitlist.pace, &j.waitlist.crowd
	j.waitlist.count(j, -1)
	if !j.execution.Claimed() {
		return // it found the ID taken, and did nothing
	}
	p.record(e.now().Sub(j.claimSentAt)-j.waitedFor, j.inProgressThen)
	c.alone.Store(int64(p.alone))
	c.each.Store(int64(p.each()))
}

// returnClaim answers a claim that may not be sent.
// Its job ends if its caller has left.
func (e *Engine) returnClaim(t *task) {
	t.Answer = protocol.Answer{Result: protocol.NotSent}
	t.job.reachServerUntil = e.now().Add(AwayLimit) // the server was reached
	e.deliver([]*task{t})
}
