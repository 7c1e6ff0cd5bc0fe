package engine

import (
	"context"
	"runtime"
	"slices"
	"time"
)

// server is one cluster.
// While as many commands as allowed are in flight to it, the next ones gather, and
// nothing waits for a timer.
// All counts are bounded:
//
//   - MaxInFlight commands that are in time. When one is overdue, another one may be sent
//     in its place, so that a lost message doesn't delay everybody.
//   - No more than MaxInFlight commands that are overdue. After that nothing is sent
//     until one returns or is given up: a slow server is not made slower.
//   - MaxInFlight commands about suspects, which may be waiting for somebody else's lock,
//     each about one document; up to mostIsolated where many are locked.
type server struct {
	maxInFlight int
	lanes       []*lane

	inTime         int        // turns of commands that are in time
	overdue        int        // superseded commands in flight
	isolated       int        // turns of commands about suspects
	heldUpInFlight int        // commands about suspects that were held up alone
	locked         int        // suspects that were held up alone
	suspects       []*suspect // with tasks to send
	heldUp         []*suspect // likewise, but held up alone before
}

// startAllBut starts what may be sent to all servers but one, which may be nil: the
// caller has that one's turn.
func (e *Engine) startAllBut(but *server) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.startOnAllBut(but)
}

// startOnAllBut is startAllBut for a caller that holds the lock.
func (e *Engine) startOnAllBut(but *server) {
	for _, s := range e.servers {
		if s != but {
			e.startOn(s)
		}
	}
}

// startOn starts one more sender of commands to a server, and one of commands about
// suspects, if they may send.
// The caller holds the lock.
func (e *Engine) startOn(s *server) {
	if s.inTime < s.maxInFlight && s.ready() > 0 {
		s.inTime++
		e.startSender(s, false)
	}
	if s.isolated < s.isolatedTurns() && s.mayIsolate() {
		s.isolated++
		e.startSender(s, true)
	}
}

func (e *Engine) startSender(s *server, isolated bool) {
	e.sending.Add(1)
	go func() {
		defer e.sending.Done()
		e.sendCommands(s, isolated)
	}()
}

// ready returns how many tasks may be sent.
func (s *server) ready() int {
	n := 0
	for _, l := range s.lanes {
		n += l.ready
	}
	return n
}

// sendCommands sends commands until nothing is left that may be sent.
func (e *Engine) sendCommands(s *server, isolated bool) {
	for {
		// Executions that were just answered, or just came, join the next command.
		runtime.Gosched()
		c := e.takeCommand(s, isolated)
		if c == nil {
			return
		}
		e.perform(c)
		keepsTurn := e.complete(c)
		if !e.handOut(c, s, keepsTurn) {
			return
		}
	}
}

// handOut hands the answers of a command to their jobs, starts what may be sent then, and
// reports to the observer.
// It reports whether the command's sender goes on: otherwise another one has its turn.
func (e *Engine) handOut(c *command, s *server, keepsTurn bool) bool {
	var done CommandInfo
	if e.observer.CommandDone != nil {
		done = e.describeDone(c) // the tasks are their jobs' again after that
	}
	e.deliver(c.tasks)
	if keepsTurn {
		e.startAllBut(s)
	} else {
		e.startAllBut(nil)
	}
	if e.observer.CommandDone != nil {
		e.observer.CommandDone(done)
	}
	return keepsTurn
}

// takeCommand takes the next command for a server off its queues.
// It returns nil, and gives the turn back, if there is none.
func (e *Engine) takeCommand(s *server, isolated bool) *command {
	e.mu.Lock()
	var refused []*task
	var c *command
	if isolated {
		c = s.nextIsolated()
	} else {
		c = s.nextCommand(len(e.running)-1-e.deferredJobs, func(t *task) bool {
			if e.yields(t) {
				return false
			}
			may := e.mayClaim(t)
			if !may {
				refused = append(refused, t)
			}
			return may
		}, e.joinDeferred)
	}
	switch {
	case c != nil:
		c.sentAt, c.answersBefore, c.passedBefore = e.now(), c.lane.answers, c.lane.passed
		if e.observer.CommandDone != nil {
			c.queued = s.ready()
		}
		if !isolated {
			c.overdueTimer = time.AfterFunc(c.lane.window.overdueAfter(), func() { e.supersede(c) })
		}
	case isolated:
		s.isolated--
	default:
		s.inTime--
	}
	e.startOnAllBut(nil) // what begins to wait for a lock makes room for others elsewhere
	e.mu.Unlock()
	for _, t := range refused {
		e.returnClaim(t)
	}
	return c
}

// nextCommand returns the next command, nil if nothing may be sent.
func (s *server) nextCommand(otherJobs int, mayClaim func(*task) bool, join func(*command, int)) *command {
	for {
		l := s.mostUrgentLane()
		if l == nil {
			return nil
		}
		c := l.nextCommand(otherJobs, mayClaim, join)
		if c == nil {
			continue // all tasks of its queue are parked now
		}
		for _, other := range s.lanes {
			other.skipped++
		}
		l.skipped = 0
		return c
	}
}

// mostUrgentLane returns the lane that sends next, nil if nothing is ready.
func (s *server) mostUrgentLane() *lane {
	backlogBesideClaims := 0
	for _, l := range s.lanes {
		if !l.isClaim {
			backlogBesideClaims += l.backlog()
		}
	}
	var first *lane
	highest := 0
	for _, l := range s.lanes {
		if urgency := l.urgency(backlogBesideClaims); urgency > highest {
			first, highest = l, urgency
		}
	}
	return first
}

// supersede lets others be sent although a command is still in flight, unless too many
// commands are overdue.
func (e *Engine) supersede(c *command) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := c.lane.server
	switch {
	case c.returned || c.superseded:
	case s.overdue >= s.maxInFlight:
		c.overdueTimer.Reset(firstOverdue)
	default:
		c.superseded = true
		s.inTime--
		s.overdue++
		c.lane.window.recordTimeout()
		c.suspectDocuments()
		c.freeDocuments()
		e.startOnAllBut(nil)
	}
}

// complete takes back a command that has returned, and reports whether its sender keeps
// its turn.
func (e *Engine) complete(c *command) (keepsTurn bool) {
	if c.overdueTimer != nil {
		c.overdueTimer.Stop()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s := c.lane.server
	c.returned = true
	if c.wasHeldUpAlone {
		s.heldUpInFlight--
	}
	c.learn(e.now())
	for _, t := range c.tasks {
		t.endWait(e.now())
	}
	if c.superseded {
		s.overdue--
		c.updateSuspects()
		return false
	}
	c.updateSuspects()
	c.freeDocuments()
	if c.isolated && s.isolated > s.isolatedTurns() { // there are fewer by now
		s.isolated--
		return false
	}
	return true
}

// perform sends a command and waits for its answers for as long as one may take.
func (e *Engine) perform(c *command) {
	e.mu.Lock()
	limit := c.giveUpAfter()
	e.mu.Unlock()
	limited, cancel := e.store.WithLimit(c.context(e.base), limit)
	defer cancel()
	e.traceSent(limited, c.calls)
	e.store.Perform(limited, c.lane.key, c.calls)
}

// context returns the context in which the command is sent: base, with the values of its
// caller's context where it is of one job, for tracing.
// A command that several jobs share carries nobody's values.
// So does one that comes after the answer: what the values stand for may be over.
func (c *command) context(base context.Context) context.Context {
	first := c.tasks[0].job
	if first.callerKnows || slices.ContainsFunc(c.tasks, func(t *task) bool { return t.job != first }) {
		return base
	}
	return contextWithValues{base, first.caller}
}

// deliver hands answers to their jobs, and ends the round of each job that has all of its
// answers.
func (e *Engine) deliver(tasks []*task) {
	now := e.now()
	for _, t := range tasks {
		if t.job.unanswered.Add(-1) == 0 {
			e.endRound(t.job, now)
		}
	}
}

// contextWithValues is a context with the values of another one, but without its end.
type contextWithValues struct {
	context.Context
	values context.Context
}

// Value implements context.Context.
func (v contextWithValues) Value(key any) any {
	if value := v.Context.Value(key); value != nil {
		return value
	}
	return v.values.Value(key)
}
