package engine

import (
	"time"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
)

const (
	// maxSkipped is how often a lane that has something to send is skipped for busier
	// ones.
	maxSkipped         = 8
	urgencyWhenSkipped = 1 << 30 // above any backlog
	// jobShare says which part of a command one job may fill: a quarter.
	// A transfer of a thousand legs must not delay those of two.
	jobShare = 4
	// minShare is how many tasks each job may have in a command in any case.
	minShare = 4
	// dueShare says which part of a command is left to tasks that were deferred, while
	// there are any: a quarter.
	// Nobody waits for them, and they come by the thousand.
	dueShare = 4
	// countedTasks is how many tasks of one job count when lanes are compared.
	countedTasks = 4
)

// task is a call of a job, queued in a lane or in flight.
type task struct {
	mongostore.Call
	job      *job
	lane     *lane
	subject  collections.Subject
	fields   int       // of an effect, that it compares or sets
	next     *task     // in its chain
	deferred *deferred // among which it is; nil: it is not
	due      bool      // it was deferred, and nobody waits for it
	waits    bool      // for a document that may be locked
}

func newTask(j *job, op protocol.Operation) task {
	return task{
		Call: mongostore.Call{Attempt: j.attempt, Op: op}, job: j,
		subject: mongostore.SubjectOf(j.attempt, op), fields: mongostore.FieldsOf(j.attempt, op),
	}
}

// answered reports whether the answer says what became of the task.
func (t *task) answered() bool { return isKnown(t.Answer.Result) }

func isKnown(r protocol.Result) bool { return r != protocol.Unknown && r != protocol.NotSent }

// lane gathers tasks that may share a command.
// A task is parked while a command in flight is about the same document.
// So taking the next command costs as much as the command carries, however many tasks
// wait.
type lane struct {
	key       mongostore.Lane
	server    *server
	now       func() time.Time
	verb      string
	isRead    bool // it changes nothing
	isClaim   bool // it claims transfers, which nobody works on
	queue     queue
	due       queue                          // tasks that were deferred, each for itself
	ready     int                            // tasks in both queues
	busy      map[collections.Subject]int    // documents that commands in flight are about
	parked    map[collections.Subject]*chain // tasks that wait for those documents
	suspects  map[collections.Subject]*suspect
	window    window
	answers   int // commands that were answered so far
	passed    int // of these, commands about many documents that nothing held up
	givenUp   int // commands about suspects that the server gave up since the last answer
	skipped   int // how often other lanes sent a command since it last did
	dueCredit int // what is left of the part that tasks in due had of earlier commands
	deferred  []*deferred
	lastAdded *task // while the tasks of a round are added: the latest one
}

// enqueue adds the tasks of a job's round to their lanes.
// They are sent when [Engine.startAllBut] is called.
func (e *Engine) enqueue(tasks []task) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delay := tasks[0].job.delay()
	for i := range tasks {
		t := &tasks[i]
		t.next = nil
		t.lane = e.laneOf(t)
		if !e.putOff(t, delay) {
			t.lane.enqueueBehind(t)
		}
	}
	for i := range tasks {
		tasks[i].lane.lastAdded = nil
	}
}

// laneOf returns the lane of a task.
// The caller holds the lock.
func (e *Engine) laneOf(t *task) *lane {
	key := mongostore.LaneOf(t.Attempt, t.Op)
	if l := e.lanes[key]; l != nil {
		return l
	}
	cluster := e.store.ClusterOf(key)
	if e.servers[cluster] == nil {
		e.servers[cluster] = &server{maxInFlight: e.limits.MaxInFlight}
	}
	l := &lane{
		key: key, server: e.servers[cluster], now: func() time.Time { return e.now() },
		verb: verbOf(t.Op.Kind), isClaim: t.Op.Kind == protocol.Claim, isRead: isRead(t.Op.Kind),
		busy: map[collections.Subject]int{}, parked: map[collections.Subject]*chain{},
		suspects: map[collections.Subject]*suspect{}, window: newWindow(e.limits.MaxBatch),
	}
	e.lanes[key] = l
	l.server.lanes = append(l.server.lanes, l)
	return l
}

func isRead(kind protocol.Kind) bool {
	switch kind {
	case protocol.ReadFence, protocol.ReadTransfer, protocol.Look, protocol.LookTransfer:
		return true
	default:
		return false
	}
}

// enqueueBehind queues a task behind the other tasks of its round, unless it has to park.
func (l *lane) enqueueBehind(t *task) {
	if l.park(t) {
		return
	}
	l.ready++
	if l.lastAdded != nil {
		l.lastAdded.next = t
	} else {
		l.queue.push(t)
	}
	l.lastAdded = t
}

// enqueueSingle queues a task by itself, unless it has to park.
func (l *lane) enqueueSingle(t *task) {
	switch {
	case l.park(t):
		return
	case t.due:
		l.due.push(t)
	default:
		l.queue.push(t)
	}
	l.ready++
}

// park parks a task whose document is suspected or busy, and reports whether it did.
func (l *lane) park(t *task) bool {
	if s := l.suspects[t.subject]; s != nil {
		s.waiting.push(t)
		t.beginWait(l.now())
		s.review()
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

// nextCommand takes a command off the queue.
// It returns nil if nothing may be sent.
//
// A job alone may fill a quarter of what a command may carry.
// Beside other jobs it first gets its part of that quarter, at least minShare.
// It gets more up to a quarter of what the command does carry.
// A claim that mayClaim refuses is left out.
// Then come tasks that were deferred, and are due.
// At last, join adds what is still deferred about the command's documents.
func (l *lane) nextCommand(otherJobs int, mayClaim func(*task) bool, join func(*command, int)) *command {
	if l.ready == 0 {
		return nil
	}
	c := &command{lane: l, tasks: make([]*task, 0, min(l.window.size, l.ready))}
	l.takeQueued(c, l.window.size-l.leftToDue(), otherJobs, mayClaim)
	l.takeDue(c)
	if len(c.tasks) == 0 {
		return nil
	}
	join(c, l.window.size)
	c.full = c.full || len(c.tasks) == l.window.size
	c.seal()
	return c
}

// leftToDue returns how much of the next command is left to tasks that were deferred.
// Where a quarter of a command is less than one task, every few commands leave one.
func (l *lane) leftToDue() int {
	l.dueCredit += l.window.size
	tasks := l.dueCredit / dueShare
	l.dueCredit %= dueShare
	return min(l.due.length(), tasks)
}

// takeDue moves tasks that were deferred into a command.
func (l *lane) takeDue(c *command) {
	for len(c.tasks) < l.window.size && !l.due.empty() {
		t := l.due.pop()
		if !c.mayCarry(t) {
			l.due.pushFront(t)
			return
		}
		l.ready--
		if !l.park(t) {
			c.add(t)
		}
	}
}

// takeQueued moves tasks that somebody waits for into a command, until it carries size.
func (l *lane) takeQueued(c *command, size, otherJobs int, mayClaim func(*task) bool) {
	maxShare := max(1, l.window.size/jobShare)
	firstShare := min(max(minShare, maxShare/max(1, otherJobs)), maxShare)
	var rests []*task
	for len(c.tasks) < size && !l.queue.empty() {
		head := l.queue.pop()
		if !c.mayCarry(head) {
			l.queue.pushFront(head)
			break
		}
		rest := l.fill(c, head, min(size, len(c.tasks)+firstShare), mayClaim)
		switch {
		case rest == nil:
		case len(c.tasks) == size:
			l.queue.pushFront(rest)
		default:
			rests = append(rests, rest)
		}
	}
	secondShare := min(maxShare, (len(c.tasks)-firstShare)/(jobShare-1)) - firstShare
	for _, rest := range rests {
		if rest = l.fill(c, rest, min(size, len(c.tasks)+secondShare), mayClaim); rest != nil {
			l.queue.push(rest)
			c.full = true
		}
	}
	c.full = c.full || len(c.tasks) == size
}

// fill moves tasks from a chain into a command until it carries limit tasks, and returns
// the rest of the chain.
func (l *lane) fill(c *command, t *task, limit int, mayClaim func(*task) bool) (rest *task) {
	for t != nil && len(c.tasks) < limit && c.mayCarry(t) {
		next := t.next
		t.next = nil
		l.ready--
		if !l.park(t) && (!l.isClaim || mayClaim(t)) {
			c.add(t)
		}
		t = next
	}
	return t
}

// urgency ranks the lanes: the one with the largest backlog is first, but none is skipped
// for long.
// Claims come last while more than one command's worth of other tasks is waiting: what
// has begun is finished first.
func (l *lane) urgency(backlogBesideClaims int) int {
	switch {
	case l.ready == 0:
		return 0
	case l.skipped >= maxSkipped:
		return urgencyWhenSkipped + l.skipped
	case l.isClaim && backlogBesideClaims > l.window.size:
		return 1
	}
	return max(1, l.backlog())
}

// backlog returns how many tasks are ready that somebody waits for.
// It counts at most countedTasks of each job: a transfer of a thousand legs does not put
// its lane first.
func (l *lane) backlog() int { return min(l.ready-l.due.length(), countedTasks*l.queue.length()) }
