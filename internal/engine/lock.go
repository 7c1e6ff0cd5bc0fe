package engine

import (
	"slices"
	"time"

	"github.com/mongotransfer/transfer/internal/collections"
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
	j.waitlist.countLocked(1)
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
	j.waitlist.countLocked(-1)
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
	most := mostBehindLock(t.Op.Claim, e.limits.MaxPending/2)
	if e.manyBehindLocks(t.job.waitlist) {
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

// countLocked counts an execution that waits for a document that may be locked, with 1,
// or no longer, with -1.
// The caller holds the engine's lock.
func (w *waitlist) countLocked(change int) {
	w.locked += change
	for _, c := range w.clusters {
		w.lockedOn[c] += change
	}
}

// manyBehindLocks reports whether executions that wait for documents that may be locked
// have about half of the places that one of the waitlist's clusters can have, whichever
// waitlists they are on: of two clusters each has half of all places at most, and less
// where others hang (see gate).
// The caller holds the lock.
func (e *Engine) manyBehindLocks(w *waitlist) bool {
	half := e.limits.MaxPending / 2
	if !e.gate.multiCluster {
		return w.locked >= half
	}
	most := half / e.store.ClusterCount()
	return slices.ContainsFunc(w.clusters, func(c collections.Cluster) bool { return w.lockedOn[c] >= most })
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

const (
	// mostLent is how many executions may go on without a place, or MaxPending if that is
	// more.
	mostLent = 1024
	// lentWithin is how long after an answer of its lane an execution may begin to.
	lentWithin = 5 * time.Second
)

// lendsForGood makes an execution give its place back that waits for a locked document,
// if those that do have half of the places already. It reports whether it did.
// It may have claimed, so it goes on to its end without a place. There is one of these
// for each locked document, at most a few: no others claim then that would wait for it.
//
//  1. A user's transaction writes to a thousand accounts, and stays open for a minute.
//  2. That an account is locked shows once an execution waits for it.
//  3. If each kept its place, the thousand accounts would come to have all places.
//
// A document counts as locked once a command about it alone was held up. On a server that
// is slow, any may be. Where a whole collection is locked, or the server gives everything
// up, all seem to be: so there are bounds.
func (e *Engine) lendsForGood(j *job) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !j.lent && e.lent < max(e.limits.MaxPending, mostLent) && e.manyBehindLocks(j.waitlist) && j.isLocked(e.now()) {
		j.lent = true
		e.lent++
	}
	return j.lent
}

// isLocked reports whether the server has just given up a command at one of the
// execution's documents, and one about that document alone.
// It doesn't where nothing of its lane was answered for lentWithin.
// The caller holds the lock.
func (j *job) isLocked(now time.Time) bool {
	for i := range j.tasks {
		t := &j.tasks[i]
		s := t.lane.suspects[t.subject]
		if t.Suspect && s != nil && s.heldUpAlone && now.Sub(t.lane.answerAt) < lentWithin {
			return true
		}
	}
	return false
}
