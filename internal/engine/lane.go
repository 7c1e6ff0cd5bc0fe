package engine

import (
	"slices"
	"time"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
)

const (
	// maxPassed is how often a lane with something to send is passed over for others
	// where more is waiting.
	maxPassed = 8
	urgent    = 1 << 30 // more than can wait in any lane
	// runShare is the part of a command that one run may fill. A transfer of a thousand
	// legs must not keep those of two waiting.
	runShare = 4
	// smallShare is what each run may have of a command in any case.
	smallShare = 4
	// plainTasks is how many tasks of one run count when lanes are compared.
	plainTasks = 4
)

// task is a request of a run, in the queue of a lane or on its way.
type task struct {
	mongostore.Call
	run     *run
	lane    *lane
	subject collections.Subject
	next    *task // in its chain
}

// answered reports whether the server has said what became of the task.
func (t *task) answered() bool {
	return t.Answer.Result != protocol.Unknown && t.Answer.Result != protocol.NotSent
}

// lane gathers requests that can go out in one command. What is about a document that is
// in a command on its way is parked by that document: so to take a command costs what it
// carries, however much is waiting.
type lane struct {
	key      mongostore.Lane
	server   *server
	reads    bool // it changes nothing
	claims   bool // it begins what is not stored yet, or not anybody's
	queue    queue
	ready    int                            // tasks in the queue
	busy     map[collections.Subject]int    // documents that commands on their way are about
	parked   map[collections.Subject]*chain // what waits for these
	suspects map[collections.Subject]*suspect
	window   window
	answers  int   // commands that were answered so far
	passed   int   // how often others have sent a command since it last did
	tail     *task // while a run's tasks are added: the latest one
}

// enqueue adds the tasks of a run's round to their lanes. They go out when
// [Engine.startAll] is called.
func (e *Engine) enqueue(tasks []task) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range tasks {
		t := &tasks[i]
		t.next = nil
		t.lane = e.lane(t)
		t.lane.add(t)
	}
	for i := range tasks {
		tasks[i].lane.tail = nil
	}
}

// lane returns the lane of a task. The caller holds the lock.
func (e *Engine) lane(t *task) *lane {
	key := mongostore.LaneOf(t.Attempt, t.Op)
	if l := e.lanes[key]; l != nil {
		return l
	}
	cluster := e.store.ClusterOf(key)
	if e.servers[cluster] == nil {
		e.servers[cluster] = &server{max: e.limits.MaxInFlight}
	}
	l := &lane{
		key: key, server: e.servers[cluster], claims: t.Op.Kind == protocol.Claim, reads: reads(t.Op.Kind),
		busy: map[collections.Subject]int{}, parked: map[collections.Subject]*chain{},
		suspects: map[collections.Subject]*suspect{}, window: newWindow(e.limits.MaxBatch),
	}
	e.lanes[key] = l
	l.server.lanes = append(l.server.lanes, l)
	return l
}

func reads(kind protocol.Kind) bool {
	switch kind {
	case protocol.ReadFence, protocol.ReadTransfer, protocol.Look, protocol.LookTransfer:
		return true
	default:
		return false
	}
}

// add puts a task where it has to wait: behind those of its run, where it may go out.
func (l *lane) add(t *task) {
	if l.waits(t) {
		return
	}
	l.ready++
	if l.tail != nil {
		l.tail.next = t
	} else {
		l.queue.push(t)
	}
	l.tail = t
}

// admit puts a single task where it has to wait.
func (l *lane) admit(t *task) {
	if !l.waits(t) {
		l.ready++
		l.queue.push(t)
	}
}

// waits parks a task that may not go out beside others now, and reports whether that was
// so.
func (l *lane) waits(t *task) bool {
	if s := l.suspects[t.subject]; s != nil {
		s.waiting.push(t)
		s.settle()
		return true
	}
	if l.busy[t.subject] == 0 {
		return false
	}
	parked := l.parked[t.subject]
	if parked == nil {
		parked = &chain{}
		l.parked[t.subject] = parked
	}
	parked.push(t)
	return true
}

// command is some tasks on their way together.
type command struct {
	lane     *lane
	tasks    []*task
	requests []*mongostore.Call
	apart    bool // it is about a suspect alone
	trial    bool // and that one was held up alone before
	full     bool // it carries as much as it may, or as its runs may have of it
	watch    *time.Timer
	sent     time.Time
	answers  int  // that its lane had got when it was sent
	gaveWay  bool // it is overdue, and others go out in its place
	back     bool
}

// mayCarry reports whether a task may go out in the command. What may be why another one
// was refused as a whole shares none.
func (c *command) mayCarry(t *task) bool {
	return len(c.tasks) == 0 || !t.run.alone && !c.tasks[0].run.alone
}

// begin marks the documents of the command busy. What replaces a fence comes last: the
// prepares beside it name the fence as it is, and would be refused after it.
func (c *command) begin() {
	for _, t := range c.tasks {
		c.lane.busy[t.subject]++
	}
	slices.SortStableFunc(c.tasks, func(a, b *task) int { return replaces(a) - replaces(b) })
	c.requests = make([]*mongostore.Call, len(c.tasks))
	for i, t := range c.tasks {
		c.requests[i] = &t.Call
	}
}

func replaces(t *task) int {
	if t.Op.ReplaceFence || t.Op.Kind == protocol.FenceOnly {
		return 1
	}
	return 0
}

// release lets others go out that are about the command's documents.
func (c *command) release() {
	l := c.lane
	for _, t := range c.tasks {
		if l.busy[t.subject]--; l.busy[t.subject] > 0 {
			continue
		}
		delete(l.busy, t.subject)
		if parked := l.parked[t.subject]; parked != nil {
			delete(l.parked, t.subject)
			for one := parked.pop(); one != nil; one = parked.pop() {
				l.admit(one)
			}
		}
		if s := l.suspects[t.subject]; s != nil {
			s.settle()
		}
	}
}

// next takes a command off the queue, nil if nothing may go out. A run has no more than a
// quarter of what a command may carry, and beside others, of which so many are under way,
// no more than a small share of that, or a quarter of what the command does carry. A
// claim that mayClaim refuses is left out.
func (l *lane) next(others int, mayClaim func(*task) bool) *command {
	if l.ready == 0 {
		return nil
	}
	size := l.window.size
	c := &command{lane: l, tasks: make([]*task, 0, min(size, l.ready))}
	most := max(1, size/runShare)
	small := min(max(smallShare, most/max(1, others)), most)
	var beyond []*task
	for len(c.tasks) < size && !l.queue.empty() {
		head := l.queue.pop()
		if !c.mayCarry(head) {
			l.queue.unpop(head)
			break
		}
		rest := l.load(c, head, min(size, len(c.tasks)+small), mayClaim)
		switch {
		case rest == nil:
		case len(c.tasks) == size:
			l.queue.unpop(rest)
		default:
			beyond = append(beyond, rest)
		}
	}
	more := min(most, (len(c.tasks)-small)/(runShare-1)) - small
	for _, rest := range beyond {
		if rest = l.load(c, rest, min(size, len(c.tasks)+more), mayClaim); rest != nil {
			l.queue.push(rest)
			c.full = true
		}
	}
	if len(c.tasks) == 0 {
		return nil
	}
	c.full = c.full || len(c.tasks) == size
	c.begin()
	return c
}

// load moves a run's tasks into a command until that has so many, and returns what is
// left of them.
func (l *lane) load(c *command, t *task, limit int, mayClaim func(*task) bool) *task {
	for t != nil && len(c.tasks) < limit && c.mayCarry(t) {
		rest := t.next
		t.next = nil
		l.ready--
		if !l.waits(t) && (!l.claims || mayClaim(t)) {
			c.tasks = append(c.tasks, t)
		}
		t = rest
	}
	return t
}

// urgency says which lane goes first: the one where most is waiting, but none is passed
// over for long. Claims go last while more than a command's worth of what is begun is
// waiting: that is ended first.
func (l *lane) urgency(begun int) int {
	switch {
	case l.ready == 0:
		return 0
	case l.passed >= maxPassed:
		return urgent + l.passed
	case l.claims && begun > l.window.size:
		return 1
	}
	return l.backlog()
}

// backlog returns how many tasks are ready, of which each run's count up to a bound: a
// transfer of a thousand legs does not make its lane the one that goes first.
func (l *lane) backlog() int { return min(l.ready, plainTasks*l.queue.length()) }
