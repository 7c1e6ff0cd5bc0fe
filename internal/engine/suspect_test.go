package engine

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// quiet returns the server of a lane that was used, which sends nothing by itself from
// now on.
func quiet(e *Engine) *server {
	for _, s := range e.servers {
		s.max, s.out, s.apart = 1, 100, 100
		return s
	}
	return nil
}

// transfersOf names a command's transfers, nil if there is no command.
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

// heldUp is what a server answers that has given a command up.
func heldUp() error { return mongo.CommandError{Code: 50, Name: "MaxTimeMSExpired"} }

// While a command is overdue, each of its documents goes out apart; once it was answered
// they go with the others again.
func TestSuspectsGoApart(t *testing.T) {
	e := still(t)
	queued(t, e, "a", on(protocol.Prepare, 0))
	queued(t, e, "b", on(protocol.Prepare, 1))
	s := quiet(e)
	first := e.take(s, false)
	require.Equal(t, []string{"a", "b"}, transfersOf(first))
	queued(t, e, "parked", on(protocol.Prepare, 0))
	e.giveWay(first)
	queued(t, e, "c", on(protocol.Prepare, 0))
	queued(t, e, "d", on(protocol.Prepare, 1))
	require.Nil(t, e.take(s, false), "all are about suspects")
	apart := e.take(s, true)
	require.Equal(t, []string{"parked", "c"}, transfersOf(apart), "they share one document")
	require.Equal(t, []string{"d"}, transfersOf(e.take(s, true)))
	require.Nil(t, e.take(s, true))
	queued(t, e, "e", on(protocol.Prepare, 0))
	require.Nil(t, e.take(s, true), "one at a time about each")

	first.answer(protocol.Applied, nil)
	require.False(t, e.back(first))
	require.Empty(t, first.lane.suspects)
	require.Nil(t, e.take(s, false), "e waits for the one about its account")
	apart.answer(protocol.Applied, nil)
	require.True(t, e.back(apart))
	require.Equal(t, []string{"e"}, transfersOf(e.take(s, false)))
}

// The document at which the server gave a command up stays suspected until a command
// about it alone was answered. The others are free.
func TestGuiltyStaysApart(t *testing.T) {
	e := still(t)
	locked := queued(t, e, "locked", on(protocol.Prepare, 0))
	queued(t, e, "innocent", on(protocol.Prepare, 1))
	s := quiet(e)
	first := e.take(s, false)
	first.answer(protocol.Unknown, heldUp())
	locked.tasks[0].Suspect = true
	e.back(first)
	queued(t, e, "more", on(protocol.Prepare, 0))
	queued(t, e, "other", on(protocol.Prepare, 1))
	require.Equal(t, []string{"other"}, transfersOf(e.take(s, false)))
	for range 2 {
		apart := e.take(s, true)
		require.Equal(t, []string{"more"}, transfersOf(apart))
		const size = 100
		apart.lane.window.size = size
		apart.answer(protocol.Unknown, heldUp())
		apart.tasks[0].Suspect = true
		e.back(apart)
		require.Equal(t, size, apart.lane.window.size, "that says nothing of the server")
		e.enqueue(apart.tasks[0].run.tasks)
	}
	apart := e.take(s, true)
	apart.answer(protocol.Applied, nil)
	e.back(apart)
	require.Empty(t, apart.lane.suspects)
	queued(t, e, "free", on(protocol.Prepare, 0))
	require.Equal(t, []string{"free"}, transfersOf(e.take(s, false)))
}

// Where nobody can say which document it was, a second command that is held up makes all
// of those suspects whose runs were held up before.
func TestHeldUpTwice(t *testing.T) {
	e := still(t)
	r := queued(t, e, "a", on(protocol.Prepare, 0))
	s := quiet(e)
	for _, suspected := range []int{0, 1} {
		c := e.take(s, false)
		c.answer(protocol.Unknown, heldUp())
		e.back(c)
		require.Len(t, c.lane.suspects, suspected)
		r.tasks[0].Suspect = false
		e.enqueue(r.tasks)
	}
}

// Neither reads nor claims wait for locks: their documents are never suspected.
func TestReadsAndClaimsAreNoSuspects(t *testing.T) {
	for _, op := range []protocol.Operation{on(protocol.ReadFence, 0), on(protocol.Look, 0), insert()} {
		e := still(t)
		queued(t, e, "a", op)
		s := quiet(e)
		c := e.take(s, false)
		e.giveWay(c)
		require.Empty(t, c.lane.suspects)
		require.Empty(t, c.lane.busy)
	}
}

// Commands that are overdue are bounded, too: when there are as many as may be in time,
// nothing more goes out until one is back.
func TestOverdueCommandsAreBounded(t *testing.T) {
	e := still(t)
	for i := range 3 {
		queued(t, e, fmt.Sprint("t", i), insert())
	}
	s := quiet(e)
	s.max, s.out = 2, 102
	s.lanes[0].window.size = 1
	commands := []*command{e.take(s, false), e.take(s, false), e.take(s, false)}
	for _, c := range commands {
		e.giveWay(c)
	}
	require.Equal(t, []int{2, 100}, []int{s.late, s.out})
	require.False(t, commands[2].gaveWay)
	commands[0].answer(protocol.Applied, nil)
	require.False(t, e.back(commands[0]))
	e.giveWay(commands[2])
	require.Equal(t, []int{2, 99}, []int{s.late, s.out})
	require.True(t, commands[2].gaveWay)
}

// What a command carries shrinks to a single request while nothing is answered, but not
// when others were answered meanwhile.
func TestSilence(t *testing.T) {
	for _, others := range []bool{false, true} {
		e := still(t)
		queued(t, e, "a", insert())
		s := quiet(e)
		c := e.take(s, false)
		if others {
			c.lane.answers++
		}
		c.answer(protocol.Unknown, t.Context().Err())
		for _, task := range c.tasks {
			task.Cause = deadlineExceeded(t)
		}
		e.back(c)
		want := 1
		if others {
			want = firstSize / 2
		}
		require.Equal(t, want, c.lane.window.size)
	}
}

// No more than MaxInFlight commands about suspects are out.
func TestCommandsApartAreBounded(t *testing.T) {
	e := still(t)
	r := queued(t, e, "locked", on(protocol.Prepare, 0))
	s := quiet(e)
	c := e.take(s, false)
	c.answer(protocol.Unknown, heldUp())
	r.tasks[0].Suspect = true
	e.back(c)
	s.max, s.out, s.apart = 2, 2, 2
	queued(t, e, "more", on(protocol.Prepare, 0))
	require.Len(t, s.suspects, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.start(s)
	require.Equal(t, []int{2, 2}, []int{s.out, s.apart})
}

// What was held up alone goes after the other suspects, and leaves them a turn.
func TestLockedDocumentsLeaveATurn(t *testing.T) {
	e := still(t)
	var runs []*run
	for i := range 4 {
		runs = append(runs, bigRun(t, e, fmt.Sprint("locked", i), 1))
		e.enqueue(runs[i].tasks)
	}
	s := quiet(e)
	c := e.take(s, false)
	c.answer(protocol.Unknown, heldUp())
	for _, task := range c.tasks {
		task.Suspect = true
	}
	e.back(c)
	s.max, s.apart = 2, 100
	for _, r := range runs[:3] {
		e.enqueue(r.tasks)
		alone := e.take(s, true)
		require.False(t, alone.trial)
		alone.answer(protocol.Unknown, heldUp())
		r.tasks[0].Suspect = true
		e.back(alone)
		e.enqueue(r.tasks)
	}
	e.enqueue(runs[3].tasks)
	require.Equal(t, []string{"locked3"}, transfersOf(e.take(s, true)), "it may be innocent")
	trial := e.take(s, true)
	require.Equal(t, []string{"locked0"}, transfersOf(trial))
	require.Nil(t, e.take(s, true), "the other turn is for those that may be innocent")
	trial.answer(protocol.Unknown, heldUp())
	e.back(trial)
	require.Equal(t, []string{"locked1"}, transfersOf(e.take(s, true)))
}
