package engine

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
)

const (
	// overdue is how long the others wait for a command. It may hang in the network, and then it holds up no one else.
	overdue = 250 * time.Millisecond
	// maxPassed is how often a lane with something to send is passed over for others where more is waiting.
	maxPassed = 8
	urgent    = 1 << 30 // more than can wait in any lane
)

// task is a request of a run, in the queue of a lane or on its way.
type task struct {
	mongostore.Request
	run     *run
	subject mongostore.Subject
}

// lane gathers requests that can go out in one command.
type lane struct {
	key    mongostore.Lane
	server *server
	queue  []*task                    // in the order of arrival
	busy   map[mongostore.Subject]int // documents that commands on their way are about: their requests go out one command after the other
	passed int                        // how often others have sent a command since it last did
}

// server is one cluster. While as many commands as may be are on their way to it, the next ones gather; nothing waits for a timer.
type server struct {
	lanes []*lane
	out   int // commands on their way, but for those that are overdue
}

// enqueue adds the tasks of a run's round to their lanes. They go out when [Engine.startAll] is called.
func (e *Engine) enqueue(tasks []task) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range tasks {
		t := &tasks[i]
		l := e.lane(mongostore.LaneOf(t.Work, t.Op))
		l.queue = append(l.queue, t)
	}
}

// lane returns a lane by its key. The caller holds the lock.
func (e *Engine) lane(key mongostore.Lane) *lane {
	if l := e.lanes[key]; l != nil {
		return l
	}
	cluster := e.store.ClusterOf(key)
	if e.servers[cluster] == nil {
		e.servers[cluster] = &server{}
	}
	l := &lane{key: key, server: e.servers[cluster], busy: map[mongostore.Subject]int{}}
	e.lanes[key] = l
	l.server.lanes = append(l.server.lanes, l)
	return l
}

// startAll sends what may be sent, but to the given server, if there is one: its turn is the caller's.
func (e *Engine) startAll(but *server) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.servers {
		if s != but {
			e.start(s)
		}
	}
}

// start lets one more command go out to a server, if it may. The caller holds the lock.
func (e *Engine) start(s *server) {
	if s.out >= e.limits.MaxInFlight || s.waiting() == 0 {
		return
	}
	s.out++
	e.sending.Add(1)
	go func() {
		defer e.sending.Done()
		e.serve(s)
	}()
}

func (s *server) waiting() int {
	n := 0
	for _, l := range s.lanes {
		n += len(l.queue)
	}
	return n
}

// serve sends commands until nothing is left that may go out.
func (e *Engine) serve(s *server) {
	for {
		runtime.Gosched() // those that have just been answered, or have just come, are in the next command
		c := e.take(s)
		if c == nil {
			return
		}
		e.perform(c)
		if !e.back(c) {
			e.deliver(c.tasks)
			e.startAll(nil)
			return // another one has taken this one's place
		}
		e.deliver(c.tasks)
		e.startAll(s)
	}
}

// command is some tasks on their way together.
type command struct {
	lane     *lane
	tasks    []*task
	requests []*mongostore.Request
	watch    *time.Timer
	late     bool // it is overdue, or back; guarded by the engine's lock
}

// take takes the next command for a server out of its queues. It returns nil, and gives the turn back, if there is none.
func (e *Engine) take(s *server) *command {
	e.mu.Lock()
	var dropped []*run
	c := s.next(e.limits.MaxBatch, &dropped)
	if c == nil {
		s.out--
	} else {
		c.watch = time.AfterFunc(overdue, func() { e.giveWay(c) })
		e.start(s)
	}
	e.mu.Unlock()
	for _, r := range dropped {
		e.end(r, r.gaveUp())
	}
	return c
}

// next returns the next command, nil if nothing may go out. The lanes where most is waiting come first, but none is passed over for long.
func (s *server) next(limit int, dropped *[]*run) *command {
	slices.SortStableFunc(s.lanes, func(a, b *lane) int { return b.urgency() - a.urgency() })
	for _, l := range s.lanes {
		c := l.next(limit, dropped)
		if c == nil {
			continue
		}
		for _, other := range s.lanes {
			other.passed++
		}
		l.passed = 0
		return c
	}
	return nil
}

func (l *lane) urgency() int {
	if len(l.queue) > 0 && l.passed >= maxPassed {
		return urgent + l.passed
	}
	return len(l.queue)
}

// next takes a command off the queue, nil if nothing may go out. Runs whose callers have left before they have claimed are dropped.
func (l *lane) next(limit int, dropped *[]*run) *command {
	if len(l.queue) == 0 {
		return nil
	}
	expected := min(limit, len(l.queue))
	c := &command{lane: l, tasks: make([]*task, 0, expected)}
	kept := l.queue[:0]
	for i, t := range l.queue {
		if len(c.tasks) >= limit || len(c.tasks) > 0 && (t.run.alone || c.tasks[0].run.alone) {
			kept = append(kept, l.queue[i:]...)
			break
		}
		switch {
		case l.busy[t.subject] > 0:
			kept = append(kept, t)
		case t.Op.Kind == protocol.Claim && !t.run.send():
			*dropped = append(*dropped, t.run)
		default:
			c.tasks = append(c.tasks, t)
		}
	}
	clear(l.queue[len(kept):])
	l.queue = kept
	if len(c.tasks) == 0 {
		return nil
	}
	for _, t := range c.tasks {
		l.busy[t.subject]++
	}
	c.order()
	return c
}

// order puts what replaces a fence last: the prepares beside it name the fence as it is, and would be refused after it.
func (c *command) order() {
	slices.SortStableFunc(c.tasks, func(a, b *task) int { return replaces(a) - replaces(b) })
	c.requests = make([]*mongostore.Request, len(c.tasks))
	for i, t := range c.tasks {
		c.requests[i] = &t.Request
	}
}

func replaces(t *task) int {
	if t.Op.ReplaceFence || t.Op.Kind == protocol.FenceOnly {
		return 1
	}
	return 0
}

// giveWay lets others go out although a command is still on its way.
func (e *Engine) giveWay(c *command) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !c.late {
		c.release()
		e.start(c.lane.server)
	}
}

// back takes a command back that was answered, and reports whether it still has its turn.
func (e *Engine) back(c *command) bool {
	c.watch.Stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.late {
		return false
	}
	c.release()
	c.lane.server.out++ // the turn is kept for the next command
	return true
}

func (c *command) release() {
	c.late = true
	c.lane.server.out--
	for _, t := range c.tasks {
		if c.lane.busy[t.subject]--; c.lane.busy[t.subject] == 0 {
			delete(c.lane.busy, t.subject)
		}
	}
}

// perform sends a command and waits for its answers, as long as one may take.
func (e *Engine) perform(c *command) {
	ctx := e.base
	if r := c.tasks[0].run; !slices.ContainsFunc(c.tasks, func(t *task) bool { return t.run != r }) {
		ctx = valued{e.base, r.values} // for tracing; a command that several share carries nobody's
	}
	limited, cancel := context.WithTimeout(ctx, mongostore.CommandLimit)
	defer cancel()
	e.traceSent(limited, c.requests)
	e.store.Perform(limited, c.lane.key, c.requests)
}

// deliver hands answers to their runs, and asks those what is next of which all requests are answered.
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
