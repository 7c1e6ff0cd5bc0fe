package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// enqueueCounted queues a prepare of a new job that counts as in progress, and whose
// caller is a member of the crowd.
func enqueueCounted(t *testing.T, e *Engine, id string) *job {
	t.Helper()
	done := committed(t, e, id+" as well", protocol.Decided)
	done.counted = false
	w := done.waitlist
	w.pace.inProgress--
	w.crowd.admitted.Add(1)
	j := &job{
		execution: done.execution, attempt: attemptFor(t, e, id), caller: t.Context(), replied: make(chan struct{}), waitlist: w,
		claimSentAt: e.now(), counted: true, member: &member{crowd: &w.crowd},
	}
	w.count(j, 1)
	require.NoError(t, e.register(id))
	j.tasks = []task{newTask(j, operation(protocol.Prepare, 0))}
	e.enqueue(j.tasks)
	return j
}

// While an execution waits for a document that may be locked, neither it nor its caller
// counts, and that time is not part of what it took.
func TestWaitingForALockDoesNotCount(t *testing.T) {
	now := time.Now()
	e := idle(t)
	e.now = func() time.Time { return now }
	w := e.gate.waitlistFor(nil)
	count := func(inProgress int, locked int64) {
		t.Helper()
		require.Equal(t, inProgress, w.pace.inProgress)
		require.Equal(t, locked, w.crowd.locked.Load())
		require.Equal(t, int(locked), w.locked)
	}
	first := enqueueCounted(t, e, "first")
	s := idleServer(e)
	c := e.takeCommand(s, false)
	parked := enqueueCounted(t, e, "parked")
	count(2, 0)
	now = now.Add(time.Second)
	e.supersede(c)
	count(0, 2)
	later := enqueueCounted(t, e, "later")
	count(0, 3)
	now = now.Add(time.Minute)
	isolated := e.takeCommand(s, true)
	require.Equal(t, []string{"parked", "later"}, transfersOf(isolated))
	count(0, 3)
	isolated.answer(protocol.Applied, nil)
	e.complete(isolated)
	count(2, 1)
	c.answer(protocol.Applied, nil)
	e.complete(c)
	count(3, 0)
	now = now.Add(time.Second)
	for j, want := range map[*job]time.Duration{first: 2 * time.Second, parked: 2 * time.Second, later: time.Second} {
		require.Equal(t, want, now.Sub(j.claimSentAt)-j.waitedFor)
		e.recordPace(j)
		require.LessOrEqual(t, w.pace.alone, aloneTime(want))
	}
	require.InEpsilon(t, time.Second, time.Duration(w.pace.alone), 0.1)
	require.Equal(t, int64(w.pace.alone), w.crowd.alone.Load())
	require.Equal(t, int64(w.pace.each()), w.crowd.each.Load())
}

// What waits for a document that is no longer suspected counts again.
func TestFreedTasksCountAgain(t *testing.T) {
	e := idle(t)
	enqueueAlone(t, e, "first", operation(protocol.Prepare, 0))
	s := idleServer(e)
	c := e.takeCommand(s, false)
	e.supersede(c)
	enqueueCounted(t, e, "waits")
	w := e.gate.waitlistFor(nil)
	require.Zero(t, w.pace.inProgress)
	c.answer(protocol.Applied, nil)
	e.complete(c)
	require.Equal(t, 1, w.pace.inProgress)
	require.Zero(t, w.crowd.locked.Load())
	require.Equal(t, []string{"waits"}, transfersOf(e.takeCommand(s, false)))
}

// An execution of several tasks that wait counts again once none of them does.
func TestEachWaitEndsOnce(t *testing.T) {
	e := idle(t)
	j := enqueueCounted(t, e, "t")
	other := newTask(j, operation(protocol.Prepare, 1))
	tasks := []*task{&j.tasks[0], &other}
	begun := time.Now()
	for range 2 {
		for _, task := range tasks {
			task.beginWait(begun)
			require.Zero(t, j.waitlist.pace.inProgress)
		}
	}
	for range 2 {
		tasks[0].endWait(begun.Add(time.Second))
		require.Zero(t, j.waitlist.pace.inProgress)
	}
	tasks[1].endWait(begun.Add(time.Minute))
	require.Equal(t, 1, j.waitlist.pace.inProgress)
	require.Equal(t, time.Minute, j.waitedFor)
}

// A caller that has left is not counted among those who wait, whenever it leaves.
func TestMembersThatLeave(t *testing.T) {
	var c crowd
	c.admitted.Store(2)
	m, other := &member{crowd: &c}, &member{crowd: &c}
	m.wait(true)
	m.wait(true)
	require.EqualValues(t, 1, c.locked.Load())
	require.EqualValues(t, 1, c.inProgress())
	m.leave()
	m.wait(false)
	require.Zero(t, c.locked.Load())
	other.leave()
	other.wait(true)
	require.Zero(t, c.locked.Load())
	require.Zero(t, c.admitted.Load())
	var nobody *member
	nobody.wait(true)
	require.Nil(t, memberOf(t.Context()))
}

// A transfer is not claimed while many wait for one of its documents at which the server
// gave up, or while half of the places wait for such documents. It asks again.
func TestNoMoreWaitBehindALock(t *testing.T) {
	const half = 2 * fewInProgress
	takeOver, fromInitiated := insert(), insert()
	takeOver.Claim, fromInitiated.Claim = protocol.TakeOver, protocol.FromInitiated
	for name, row := range map[string]struct {
		op        protocol.Operation
		waiting   int // for this document
		elsewhere int // for others
		heldUp    bool
		again     bool
		locked    bool
	}{
		"many":                         {insert(), fewInProgress, 0, true, false, true},
		"many, submitted":              {fromInitiated, half, 0, true, false, true},
		"fewer, submitted":             {fromInitiated, half - 1, 0, true, false, false},
		"many, and it has stalled":     {takeOver, half, 0, true, false, true},
		"fewer, and it has stalled":    {takeOver, half - 1, 0, true, false, false},
		"few":                          {insert(), fewInProgress - 1, 0, true, false, false},
		"few here, many elsewhere":     {insert(), 1, half - 1, true, false, true},
		"few here, fewer elsewhere":    {insert(), 1, half - 2, true, false, false},
		"many elsewhere":               {insert(), 0, half, true, false, false},
		"stalled, and many elsewhere":  {takeOver, 1, half, true, false, true},
		"many elsewhere, overdue here": {insert(), 1, half, false, false, false},
		"overdue alone":                {insert(), fewInProgress, 0, false, false, false},
		"claimed before":               {insert(), fewInProgress, 0, true, true, false},
		"nobody is in doubt":           {insert(), 0, 0, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := idle(t)
			e.limits.MaxPending = 2 * half
			enqueueAlone(t, e, "first", operation(protocol.Prepare, 1))
			s := idleServer(e)
			c := e.takeCommand(s, false)
			e.supersede(c)
			for _, suspect := range c.lane.suspects {
				suspect.heldUp = row.heldUp
			}
			for i := range row.waiting {
				enqueueAlone(t, e, fmt.Sprint("waits", i), operation(protocol.Prepare, 1))
			}
			j := enqueueAlone(t, e, "new", row.op)
			j.waitlist.locked = row.waiting + row.elsewhere
			j.member = &member{crowd: &j.waitlist.crowd}
			if row.again {
				j.claimSentAt = e.now()
			}
			require.Equal(t, !row.locked, claims(e, &j.tasks[0]))
			require.Equal(t, row.locked, j.waitlist.crowd.locked.Load() == 1)
			if !row.locked {
				return
			}
			require.EqualError(t, j.tasks[0].Cause, errLocked().Error())
			require.Nil(t, e.takeCommand(s, false), "it is returned")
			require.Eventually(t, func() bool { return j.unanswered.Load() > 0 }, eventually, tick, "it asks again")
			e.mu.Lock()
			for _, suspect := range c.lane.suspects {
				suspect.heldUp = false
			}
			e.mu.Unlock()
			require.True(t, claims(e, &j.tasks[0]))
			require.Zero(t, j.waitlist.crowd.locked.Load())
		})
	}
}

// claims is mayClaim for a test beside which executions may go on.
func claims(e *Engine, t *task) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mayClaim(t)
}

// A chain knows how many tasks it has.
func TestLengthOfAChain(t *testing.T) {
	var c, other, empty chain
	for _, tasks := range []*chain{&c, &other, &other} {
		tasks.push(&task{})
	}
	c.join(&other)
	c.join(&empty)
	require.Equal(t, 3, c.length)
	require.Zero(t, other.length)
	for left := 2; left >= 0; left-- {
		require.NotNil(t, c.pop())
		require.Equal(t, left, c.length)
	}
	require.Nil(t, c.pop())
	require.Zero(t, c.length)
}

// Why a claim was not sent at first is no reason for what comes after it was.
func TestCausesBeforeTheClaimAreOver(t *testing.T) {
	e := idle(t)
	for result, over := range map[protocol.Result]bool{protocol.Applied: true, protocol.NotSent: false} {
		j := enqueueAlone(t, e, result.String(), insert())
		j.attempt.Cause = errNoTimeLeft()
		j.tasks[0].Answer = protocol.Answer{Result: result}
		e.endRound(j, e.now())
		require.Equal(t, over, j.attempt.Cause == nil, result)
	}
	j := enqueueAlone(t, e, "left", insert())
	j.cause = errNoTimeLeft()
	require.True(t, claims(e, &j.tasks[0]))
	left, err := j.callerResult(t.Context())
	require.ErrorIs(t, err, ErrUnfinished)
	require.NoError(t, left.Cause, "its caller leaves while the claim is under way")
}

// A pause after a command that was held up is a part of the wait.
func TestPausesBehindALockDoNotCount(t *testing.T) {
	for _, held := range []bool{true, false} {
		e := idle(t)
		e.now = time.Now
		j := enqueueCounted(t, e, "t")
		j.heldUp = held
		paused := make(chan struct{})
		go func() {
			defer close(paused)
			e.pause(j, 200*time.Millisecond)
		}()
		inProgress := func() int {
			e.mu.Lock()
			defer e.mu.Unlock()
			return j.waitlist.pace.inProgress
		}
		if held {
			require.Eventually(t, func() bool { return inProgress() == 0 }, eventually, tick)
		}
		<-paused
		require.Equal(t, 1, inProgress())
		require.Equal(t, held, j.waitedFor >= 200*time.Millisecond)
	}
}

// An execution that found its ID taken says nothing of what others take.
func TestIdleExecutionsTeachNothing(t *testing.T) {
	e := idle(t)
	e.now = time.Now
	j := enqueueAlone(t, e, "t", insert())
	j.claimSentAt, j.counted = e.now().Add(-time.Second), true
	j.waitlist.count(j, 1)
	e.recordPace(j)
	require.Zero(t, j.waitlist.pace)
	done := enqueueCounted(t, e, "done")
	done.claimSentAt = e.now().Add(-time.Second)
	e.recordPace(done)
	require.NotZero(t, j.waitlist.pace.alone)
}
