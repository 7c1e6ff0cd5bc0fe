package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// withLocked returns an engine that knows of n documents as locked, and of another one at
// which a command was held up. Each has one execution.
func withLocked(t *testing.T, n int) (*Engine, *server, []*job) {
	t.Helper()
	e := idle(t)
	now := time.Now()
	e.now = func() time.Time { return now }
	var jobs []*job
	for i := range n + 1 {
		jobs = append(jobs, bigJob(t, e, fmt.Sprint("locked", i), 1))
		e.enqueue(jobs[i].tasks)
	}
	s := idleServer(e)
	c := e.takeCommand(s, false)
	require.Len(t, c.tasks, n+1)
	giveUp(e, c)
	for _, j := range jobs[:n] {
		e.enqueue(j.tasks)
		alone := e.takeCommand(s, true)
		require.False(t, alone.wasHeldUpAlone)
		giveUp(e, alone)
	}
	require.Equal(t, n, s.locked)
	c.lane.answerAt = now // others are served
	for _, j := range jobs {
		e.enqueue(j.tasks)
	}
	return e, s, jobs
}

// giveUp is the server giving up a command of which it has done nothing.
func giveUp(e *Engine, c *command) {
	c.answer(protocol.Unknown, heldUp())
	for _, t := range c.tasks {
		t.Suspect = true
	}
	e.complete(c)
}

// Suspects that were held up alone leave the others most of the turns, but they have one.
func TestLockedDocumentsLeaveATurn(t *testing.T) {
	e, s, _ := withLocked(t, 3)
	s.maxInFlight, s.isolated, s.locked = 2, 100, trialShare
	trial := e.takeCommand(s, true)
	require.Equal(t, []string{"locked0"}, transfersOf(trial), "others may come without end")
	require.Equal(t, []string{"locked3"}, transfersOf(e.takeCommand(s, true)), "it may be innocent")
	s.locked = 1
	require.Nil(t, e.takeCommand(s, true), "the other turn is for those that may be innocent")
	s.locked = trialShare
	require.Equal(t, []string{"locked1"}, transfersOf(e.takeCommand(s, true)), "there are sixteen turns")
	require.Nil(t, e.takeCommand(s, true))
	s.locked = 1
	giveUp(e, trial)
	require.Nil(t, e.takeCommand(s, true), "another trial is under way")
	s.locked = trialShare
	require.Equal(t, []string{"locked2"}, transfersOf(e.takeCommand(s, true)))
}

// A single turn is for those that may be innocent.
func TestASingleTurnIsForTheInnocent(t *testing.T) {
	e, s, _ := withLocked(t, 1)
	require.Equal(t, 1, s.isolatedTurns())
	require.Equal(t, []string{"locked1"}, transfersOf(e.takeCommand(s, true)))
	require.Equal(t, []string{"locked0"}, transfersOf(e.takeCommand(s, true)))
}

// Where very many documents are locked, half of the turns are for these.
func TestManyLockedDocumentsHaveHalfOfTheTurns(t *testing.T) {
	_, s, _ := withLocked(t, 1)
	for locked, most := range map[int]int{manyLocked - 1: mostIsolated / trialShare, manyLocked: mostIsolated / trialShareOfMany} {
		s.locked = locked
		s.heldUpInFlight = most - 1
		require.True(t, s.mayTry())
		s.heldUpInFlight = most
		require.False(t, s.mayTry())
	}
}

// Where documents are locked, a command about a suspect shows soon whether it is. Every
// fourth one in a row may take as long as any, until one is answered.
func TestTrialsAreBrief(t *testing.T) {
	e, s, jobs := withLocked(t, 1)
	l := jobs[0].tasks[0].lane
	w, document := &l.window, l.suspects[jobs[0].tasks[0].subject]
	w.recordAnswer(40*time.Millisecond, false)
	brief, long := 2*(briefTrial+w.expectedTime()), w.giveUpAfter()
	innocent := e.takeCommand(s, true)
	require.Equal(t, brief, innocent.limit, "others are locked")
	document.trials = 0
	for n := range longestTryEvery {
		trial := e.takeCommand(s, true)
		require.Equal(t, []string{"locked0"}, transfersOf(trial))
		want := brief
		switch {
		case n == longestTryEvery-1:
			want = longestLimit
		case n%longTryEvery == longTryEvery-1:
			want = long
		}
		require.Equal(t, want, trial.limit, n)
		giveUp(e, trial)
		require.Equal(t, long, w.giveUpAfter(), "that says nothing of the server")
		e.enqueue(jobs[0].tasks)
	}
	trial := e.takeCommand(s, true)
	document.overdue++ // so that it stays a suspect
	trial.answer(protocol.Applied, nil)
	e.complete(trial)
	require.Zero(t, document.trials)
	s.locked = 0
	e.enqueue(jobs[0].tasks)
	require.False(t, e.takeCommand(s, true).isBrief, "nothing is locked, for all that is known")
	w.recordAnswer(time.Minute, false)
	require.Equal(t, longestLimit, innocent.giveUpAfter(), "it is never longer")
}

// Where nothing of the lane is answered, the server may be slow: no trial is brief, and
// every fourth may take the longest limit.
func TestTrialsOfASlowServer(t *testing.T) {
	e, s, jobs := withLocked(t, 1)
	l := jobs[0].tasks[0].lane
	l.answerAt = e.now().Add(-quickWithin)
	l.suspects[jobs[0].tasks[0].subject].trials = 0
	require.Equal(t, []string{"locked1"}, transfersOf(e.takeCommand(s, true)))
	for n := range 2 * longTryEvery {
		trial := e.takeCommand(s, true)
		want := l.window.giveUpAfter()
		if n%longTryEvery == longTryEvery-1 {
			want = longestLimit
		}
		require.Equal(t, want, trial.limit, n)
		giveUp(e, trial)
		e.enqueue(jobs[0].tasks)
	}
	slow := e.takeCommand(s, true)
	slow.answer(protocol.Applied, nil)
	e.complete(slow)
	require.Equal(t, e.now(), l.answerAt)
}

// That a brief trial was not answered in its time doesn't say that the server is silent.
func TestBriefTrialsTeachNothing(t *testing.T) {
	for _, brief := range []bool{true, false} {
		e, s, jobs := withLocked(t, 1)
		w := &jobs[0].tasks[0].lane.window
		size := w.size
		c := e.takeCommand(s, true)
		require.True(t, c.isBrief)
		c.isBrief = brief
		c.answer(protocol.Unknown, deadlineExceeded(t))
		e.complete(c)
		if brief {
			require.Equal(t, size, w.size)
		} else {
			require.Equal(t, 1, w.size)
		}
	}
}

// A command that the server gave up, and that may have waited for a lock, is no time-out:
// the next ones are not overdue any later, so that others have their turn before the
// server gives them up. So is one that is overdue where documents are known to be locked.
// Of a read, and where none is known, it is.
func TestHeldUpIsNoTimeout(t *testing.T) {
	for name, row := range map[string]struct {
		op        protocol.Operation
		overdue   bool
		givenUp   bool
		locked    int
		want      []int // time-outs, and commands that were held up
		wantShare int   // of the size
	}{
		"given up":                         {operation(protocol.Prepare, 0), false, true, 0, []int{0, 1}, 2},
		"overdue":                          {operation(protocol.Prepare, 0), true, false, 0, []int{1, 0}, 2},
		"overdue, others locked":           {operation(protocol.Prepare, 0), true, false, 1, []int{0, 1}, 2},
		"overdue and given up":             {operation(protocol.Prepare, 0), true, true, 1, []int{0, 1}, 2},
		"a read is given up":               {operation(protocol.Look, 0), false, true, 0, []int{1, 0}, firstSize},
		"a read is overdue, others locked": {operation(protocol.Look, 0), true, false, 1, []int{1, 0}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			e := idle(t)
			enqueueAlone(t, e, "a", row.op)
			s := idleServer(e)
			c := e.takeCommand(s, false)
			s.locked = row.locked
			if row.overdue {
				e.supersede(c)
			}
			if row.givenUp {
				giveUp(e, c)
			}
			w := c.lane.window
			require.Equal(t, row.want, []int{w.timeouts, w.heldUps})
			require.Equal(t, firstSize/row.wantShare, w.size)
		})
	}
}

// Where many documents are locked, what a command that was held up has not reached is
// isolated although other commands have passed: the next one would be held up as well.
func TestMuchIsIsolatedWhereManyAreLocked(t *testing.T) {
	for locked, suspects := range map[int]int{1: 1, 2: 2} {
		e := idle(t)
		j := enqueueAlone(t, e, "locked", operation(protocol.Prepare, 0))
		enqueueAlone(t, e, "not reached", operation(protocol.Prepare, 1))
		s := idleServer(e)
		c := e.takeCommand(s, false)
		e.supersede(c)
		c.lane.passed++
		s.locked = locked
		c.answer(protocol.Unknown, heldUp())
		j.tasks[0].Suspect = true
		e.complete(c)
		require.Len(t, c.lane.suspects, suspects)
	}
}

// A locked document that nobody comes back to is forgotten: its execution has looked,
// say, and found the write done. One that somebody does come back to is not.
func TestSuspectsAreForgotten(t *testing.T) {
	for name, row := range map[string]struct {
		later     time.Duration
		change    func(e *Engine, document *suspect, j *job)
		forgotten bool
	}{
		"left":    {later: forgetAfter + 1, forgotten: true},
		"paused":  {later: forgetAfter},
		"overdue": {later: time.Hour, change: func(_ *Engine, document *suspect, _ *job) { document.overdue++ }},
		"waiting": {later: time.Hour, change: func(e *Engine, _ *suspect, j *job) { e.enqueue(j.tasks) }},
		"tried": {later: time.Hour, change: func(e *Engine, document *suspect, j *job) {
			e.enqueue(j.tasks)
			e.takeCommand(document.lane.server, true)
		}},
	} {
		for _, overdue := range []bool{false, true} { // or one more that is held up
			t.Run(fmt.Sprint(name, ", overdue: ", overdue), func(t *testing.T) {
				e, s, j, another := leftBehind(t)
				document := j.tasks[0].lane.suspects[j.tasks[0].subject]
				if row.change != nil {
					row.change(e, document, j)
				}
				e.enqueue(another.tasks)
				c := e.takeCommand(s, false)
				now := e.now().Add(row.later)
				e.now = func() time.Time { return now }
				if overdue {
					e.supersede(c)
				} else {
					giveUp(e, c)
				}
				if row.forgotten {
					require.Zero(t, s.locked)
					require.NotContains(t, document.lane.suspects, document.subject)
				} else {
					require.Equal(t, 1, s.locked)
					require.Same(t, document, document.lane.suspects[document.subject])
				}
			})
		}
	}
}

// leftBehind returns an engine that knows a document as locked, for which nothing waits,
// an execution that wants that document, and one that wants another.
func leftBehind(t *testing.T) (*Engine, *server, *job, *job) {
	t.Helper()
	e := idle(t)
	now := time.Now()
	e.now = func() time.Time { return now }
	j, another := bigJob(t, e, "locked", 1), bigJob(t, e, "another", 1)
	e.enqueue(j.tasks)
	s := idleServer(e)
	giveUp(e, e.takeCommand(s, false))
	e.enqueue(j.tasks)
	giveUp(e, e.takeCommand(s, true))
	require.Equal(t, 1, s.locked)
	return e, s, j, another
}
