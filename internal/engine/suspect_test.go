package engine

import (
	"fmt"
	"testing"

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

// Where the server gives up one command about a suspect after the other, and answers
// nothing, every fourth may take the longest limit.
func TestSlowServerIsTriedForLong(t *testing.T) {
	e := idle(t)
	locked := enqueueAlone(t, e, "locked", operation(protocol.Prepare, 0))
	s := idleServer(e)
	first := e.takeCommand(s, false)
	first.answer(protocol.Unknown, heldUp())
	locked.tasks[0].Suspect = true
	e.complete(first)
	e.enqueue(locked.tasks)
	usual := first.lane.window.giveUpAfter()
	require.Less(t, usual, longestLimit)
	try := func(tries int) {
		for i := range tries {
			isolated := e.takeCommand(s, true)
			require.Equal(t, []string{"locked"}, transfersOf(isolated))
			expected := usual
			if i%longTryEvery == longTryEvery-1 {
				expected = longestLimit
			}
			require.Equal(t, expected, isolated.giveUpAfter())
			isolated.answer(protocol.Unknown, heldUp())
			isolated.tasks[0].Suspect = true
			e.complete(isolated)
			e.enqueue(isolated.tasks[0].job.tasks)
		}
	}
	try(2*longTryEvery + 1)

	enqueueAlone(t, e, "other", operation(protocol.Prepare, 1))
	other := e.takeCommand(s, false)
	require.Equal(t, usual, other.giveUpAfter(), "it is about no suspect")
	other.sentAt = e.now()
	other.answer(protocol.Applied, nil)
	e.complete(other)
	usual = first.lane.window.giveUpAfter()
	try(longTryEvery)
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

// Suspects that were held up alone come after the other suspects, and leave them most of
// the turns.
func TestLockedDocumentsLeaveATurn(t *testing.T) {
	e := idle(t)
	var jobs []*job
	for i := range 4 {
		jobs = append(jobs, bigJob(t, e, fmt.Sprint("locked", i), 1))
		e.enqueue(jobs[i].tasks)
	}
	s := idleServer(e)
	c := e.takeCommand(s, false)
	c.answer(protocol.Unknown, heldUp())
	for _, task := range c.tasks {
		task.Suspect = true
	}
	e.complete(c)
	s.maxInFlight, s.isolated, s.locked = 2, 100, 1
	for _, j := range jobs[:3] {
		e.enqueue(j.tasks)
		alone := e.takeCommand(s, true)
		require.False(t, alone.wasHeldUpAlone)
		alone.answer(protocol.Unknown, heldUp())
		j.tasks[0].Suspect = true
		e.complete(alone)
		e.enqueue(j.tasks)
	}
	e.enqueue(jobs[3].tasks)
	require.Equal(t, []string{"locked3"}, transfersOf(e.takeCommand(s, true)), "it may be innocent")
	trial := e.takeCommand(s, true)
	require.Equal(t, []string{"locked0"}, transfersOf(trial))
	require.Nil(t, e.takeCommand(s, true), "the other turn is for those that may be innocent")
	s.locked = trialShare
	require.Equal(t, []string{"locked1"}, transfersOf(e.takeCommand(s, true)), "there are sixteen turns")
	require.Nil(t, e.takeCommand(s, true))
	s.locked = 1
	trial.answer(protocol.Unknown, heldUp())
	e.complete(trial)
	require.Nil(t, e.takeCommand(s, true), "another trial is under way")
	s.locked = trialShare
	require.Equal(t, []string{"locked2"}, transfersOf(e.takeCommand(s, true)))
}
