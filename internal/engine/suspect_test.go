package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// idleServer returns the server of a lane that was used.
// From now on it starts no sender by itself.
func idleServer(e *Engine) *server {
	for _, s := range e.servers {
		s.maxInFlight, s.inTime, s.isolated = 1, 100, 100
		return s
	}
	return nil
}

// transfersOf returns the transfers of a command, nil if there is no command.
func transfersOf(c *command) []string {
	if c == nil {
		return nil
	}
	var ids []string
	for _, t := range c.tasks {
		ids = append(ids, t.Attempt.Transfer.ID)
	}
	return ids
}

// answer answers a command's tasks.
func (c *command) answer(result protocol.Result, cause error) {
	for _, t := range c.tasks {
		t.Answer, t.Cause = protocol.Answer{Result: result}, cause
	}
}

// heldUp is the server's answer to a command that it gave up.
func heldUp() error { return mongo.CommandError{Code: 50, Name: "MaxTimeMSExpired"} }

// While a command is overdue, each of its documents is isolated.
// Once the command is answered they share commands with others again.
func TestSuspectsAreIsolated(t *testing.T) {
	e := idle(t)
	enqueueAlone(t, e, "a", operation(protocol.Prepare, 0))
	enqueueAlone(t, e, "b", operation(protocol.Prepare, 1))
	s := idleServer(e)
	first := e.takeCommand(s, false)
	require.Equal(t, []string{"a", "b"}, transfersOf(first))
	enqueueAlone(t, e, "parked", operation(protocol.Prepare, 0))
	e.supersede(first)
	enqueueAlone(t, e, "c", operation(protocol.Prepare, 0))
	enqueueAlone(t, e, "d", operation(protocol.Prepare, 1))
	require.Nil(t, e.takeCommand(s, false), "all are about suspects")
	isolated := e.takeCommand(s, true)
	require.Equal(t, []string{"parked", "c"}, transfersOf(isolated), "they share one document")
	require.Equal(t, []string{"d"}, transfersOf(e.takeCommand(s, true)))
	require.Nil(t, e.takeCommand(s, true))
	enqueueAlone(t, e, "e", operation(protocol.Prepare, 0))
	require.Nil(t, e.takeCommand(s, true), "one at a time about each")

	first.answer(protocol.Applied, nil)
	require.False(t, e.complete(first))
	require.Empty(t, first.lane.suspects)
	require.Nil(t, e.takeCommand(s, false), "e waits for the one about its account")
	isolated.answer(protocol.Applied, nil)
	s.isolated = s.maxInFlight
	require.True(t, e.complete(isolated))
	require.Equal(t, []string{"e"}, transfersOf(e.takeCommand(s, false)))
}

// The document at which the server gave a command up stays suspected until a command
// about it alone is answered.
// The others are free.
func TestHeldUpStaysIsolated(t *testing.T) {
	e := idle(t)
	locked := enqueueAlone(t, e, "locked", operation(protocol.Prepare, 0))
	enqueueAlone(t, e, "innocent", operation(protocol.Prepare, 1))
	s := idleServer(e)
	first := e.takeCommand(s, false)
	first.answer(protocol.Unknown, heldUp())
	locked.tasks[0].Suspect = true
	e.complete(first)
	require.Zero(t, s.locked, "that is not sure")
	enqueueAlone(t, e, "more", operation(protocol.Prepare, 0))
	enqueueAlone(t, e, "other", operation(protocol.Prepare, 1))
	require.Equal(t, []string{"other"}, transfersOf(e.takeCommand(s, false)))
	for range 2 {
		isolated := e.takeCommand(s, true)
		require.Equal(t, []string{"more"}, transfersOf(isolated))
		const size = 100
		isolated.lane.window.size = size
		isolated.answer(protocol.Unknown, heldUp())
		isolated.tasks[0].Suspect = true
		e.complete(isolated)
		require.Equal(t, 1, s.locked)
		require.Equal(t, size, isolated.lane.window.size, "that says nothing of the server")
		e.enqueue(isolated.tasks[0].job.tasks)
	}
	isolated := e.takeCommand(s, true)
	isolated.answer(protocol.Applied, nil)
	e.complete(isolated)
	require.Empty(t, isolated.lane.suspects)
	require.Zero(t, s.locked)
	enqueueAlone(t, e, "free", operation(protocol.Prepare, 0))
	require.Equal(t, []string{"free"}, transfersOf(e.takeCommand(s, false)))
}

// If nobody knows which document it was, a second command that is held up makes suspects
// of all documents whose jobs were held up before.
func TestHeldUpTwice(t *testing.T) {
	e := idle(t)
	j := enqueueAlone(t, e, "a", operation(protocol.Prepare, 0))
	s := idleServer(e)
	for _, suspected := range []int{0, 1} {
		c := e.takeCommand(s, false)
		c.answer(protocol.Unknown, heldUp())
		e.complete(c)
		require.Len(t, c.lane.suspects, suspected)
		j.tasks[0].Suspect = false
		e.enqueue(j.tasks)
	}
}

// Neither reads nor claims wait for locks, so their documents are never suspected.
func TestReadsAndClaimsAreNoSuspects(t *testing.T) {
	for _, op := range []protocol.Operation{operation(protocol.ReadFence, 0), operation(protocol.Look, 0), insert()} {
		e := idle(t)
		enqueueAlone(t, e, "a", op)
		s := idleServer(e)
		c := e.takeCommand(s, false)
		e.supersede(c)
		require.Empty(t, c.lane.suspects)
		require.Empty(t, c.lane.busy)
	}
}

// The number of overdue commands is bounded too.
// When it is reached, nothing more is sent until one returns.
func TestOverdueCommandsAreBounded(t *testing.T) {
	e := idle(t)
	for i := range 3 {
		enqueueAlone(t, e, fmt.Sprint("t", i), insert())
	}
	s := idleServer(e)
	s.maxInFlight, s.inTime = 2, 102
	s.lanes[0].window.size = 1
	commands := []*command{e.takeCommand(s, false), e.takeCommand(s, false), e.takeCommand(s, false)}
	for _, c := range commands {
		e.supersede(c)
	}
	require.Equal(t, []int{2, 100}, []int{s.overdue, s.inTime})
	require.False(t, commands[2].superseded)
	commands[0].answer(protocol.Applied, nil)
	require.False(t, e.complete(commands[0]))
	e.supersede(commands[2])
	require.Equal(t, []int{2, 99}, []int{s.overdue, s.inTime})
	require.True(t, commands[2].superseded)
}

// Commands shrink to a single task while nothing is answered, but not if other commands
// were answered in the meantime.
func TestSilence(t *testing.T) {
	for _, others := range []bool{false, true} {
		e := idle(t)
		enqueueAlone(t, e, "a", insert())
		s := idleServer(e)
		c := e.takeCommand(s, false)
		if others {
			c.lane.answers++
		}
		c.answer(protocol.Unknown, t.Context().Err())
		for _, task := range c.tasks {
			task.Cause = deadlineExceeded(t)
		}
		e.complete(c)
		want := 1
		if others {
			want = firstSize / 2
		}
		require.Equal(t, want, c.lane.window.size)
	}
}

// No more than MaxInFlight commands about suspects are in flight for each document that
// was held up alone, and not many more in all.
func TestIsolatedCommandsAreBounded(t *testing.T) {
	e := idle(t)
	j := enqueueAlone(t, e, "locked", operation(protocol.Prepare, 0))
	s := idleServer(e)
	c := e.takeCommand(s, false)
	c.answer(protocol.Unknown, heldUp())
	j.tasks[0].Suspect = true
	e.complete(c)
	s.maxInFlight, s.inTime, s.isolated = 2, 2, 2
	enqueueAlone(t, e, "more", operation(protocol.Prepare, 0))
	require.Len(t, s.suspects, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.startOn(s)
	require.Equal(t, []int{2, 2}, []int{s.inTime, s.isolated})
	for locked, turns := range map[int]int{0: 2, 1: 2, 2: 4, 15: 30, 16: mostIsolated, 100: mostIsolated} {
		s.locked = locked
		require.Equal(t, turns, s.isolatedTurns())
	}
	s.locked = 2
	e.startOn(s)
	require.Equal(t, []int{2, 3}, []int{s.inTime, s.isolated})
	s.maxInFlight = 64
	require.Equal(t, 64, s.isolatedTurns())
}

// A turn ends where fewer documents are locked by now.
func TestTurnsEnd(t *testing.T) {
	e := idle(t)
	enqueueAlone(t, e, "locked", operation(protocol.Prepare, 0))
	s := idleServer(e)
	e.supersede(e.takeCommand(s, false))
	for _, fewer := range []bool{false, true} {
		enqueueAlone(t, e, fmt.Sprint("more", fewer), operation(protocol.Prepare, 0))
		c := e.takeCommand(s, true)
		c.answer(protocol.Applied, nil)
		s.isolated = 1
		if fewer {
			s.isolated = 2
		}
		require.Equal(t, !fewer, e.complete(c))
		require.Equal(t, 1, s.isolated)
	}
	enqueueAlone(t, e, "shared", operation(protocol.Prepare, 1))
	s.isolated = 2
	c := e.takeCommand(s, false)
	c.answer(protocol.Applied, nil)
	require.Zero(t, c.lane.passed, "of those about many documents")
	require.True(t, e.complete(c), "this one has another turn")
	require.Equal(t, 1, c.lane.passed)
	require.Equal(t, 2, s.isolated)
}

// What a command has not reached, as it was held up at another document, stays isolated
// until a command reaches it, or until one is not held up; but not where a command about
// many documents was answered meanwhile.
func TestWhatWasNotReachedStaysIsolated(t *testing.T) {
	for _, result := range []protocol.Result{protocol.Applied, protocol.Unknown, 0} {
		e := idle(t)
		locked := enqueueAlone(t, e, "locked", operation(protocol.Prepare, 0))
		next := enqueueAlone(t, e, "not reached", operation(protocol.Prepare, 1))
		s := idleServer(e)
		c := e.takeCommand(s, false)
		e.supersede(c)
		c.answer(protocol.Unknown, heldUp())
		locked.tasks[0].Suspect = true
		if result == 0 {
			e.enqueue(bigJob(t, e, "about others", 1).tasks)
			passing := e.takeCommand(s, false)
			passing.answer(protocol.Applied, nil)
			e.complete(passing)
			e.complete(c)
			require.Len(t, c.lane.suspects, 1)
			continue
		}
		e.complete(c)
		require.Len(t, c.lane.suspects, 2)
		e.enqueue(next.tasks)
		isolated := e.takeCommand(s, true)
		require.Equal(t, []string{"not reached"}, transfersOf(isolated))
		isolated.answer(result, deadlineExceeded(t))
		e.complete(isolated)
		require.Len(t, c.lane.suspects, 1)
	}
}

// What a command has reached is free, though the server gave it up later on.
func TestWhatWasReachedIsFree(t *testing.T) {
	e := idle(t)
	reached := enqueueAlone(t, e, "reached", operation(protocol.Prepare, 0))
	locked := enqueueAlone(t, e, "locked", operation(protocol.Prepare, 1))
	s := idleServer(e)
	c := e.takeCommand(s, false)
	e.supersede(c)
	c.answer(protocol.Unknown, heldUp())
	reached.tasks[0].Answer, locked.tasks[0].Suspect = protocol.Answer{Result: protocol.Applied}, true
	e.complete(c)
	require.Len(t, c.lane.suspects, 1)
	require.Contains(t, c.lane.suspects, locked.tasks[0].subject)
	require.Zero(t, c.lane.passed, "it was held up all the same")
}

// withLocked returns an engine that knows of n documents as locked, and of another one at
// which a command was held up. Each has one execution.
func withLocked(t *testing.T, n int) (*Engine, *server, []*job) {
	t.Helper()
	e := idle(t)
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
	for n := range 8 {
		trial := e.takeCommand(s, true)
		require.Equal(t, []string{"locked0"}, transfersOf(trial))
		want := brief
		if n%longTryEvery == longTryEvery-1 {
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
