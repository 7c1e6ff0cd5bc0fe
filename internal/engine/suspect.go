package engine

import (
	"github.com/mongotransfer/transfer/internal/collections"
)

// suspect is a document that may be why a command is not answered: somebody's open
// transaction may have locked it. What is to be done to it goes out apart, in commands
// about nothing else, until one of these was answered:
//
//  1. A user's transaction writes to an account, and stays open.
//  2. A command of 512 statements comes to that account, and waits. The other accounts
//     wait with it.
//  3. While it is overdue, nothing about its documents goes out beside others: each of
//     them may be the one.
//  4. The server gives the command up. The first document that it has not come to is the
//     one (see [mongostore.Request]); the others are free of suspicion.
type suspect struct {
	lane    *lane
	subject collections.Subject
	overdue int  // commands about it that are overdue
	guilty  bool // a command was given up at it, and none about it was answered since
	alone   bool // one about it alone was given up at it since then
	waiting chain
	queued  bool // it is in one of its server's lines
}

// suspect returns a document's entry among the suspects, a new one if need be. What waits
// for the document waits there from now on. The caller holds the lock.
func (l *lane) suspect(subject collections.Subject) *suspect {
	s := l.suspects[subject]
	if s == nil {
		s = &suspect{lane: l, subject: subject}
		l.suspects[subject] = s
	}
	if parked := l.parked[subject]; parked != nil {
		s.waiting.join(parked)
		delete(l.parked, subject)
	}
	return s
}

// accuse makes suspects of what a command is about that is overdue.
func (c *command) accuse() {
	if !c.accusable() {
		return
	}
	for _, t := range c.tasks {
		c.lane.suspect(t.subject).overdue++
	}
}

// accusable reports whether the command may wait for a lock on one of its documents. A
// read waits for none, and a claim's document is nobody else's.
func (c *command) accusable() bool { return !c.lane.reads && !c.lane.claims }

// acquit takes suspicion off the documents of a command that is back, as far as it says
// so.
func (c *command) acquit() {
	l := c.lane
	for _, t := range c.tasks {
		if t.Suspect {
			s := l.suspect(t.subject)
			s.guilty, s.alone = true, s.alone || c.apart
		}
		s := l.suspects[t.subject]
		if s == nil {
			continue
		}
		if c.gaveWay {
			s.overdue--
		}
		if t.answered() {
			s.guilty, s.alone = false, false
		}
	}
	for _, t := range c.tasks {
		if s := l.suspects[t.subject]; s != nil {
			s.settle()
		}
	}
}

// settle frees a document of which nothing is left to suspect, and queues one that is
// not, if something is to be done to it.
func (s *suspect) settle() {
	l := s.lane
	switch {
	case s.overdue == 0 && !s.guilty:
		delete(l.suspects, s.subject)
		for t := s.waiting.pop(); t != nil; t = s.waiting.pop() {
			l.admit(t)
		}
	case !s.queued && s.waiting.first != nil && l.busy[s.subject] == 0:
		s.queued = true
		if s.alone {
			l.server.guilty = append(l.server.guilty, s)
		} else {
			l.server.suspects = append(l.server.suspects, s)
		}
	}
}

// mayGoApart reports whether something about a suspect may go out, if there is a turn.
// Those that were held up alone don't take the last turn from the others, which are as
// quick as anything most likely: a hundred locked documents would hold those up for
// minutes.
func (s *server) mayGoApart() bool {
	return len(s.suspects) > 0 || len(s.guilty) > 0 && s.trials < max(1, s.max-1)
}

// nextApart returns the next command about a suspect, nil if there is none.
func (s *server) nextApart() *command {
	for s.mayGoApart() {
		line := &s.suspects
		if len(s.suspects) == 0 {
			line = &s.guilty
		}
		one := (*line)[0]
		(*line)[0] = nil
		*line = (*line)[1:]
		one.queued = false
		c := &command{lane: one.lane, apart: true, trial: line == &s.guilty}
		for len(c.tasks) < one.lane.window.size && one.waiting.first != nil && c.mayCarry(one.waiting.first) {
			c.tasks = append(c.tasks, one.waiting.pop())
		}
		if len(c.tasks) == 0 {
			continue
		}
		if c.trial {
			s.trials++
		}
		c.begin()
		return c
	}
	return nil
}
