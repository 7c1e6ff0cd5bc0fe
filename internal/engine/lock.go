package engine

import (
	"time"

	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// beginWait counts a task as one that waits for a document that may be locked. Its job
// doesn't count as in progress meanwhile: otherwise the others, who don't wait, would be
// kept out because of it.
//
//  1. A user's transaction locks an account for a minute, and a hundred callers wait.
//  2. It seems that an execution takes a minute where a hundred are in progress.
//  3. Whoever has ten seconds for another account is refused.
//
// The caller holds the lock.
func (t *task) beginWait(now time.Time) {
	if t.waits {
		return
	}
	t.waits = true
	t.job.beginWait(now)
}

func (j *job) beginWait(now time.Time) {
	if j.waiting++; j.waiting > 1 {
		return
	}
	j.waitsSince = now
	j.waitlist.locked++
	if j.counted {
		j.waitlist.count(j, -1)
	}
	j.member.wait(true)
}

// endWait ends what beginWait has begun, if it has.
// The caller holds the lock.
func (t *task) endWait(now time.Time) {
	if !t.waits {
		return
	}
	t.waits = false
	t.job.endWait(now)
}

func (j *job) endWait(now time.Time) {
	if j.waiting--; j.waiting > 0 {
		return
	}
	j.waitedFor += now.Sub(j.waitsSince)
	j.waitlist.locked--
	if j.counted {
		j.waitlist.count(j, 1)
	}
	j.member.wait(false)
}

// waitsBehindLock reports whether an execution would wait for a document at which the
// server gave commands up, and for which many others wait already, in a queue or in a
// command; or for which some do, while executions of its waitlist that wait for such
// documents have as many as half of the places.
// It does not claim then: once it has, it would keep its place after its caller has left,
// and locked accounts would come to have all places.
// The caller holds the lock.
func (e *Engine) waitsBehindLock(t *task) bool {
	if !t.job.claimSentAt.IsZero() {
		return false
	}
	half := max(fewInProgress, e.limits.MaxPending/2)
	most := mostBehindLock(t.Op.Claim, half)
	if t.job.waitlist.locked >= half {
		most = 1
	}
	for i := range t.Attempt.Participants() {
		prepare := protocol.Operation{Kind: protocol.Prepare, Participant: i}
		l := e.lanes[mongostore.LaneOf(t.Attempt, prepare)]
		if l == nil || len(l.suspects) == 0 {
			continue
		}
		s := l.suspects[mongostore.SubjectOf(t.Attempt, prepare)]
		if s != nil && s.heldUp && s.waiters() >= most {
			return true
		}
	}
	return false
}

// mostBehindLock returns how many may wait for a locked document before no more are
// claimed.
// What a worker can't claim keeps a slot of that worker, and so holds up its other work.
// What has stalled has reserved some of its accounts, and others may wait for these.
// So both may have more places, but half of them at most.
func mostBehindLock(claim protocol.ClaimKind, half int) int {
	if claim == protocol.Insert {
		return fewInProgress
	}
	return half
}
