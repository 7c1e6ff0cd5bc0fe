package engine

import (
	"slices"
	"time"

	"github.com/mongotransfer/transfer/internal/collections"
)

// suspect is a document that may be why a command is not answered: somebody's open
// transaction may have locked it.
// Its tasks are isolated, that is, sent in commands about nothing else, until one of
// those is answered:
//
//  1. A user's transaction writes to an account, and stays open.
//  2. A command of 512 statements comes to that account, and waits. The other accounts
//     wait with it.
//  3. While it is overdue, nothing about its documents shares a command with others: each
//     of them may be the locked one.
//  4. The server gives the command up. The first document that it has not written is the
//     locked one (see [mongostore.Call]); the others are no longer suspected.
type suspect struct {
	lane        *lane
	subject     collections.Subject
	overdue     int  // commands about it that are overdue
	heldUp      bool // a command was held up at it, and none about it was answered since
	heldUpAt    time.Time
	heldUpAlone bool // so was one about it alone since then
	notReached  bool // the latest command about it did not reach it, and most likely many are locked
	waiting     chain
	inFlight    int  // tasks that a command about it alone carries
	carried     int  // tasks that such a command has carried at most since one was answered
	queued      bool // it is in one of its server's queues
}

// suspectFor returns a document's entry among the suspects, a new one if there is none.
// Tasks that are parked for the document wait in that entry from now on.
// The caller holds the lock.
func (l *lane) suspectFor(subject collections.Subject) *suspect {
	s := l.suspects[subject]
	if s == nil {
		s = &suspect{lane: l, subject: subject}
		l.suspects[subject] = s
	}
	if parked := l.parked[subject]; parked != nil {
		for t := parked.first; t != nil; t = t.next {
			t.beginWait(l.now())
		}
		s.waiting.join(parked)
		delete(l.parked, subject)
	}
	return s
}

// suspectDocuments makes suspects of the documents of an overdue command.
func (c *command) suspectDocuments() {
	if !c.mayBeLocked() {
		return
	}
	for _, t := range c.tasks {
		c.lane.suspectFor(t.subject).overdue++
		t.beginWait(c.lane.now())
	}
}

// mayBeLocked reports whether the command may wait for a lock on one of its documents.
// A read waits for none, and nobody else writes to a claim's document.
func (c *command) mayBeLocked() bool { return !c.lane.isRead && !c.lane.isClaim }

// updateSuspects updates the suspects among the documents of a command that has returned.
func (c *command) updateSuspects() {
	l := c.lane
	heldUp := slices.ContainsFunc(c.tasks, func(t *task) bool { return t.Suspect })
	if !heldUp && !c.isolated && slices.ContainsFunc(c.tasks, (*task).answered) {
		l.passed++
	}
	isolates := heldUp && l.passed == c.passedBefore
	for _, t := range c.tasks {
		if t.Suspect {
			l.suspectFor(t.subject)
		}
		if s := l.suspects[t.subject]; s != nil {
			s.update(c, t, heldUp)
			s.notReached = isolates && !t.answered()
		}
	}
	for _, t := range c.tasks {
		if s := l.suspects[t.subject]; s != nil {
			s.review()
		}
	}
}

// update records how a task about the document went, and whether its command was held up.
func (s *suspect) update(c *command, t *task, heldUp bool) {
	if t.Suspect {
		s.heldUp, s.heldUpAt = true, s.lane.now()
		s.setHeldUpAlone(s.heldUpAlone || c.isolated)
	}
	if c.superseded {
		s.overdue--
	}
	if t.answered() {
		s.heldUp = false
		s.setHeldUpAlone(false)
	}
	if c.isolated {
		s.inFlight = 0
	}
	if c.isolated && !heldUp {
		s.carried = 0
	}
}

// setHeldUpAlone records whether the document is locked, for all that is known.
func (s *suspect) setHeldUpAlone(alone bool) {
	switch {
	case alone && !s.heldUpAlone:
		s.lane.server.locked++
	case !alone && s.heldUpAlone:
		s.lane.server.locked--
	}
	s.heldUpAlone = alone
}

// waiters returns how many executions wait for the document, at the least.
// Those that a command has carried come back after a pause. If none does, others have
// finished their transfers meanwhile.
func (s *suspect) waiters() int {
	n := s.waiting.length + s.inFlight
	if n == 0 && s.lane.now().Sub(s.heldUpAt) > 2*longestPause {
		return 0
	}
	return max(n, s.carried)
}

// review frees a document that is no longer suspected.
// Otherwise it queues the suspect if it has tasks to send.
func (s *suspect) review() {
	l := s.lane
	switch {
	case s.overdue == 0 && !s.heldUp && !s.notReached:
		delete(l.suspects, s.subject)
		l.enqueueAll(&s.waiting)
	case !s.queued && s.waiting.first != nil && l.busy[s.subject] == 0:
		s.queued = true
		if s.heldUpAlone {
			l.server.heldUp = append(l.server.heldUp, s)
		} else {
			l.server.suspects = append(l.server.suspects, s)
		}
	}
}

// mostIsolated is how many commands about suspects may be under way where many documents
// are locked.
const mostIsolated = 32

// trialShare says how many of these are for documents that were held up alone before: one
// of so many.
const trialShare = 8

// isolatedTurns returns how many commands about suspects may be under way: MaxInFlight
// for each document at which a command about it alone was held up.
// Such a command is about one document, and waits at the server:
//
//  1. Somebody's transaction writes to a hundred accounts, and stays open for a while.
//  2. Any command may come to one of those. The server gives it up after a second.
//  3. With two turns it would take most of a minute to find all hundred, and nearly
//     nothing would be served meanwhile.
func (s *server) isolatedTurns() int {
	return min(s.maxInFlight*max(s.locked, 1), max(s.maxInFlight, mostIsolated))
}

// mayIsolate reports whether a command about a suspect may be sent, if there is a turn.
// Suspects that were held up alone leave most of the turns to the others, which are most
// likely as quick as any document: a hundred locked documents would delay those for
// minutes, and each trial is work for the server.
func (s *server) mayIsolate() bool {
	return len(s.suspects) > 0 || len(s.heldUp) > 0 && s.heldUpInFlight < max(1, s.isolatedTurns()/trialShare)
}

// nextIsolated returns the next command about a suspect, nil if there is none.
func (s *server) nextIsolated() *command {
	for s.mayIsolate() {
		queue, heldUpAlone := &s.suspects, false
		if len(s.suspects) == 0 {
			queue, heldUpAlone = &s.heldUp, true
		}
		first := (*queue)[0]
		(*queue)[0] = nil
		*queue = (*queue)[1:]
		first.queued = false
		c := &command{lane: first.lane, isolated: true, wasHeldUpAlone: heldUpAlone}
		for len(c.tasks) < first.lane.window.size && first.waiting.first != nil && c.mayCarry(first.waiting.first) {
			c.add(first.waiting.pop())
		}
		if len(c.tasks) == 0 {
			continue
		}
		first.inFlight, first.carried = len(c.tasks), max(first.carried, len(c.tasks))
		if heldUpAlone {
			s.heldUpInFlight++
		}
		c.seal()
		return c
	}
	return nil
}
