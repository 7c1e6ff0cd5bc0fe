package engine

import (
	"context"
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

// deferred are tasks of a lane that nobody waits for.
// They go out after a delay, in large commands, or with the next command about the same
// document: then the server writes the document once.
// The engine's lock guards it.
type deferred struct {
	delay     time.Duration
	bySubject map[collections.Subject][]*task
	scheduled bool // a timer runs that will send them
}

// deferrable reports whether an operation may be deferred that nobody waits for.
// What looks into a doubt is not deferred.
func deferrable(kind protocol.Kind) bool {
	switch kind {
	case protocol.Pay, protocol.Decide, protocol.Settle, protocol.Clear, protocol.Finish:
		return true
	default:
		return false
	}
}

// delay returns for how long the job's tasks may be deferred, 0 if they may not.
// What brings the money or the record to where others see it is deferred for less time.
func (j *job) delay() time.Duration {
	switch {
	case !j.deferred || j.alone:
		return 0
	case j.execution.Progress() < protocol.Settled:
		return settleDelay
	}
	return clearDelay
}

// answerCommitted answers the caller of a job that its transfer is committed, once.
// What is left to be done may be deferred then, and its place is free for others.
// Not so if too many jobs are deferred already: the number of transfers that are stored
// and unfinished is bounded by twice MaxPending.
// The caller owns the job.
//
// The job counts as answered before its caller is: that one may ask at once for a
// reversal, which waits for a transfer that is answered.
func (e *Engine) answerCommitted(j *job) {
	if j.callerKnows {
		return
	}
	e.mu.Lock()
	entry := e.running[j.attempt.Transfer.ID]
	entry.callersKnow++
	e.running[j.attempt.Transfer.ID] = entry
	j.callerKnows = true
	if j.deferred = e.deferredJobs < e.limits.MaxPending && e.mayDefer(); j.deferred {
		e.deferredJobs++
		e.recordPace(j)
	}
	e.mu.Unlock()
	j.reply(nil)
	if j.deferred {
		e.releasePlace(j)
	}
}

// mayDefer reports whether anything may be deferred.
// The caller holds the lock.
func (e *Engine) mayDefer() bool { return !e.closed && e.draining == 0 }

// putOff defers a task, and reports whether it may be.
// The caller holds the lock.
func (e *Engine) putOff(t *task, delay time.Duration) bool {
	id := t.Attempt.Transfer.ID
	if delay == 0 || !deferrable(t.Op.Kind) || !e.mayDefer() || e.hurried[id] > 0 {
		return false
	}
	l := t.lane
	d := l.deferredFor(delay)
	d.bySubject[t.subject] = append(d.bySubject[t.subject], t)
	t.deferred = d
	e.deferredTasks[id] = append(e.deferredTasks[id], t)
	if !d.scheduled {
		d.scheduled = true
		time.AfterFunc(delay, func() { e.sendDue(l, d) })
	}
	return true
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

// sendDue queues all tasks with one delay, when the first of them has waited for it.
func (e *Engine) sendDue(l *lane, d *deferred) {
	e.mu.Lock()
	defer e.mu.Unlock()
	d.scheduled = false
	e.queueDeferred(l, d)
}

// queueDeferred queues all tasks with one delay behind what is waited for.
// The caller holds the lock.
func (e *Engine) queueDeferred(l *lane, d *deferred) {
	for subject, tasks := range d.bySubject {
		for _, t := range e.takeDeferred(d, subject, len(tasks)) {
			t.due = true
			l.enqueueSingle(t)
		}
	}
	e.startOn(l.server)
}

// takeDeferred takes the first tasks about one document, at most limit.
// The caller holds the lock.
func (e *Engine) takeDeferred(d *deferred, subject collections.Subject, limit int) []*task {
	tasks := d.bySubject[subject]
	n := min(limit, len(tasks))
	if n == len(tasks) {
		delete(d.bySubject, subject)
	} else {
		d.bySubject[subject] = tasks[n:]
	}
	for _, t := range tasks[:n] {
		e.noLongerDeferred(t)
	}
	return tasks[:n]
}

// noLongerDeferred takes a task off the list of its transfer.
// The caller holds the lock.
func (e *Engine) noLongerDeferred(t *task) {
	t.deferred = nil
	id := t.Attempt.Transfer.ID
	rest := slices.DeleteFunc(e.deferredTasks[id], func(other *task) bool { return other == t })
	if len(rest) == 0 {
		delete(e.deferredTasks, id)
	} else {
		e.deferredTasks[id] = rest
	}
}

// joinDeferred adds to a command what is deferred about its documents, until the command
// carries limit tasks.
// The caller holds the lock.
func (e *Engine) joinDeferred(c *command, limit int) {
	for _, d := range c.lane.deferred {
		if len(d.bySubject) == 0 {
			continue
		}
		for _, t := range c.tasks[:len(c.tasks):len(c.tasks)] {
			if t.job.alone || len(c.tasks) >= limit {
				return
			}
			c.add(e.takeDeferred(d, t.subject, limit-len(c.tasks))...)
		}
	}
}

// HurryUp has what is deferred of a transfer sent at once, until done is called: somebody
// waits for its end.
func (e *Engine) HurryUp(transferID string) (done func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hurried[transferID]++
	for len(e.deferredTasks[transferID]) > 0 {
		e.sendNow(e.deferredTasks[transferID][0])
	}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.hurried[transferID]--; e.hurried[transferID] == 0 {
			delete(e.hurried, transferID)
		}
	}
}

// sendDeferredAbout has everything sent at once that is deferred about a document. It has
// as many transfers in flight as it may have: those whose marker nobody waits for keep
// others out.
func (e *Engine) sendDeferredAbout(subject collections.Subject) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.lanes {
		for _, d := range l.deferred {
			for len(d.bySubject[subject]) > 0 {
				e.sendNow(d.bySubject[subject][0])
			}
		}
	}
}

// sendNow queues a task that is deferred.
// The caller holds the lock.
func (e *Engine) sendNow(t *task) {
	d := t.deferred
	rest := slices.DeleteFunc(d.bySubject[t.subject], func(other *task) bool { return other == t })
	if len(rest) == 0 {
		delete(d.bySubject, t.subject)
	} else {
		d.bySubject[t.subject] = rest
	}
	e.noLongerDeferred(t)
	t.lane.enqueueSingle(t)
	e.startOn(t.lane.server)
}

// sendAllDeferred queues everything that is deferred.
// The caller holds the lock.
func (e *Engine) sendAllDeferred() {
	for _, l := range e.lanes {
		for _, d := range l.deferred {
			e.queueDeferred(l, d)
		}
	}
}

// Drain has everything sent that is deferred, and waits until each transfer has come to
// its end whose caller was answered before.
// When ctx ends it waits no longer.
func (e *Engine) Drain(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.draining++
	defer func() { e.draining-- }()
	e.sendAllDeferred()
	var answered []string
	for id, entry := range e.running {
		if entry.callersKnow > 0 {
			answered = append(answered, id)
		}
	}
	for ctx.Err() == nil {
		answered = slices.DeleteFunc(answered, func(id string) bool { return e.running[id].callersKnow == 0 })
		if len(answered) == 0 {
			return
		}
		if e.someEnded == nil {
			e.someEnded = make(chan struct{})
		}
		e.waitFor(ctx, e.someEnded)
	}
}

// waitFor waits for a channel, without the lock, which the caller holds.
func (e *Engine) waitFor(ctx context.Context, ended <-chan struct{}) {
	e.mu.Unlock()
	defer e.mu.Lock()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}
