package engine

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/mongotransfer/transfer/internal/wire"
)

// server is one cluster. While as many commands as may be are on their way to it, the
// next ones gather; nothing waits for a timer. All counts are bounded:
//
//   - MaxInFlight commands that are in time. When one is overdue another one may go out
//     in its place, so that a lost message doesn't hold everybody up,
//   - but no more than MaxInFlight that are overdue. After that nothing goes out until
//     one is back, or given up: a server that is slow is not made slower.
//   - As many about suspects, which may be waiting for somebody else's lock, each about
//     one document.
type server struct {
	max   int // MaxInFlight
	lanes []*lane

	out      int        // in time, or their successors' turns are not free yet
	late     int        // overdue, with a successor
	apart    int        // about suspects
	trials   int        // of those, about suspects that were held up alone before
	suspects []*suspect // with something to send
	guilty   []*suspect // the same, of those that were held up alone before
}

// startAll sends what may be sent, but to the given server, if there is one: its turn is
// the caller's.
func (e *Engine) startAll(but *server) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.servers {
		if s != but {
			e.start(s)
		}
	}
}

// start lets one more command go out to a server, if it may, and one about a suspect. The
// caller holds the lock.
func (e *Engine) start(s *server) {
	if s.out < s.max && s.waiting() > 0 {
		s.out++
		e.send(s, false)
	}
	if s.apart < s.max && s.mayGoApart() {
		s.apart++
		e.send(s, true)
	}
}

func (e *Engine) send(s *server, apart bool) {
	e.sending.Add(1)
	go func() {
		defer e.sending.Done()
		e.serve(s, apart)
	}()
}

func (s *server) waiting() int {
	n := 0
	for _, l := range s.lanes {
		n += l.ready
	}
	return n
}

// serve sends commands until nothing is left that may go out.
func (e *Engine) serve(s *server, apart bool) {
	for {
		runtime.Gosched() // those that have just been answered, or have just come, are in the next command
		c := e.take(s, apart)
		if c == nil {
			return
		}
		e.perform(c)
		mayGoOn := e.back(c)
		e.deliver(c.tasks)
		if !mayGoOn {
			e.startAll(nil)
			return // another one has taken this one's place
		}
		e.startAll(s)
	}
}

// take takes the next command for a server out of its queues. It returns nil, and gives
// the turn back, if there is none.
func (e *Engine) take(s *server, apart bool) *command {
	e.mu.Lock()
	var refused []*task
	var c *command
	if apart {
		c = s.nextApart()
	} else {
		c = s.next(len(e.running)-1, func(t *task) bool {
			may := e.mayClaim(t)
			if !may {
				refused = append(refused, t)
			}
			return may
		})
	}
	switch {
	case c != nil:
		c.sent, c.answers = e.now(), c.lane.answers
		if !apart {
			c.watch = time.AfterFunc(c.lane.window.overdue(), func() { e.giveWay(c) })
		}
	case apart:
		s.apart--
	default:
		s.out--
	}
	e.start(s)
	e.mu.Unlock()
	for _, t := range refused {
		e.refuse(t)
	}
	return c
}

// next returns the next command, nil if nothing may go out. Others are the
// executions that are under way, but for one.
func (s *server) next(others int, mayClaim func(*task) bool) *command {
	for {
		l := s.first()
		if l == nil {
			return nil
		}
		c := l.next(others, mayClaim)
		if c == nil {
			continue // all that was in its queue is parked now
		}
		for _, other := range s.lanes {
			other.passed++
		}
		l.passed = 0
		return c
	}
}

// first returns the lane that goes first, nil if nothing is ready.
func (s *server) first() *lane {
	begun := 0
	for _, l := range s.lanes {
		if !l.claims {
			begun += l.backlog()
		}
	}
	var first *lane
	most := 0
	for _, l := range s.lanes {
		if urgency := l.urgency(begun); urgency > most {
			first, most = l, urgency
		}
	}
	return first
}

// giveWay lets others go out although a command is still on its way, if not too many are.
func (e *Engine) giveWay(c *command) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := c.lane.server
	switch {
	case c.back || c.gaveWay:
	case s.late >= s.max:
		c.watch.Reset(firstOverdue)
	default:
		c.gaveWay = true
		s.out--
		s.late++
		c.lane.window.late()
		c.accuse()
		c.release()
		e.start(s)
	}
}

// back takes a command back, and reports whether it still has its turn.
func (e *Engine) back(c *command) bool {
	if c.watch != nil {
		c.watch.Stop()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s := c.lane.server
	c.back = true
	if c.trial {
		s.trials--
	}
	c.judge(e.now())
	if c.gaveWay {
		s.late--
		c.acquit()
		return false
	}
	c.acquit()
	c.release()
	return true
}

// judge learns from how a command went.
func (c *command) judge(now time.Time) {
	l := c.lane
	if slices.ContainsFunc(c.tasks, (*task).answered) {
		l.answers++
		l.window.answered(now.Sub(c.sent), c.full)
		for _, t := range c.tasks {
			t.run.heldUp = t.run.heldUp && !t.answered()
		}
		return
	}
	cause := c.tasks[0].Cause
	switch {
	case wire.HeldUp(cause):
		c.holdUp()
		if c.apart {
			return // it was the document
		}
	case !wire.Silent(cause) && !wire.GaveUp(cause):
		return
	}
	if !c.gaveWay {
		l.window.late()
	}
	if l.answers == c.answers {
		l.window.silent()
	}
}

// holdUp takes down for each run that one of its commands did not come to its end. Where
// that has happened before, whatever was suspected then was not why, or not alone: all
// are suspects now.
func (c *command) holdUp() {
	for _, t := range c.tasks {
		if c.accusable() {
			t.Suspect = t.Suspect || t.run.heldUp
			t.run.heldUp = true
		}
	}
}

// perform sends a command and waits for its answers, as long as one may take.
func (e *Engine) perform(c *command) {
	ctx := e.base
	if r := c.tasks[0].run; !slices.ContainsFunc(c.tasks, func(t *task) bool { return t.run != r }) {
		ctx = valued{e.base, r.values} // for tracing; a command that several share carries nobody's
	}
	e.mu.Lock()
	limit := c.lane.window.limit()
	e.mu.Unlock()
	limited, cancel := e.store.WithLimit(ctx, limit)
	defer cancel()
	e.traceSent(limited, c.requests)
	e.store.Perform(limited, c.lane.key, c.requests)
}

// deliver hands answers to their runs, and asks those what is next of which all requests
// are answered.
func (e *Engine) deliver(tasks []*task) {
	for _, t := range tasks {
		if t.run.open.Add(-1) == 0 {
			e.conclude(t.run)
		}
	}
}

// valued is a context with the values of another one.
type valued struct {
	context.Context
	values context.Context
}

// Value implements context.Context.
func (v valued) Value(key any) any {
	if value := v.Context.Value(key); value != nil {
		return value
	}
	return v.values.Value(key)
}
