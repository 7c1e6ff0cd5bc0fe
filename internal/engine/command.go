package engine

import (
	"slices"
	"time"

	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// maxFields is how many fields of effects one command may have the server compare or set.
// A thousand take it some 20 ms to 100 ms: a command of many has to end far before its
// time limit, and others wait for it. What was put off about the same documents may come
// on top.
const maxFields = 2000

// command is a set of tasks that are sent together.
type command struct {
	lane           *lane
	tasks          []*task
	fields         int // of effects, that its tasks compare or set
	calls          []*mongostore.Call
	isolated       bool // it is about one suspect alone
	wasHeldUpAlone bool // and an earlier command about it alone was held up
	full           bool // it carries as much as it may, or as its jobs may have of it
	overdueTimer   *time.Timer
	sentAt         time.Time
	queued         int  // tasks that were ready for its server, and were not sent with it
	answersBefore  int  // how many commands of its lane were answered when it was sent
	passedBefore   int  // how many about many documents had passed by then
	superseded     bool // it is overdue: others have its turn and its documents
	returned       bool
}

// mayCarry reports whether a task may join the command.
// A task that may be the reason why a command was refused as a whole shares none.
// Effects of very many fields don't share one either.
func (c *command) mayCarry(t *task) bool {
	return len(c.tasks) == 0 || !t.job.alone && !c.tasks[0].job.alone && c.fields+t.fields <= maxFields
}

// add adds tasks to the command.
func (c *command) add(tasks ...*task) {
	c.tasks = append(c.tasks, tasks...)
	for _, t := range tasks {
		c.fields += t.fields
	}
}

// seal marks the documents of the command busy, and lists its calls.
// Writes that replace a fence come last: the prepares beside them name the fence as it
// is, and would be refused after it.
func (c *command) seal() {
	for _, t := range c.tasks {
		c.lane.busy[t.subject]++
	}
	slices.SortStableFunc(c.tasks, func(a, b *task) int { return fenceOrder(a) - fenceOrder(b) })
	c.calls = make([]*mongostore.Call, len(c.tasks))
	for i, t := range c.tasks {
		c.calls[i] = &t.Call
	}
}

// fenceOrder is 1 for a task that replaces a fence, and 0 for the others.
func fenceOrder(t *task) int {
	if t.Op.ReplaceFence || t.Op.Kind == protocol.FenceOnly {
		return 1
	}
	return 0
}

// freeDocuments queues the tasks that were parked because of the command.
func (c *command) freeDocuments() {
	l := c.lane
	for _, t := range c.tasks {
		if commands := l.busy[t.subject]; commands > 1 {
			l.busy[t.subject] = commands - 1
			continue
		}
		delete(l.busy, t.subject)
		if parked := l.parked[t.subject]; parked != nil {
			delete(l.parked, t.subject)
			l.enqueueAll(parked)
		}
		if s := l.suspects[t.subject]; s != nil {
			s.review()
		}
	}
}

// enqueueAll queues the tasks of a chain one by one.
func (l *lane) enqueueAll(tasks *chain) {
	for t := tasks.pop(); t != nil; t = tasks.pop() {
		t.endWait(l.now())
		l.enqueueSingle(t)
	}
}

// learn adapts the lane's window to how the command went.
func (c *command) learn(now time.Time) {
	l := c.lane
	if slices.ContainsFunc(c.tasks, (*task).answered) {
		l.answers++
		l.givenUp = 0
		l.window.recordAnswer(now.Sub(c.sentAt), c.full)
		for _, t := range c.tasks {
			t.job.heldUp = t.job.heldUp && !t.answered()
		}
		return
	}
	cause := c.tasks[0].Cause
	switch {
	case wire.HeldUp(cause):
		c.markHeldUp()
		if c.isolated { // the document is the reason, most likely, and not the server
			l.givenUp++
			return
		}
	case !wire.Silent(cause) && !wire.GaveUp(cause):
		return
	}
	if !c.superseded {
		l.window.recordTimeout()
	}
	if l.answers == c.answersBefore {
		l.window.recordSilence()
	}
}

// giveUpAfter returns after what time the command is given up.
// Every fourth command about a suspect may take the longest limit where the server gives
// up one after the other, and answers nothing of the lane: it may be slow, and the
// window learns nothing from these.
//
//  1. A server that needed 2 ms for a write needs 1 s from now on.
//  2. It gives each command up after 0.75 s. All documents are suspects by then.
//  3. Nothing but commands about suspects is sent, and all are given up for ever.
func (c *command) giveUpAfter() time.Duration {
	if c.isolated && c.lane.givenUp%longTryEvery == longTryEvery-1 {
		return longestLimit
	}
	return c.lane.window.giveUpAfter()
}

// markHeldUp records for each job that the server gave up one of its commands.
// If that happened to a job before, the documents that were suspected then were not the
// reason, or not the only one: now all of its documents are suspects.
func (c *command) markHeldUp() {
	if !c.mayBeLocked() {
		return
	}
	for _, t := range c.tasks {
		t.Suspect = t.Suspect || t.job.heldUp
		t.job.heldUp = true
	}
}
