package engine

import (
	"time"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// fewInProgress is how many executions may be in progress before a claim counts as too
// late.
const fewInProgress = 64

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

// pace is how long executions of one waitlist take from claim to end, divided by the
// number that was in progress when they began.
// An execution that hangs counts as in progress and slows nobody down, so the others are
// still expected to be quick.
// The engine's lock guards it.
type pace struct {
	inProgress int // executions that sent a claim and have not ended, nor are deferred
	smoothedTime
}

// record records how long an execution took that has ended, and how many were in progress
// when it sent its claim.
func (p *pace) record(d time.Duration, inProgress int) {
	p.add(d / time.Duration(max(inProgress, fewInProgress)))
}

// expected returns how long the next of n executions takes at most, unless something is
// wrong.
// Executions come in waves as large as commands are.
// Those of one wave take equally long, so the deviation is small, and at least half of
// the mean is added.
func (p *pace) expected(n int) time.Duration {
	return time.Duration(n) * (p.mean + max(4*p.deviation, p.mean/2))
}

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
// It may not if it is too late, or if its caller has left.
// The caller holds the lock.
func (e *Engine) mayClaim(t *task) bool {
	j := t.job
	if e.claimTooLate(t) || !j.mayStillClaim() {
		return false
	}
	if j.claimSentAt.IsZero() {
		j.claimSentAt, j.inProgressThen = e.now(), j.waitlist.pace.inProgress
		j.waitlist.pace.inProgress++
		e.countClaimSent(j.attempt.Transfer.ID)
	}
	return true
}

// recordPace counts a job no longer as in progress, if it was.
// The caller holds the lock.
func (e *Engine) recordPace(j *job) {
	if j.claimSentAt.IsZero() {
		return
	}
	p := &j.waitlist.pace
	p.inProgress--
	p.record(e.now().Sub(j.claimSentAt), j.inProgressThen)
	j.waitlist.crowd.each.Store(int64(p.expected(1)))
}

// returnClaim answers a claim that may not be sent.
// Its job ends if its caller has left.
func (e *Engine) returnClaim(t *task) {
	t.Answer, t.Cause = protocol.Answer{Result: protocol.NotSent}, errNoTimeLeft()
	t.job.reachServerUntil = e.now().Add(AwayLimit) // the server was reached
	e.deliver([]*task{t})
}
