package engine

import (
	"slices"
	"time"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/protocol"
)

const (
	// settleDelay is how long the pays and the record of a transfer are deferred that
	// nobody waits for.
	settleDelay = 20 * time.Millisecond
	// clearDelay is how long a clear or a finish is deferred that nobody waits for.
	clearDelay = 250 * time.Millisecond
)

// deferred are tasks of a lane that nobody waits for. They go out after a delay, in large
// commands, or with the next command about the same document: then the server writes the
// document once. The zero value has none.
// The engine's lock guards it.
type deferred struct {
	delay     time.Duration
	bySubject map[collections.Subject][]*task
	scheduled bool // a timer runs that will send them
}

// delayOf returns how long an operation may be deferred that nobody waits for, 0 if it
// may not. What looks into a doubt is not deferred.
func delayOf(kind protocol.Kind) time.Duration {
	switch kind {
	case protocol.Pay, protocol.Decide:
		return settleDelay
	case protocol.Settle, protocol.Clear, protocol.Finish:
		return clearDelay
	default:
		return 0
	}
}

// answerCommitted answers the caller of a job that its transfer is committed, once. What
// is left to be done may be deferred then, and its place is free for others, unless too
// many jobs are deferred already: the number of transfers that are stored and unfinished
// is bounded by twice MaxPending.
// The caller owns the job.
func (e *Engine) answerCommitted(j *job) {
	if j.answered {
		return
	}
	j.reply(nil)
	e.mu.Lock()
	entry := e.running[j.attempt.Transfer.ID]
	entry.answered++
	e.running[j.attempt.Transfer.ID] = entry
	j.answered = true
	if j.deferred = e.deferredJobs < e.limits.MaxPending && !e.closed; j.deferred {
		e.deferredJobs++
		e.recordPace(j)
	}
	e.mu.Unlock()
	if j.deferred {
		e.releasePlace(j)
	}
}

// mayDefer reports whether a task may be deferred.
// The caller holds the lock.
func (e *Engine) mayDefer(t *task) bool {
	return t.job.deferred && !t.job.alone && !e.closed && e.hurried[t.Attempt.Transfer.ID] == 0 && delayOf(t.Op.Kind) > 0
}

// putOff defers a task.
// The caller holds the lock.
func (e *Engine) putOff(t *task) {
	l, delay := t.lane, delayOf(t.Op.Kind)
	d := l.deferredFor(delay)
	d.bySubject[t.subject] = append(d.bySubject[t.subject], t)
	t.deferred = d
	id := t.Attempt.Transfer.ID
	e.deferredTasks[id] = append(e.deferredTasks[id], t)
	if !d.scheduled {
		d.scheduled = true
		time.AfterFunc(delay, func() { e.sendDeferred(l, d) })
	}
}

// deferredFor returns the lane's tasks with a delay.
func (l *lane) deferredFor(delay time.Duration) *deferred {
	for _, d := range l.deferred {
		if d.delay == delay {
			return d
		}
	}
	d := &deferred{delay: delay, bySubject: map[collections.Subject][]*task{}}
	l.deferred = append(l.deferred, d)
	return d
}

// sendDeferred queues all tasks with one delay, when the first of them has waited for it.
func (e *Engine) sendDeferred(l *lane, d *deferred) {
	e.mu.Lock()
	defer e.mu.Unlock()
	d.scheduled = false
	for subject := range d.bySubject {
		for _, t := range e.takeDeferred(d, subject) {
			l.enqueueSingle(t)
		}
	}
	e.startOn(l.server)
}

// takeDeferred takes the tasks about one document.
// The caller holds the lock.
func (e *Engine) takeDeferred(d *deferred, subject collections.Subject) []*task {
	tasks := d.bySubject[subject]
	delete(d.bySubject, subject)
	for _, t := range tasks {
		t.deferred = nil
		id := t.Attempt.Transfer.ID
		e.deferredTasks[id] = slices.DeleteFunc(e.deferredTasks[id], func(other *task) bool { return other == t })
		if len(e.deferredTasks[id]) == 0 {
			delete(e.deferredTasks, id)
		}
	}
	return tasks
}

// joinDeferred adds to a command what is deferred about its documents.
// The caller holds the lock.
func (e *Engine) joinDeferred(c *command) {
	l := c.lane
	for _, d := range l.deferred {
		if len(d.bySubject) == 0 {
			continue
		}
		for _, t := range c.tasks[:len(c.tasks):len(c.tasks)] {
			if t.job.alone {
				return
			}
			c.tasks = append(c.tasks, e.takeDeferred(d, t.subject)...)
		}
	}
}

// HurryUp has what is deferred of a transfer sent at once, until done is called: somebody
// waits for its end.
func (e *Engine) HurryUp(transferID string) (done func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hurried[transferID]++
	e.sendNow(transferID)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.hurried[transferID]--; e.hurried[transferID] == 0 {
			delete(e.hurried, transferID)
		}
	}
}

// sendNow queues what is deferred of a transfer, with what is deferred about the same
// documents.
// The caller holds the lock.
func (e *Engine) sendNow(transferID string) {
	for len(e.deferredTasks[transferID]) > 0 {
		first := e.deferredTasks[transferID][0]
		l := first.lane
		for _, t := range e.takeDeferred(first.deferred, first.subject) {
			l.enqueueSingle(t)
		}
		e.startOn(l.server)
	}
}

// sendAllDeferred queues everything that is deferred.
// The caller holds the lock.
func (e *Engine) sendAllDeferred() {
	for _, l := range e.lanes {
		for _, d := range l.deferred {
			for subject := range d.bySubject {
				for _, t := range e.takeDeferred(d, subject) {
					l.enqueueSingle(t)
				}
			}
		}
		e.startOn(l.server)
	}
}
