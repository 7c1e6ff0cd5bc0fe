package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// behindLock is a document that somebody else has locked, and n executions that wait for
// it.
type behindLock struct {
	*Engine
	server   *server
	document *suspect
	newOne   *job
}

func newBehindLock(t *testing.T, n int) *behindLock {
	t.Helper()
	e := idle(t)
	now := time.Now()
	e.now = func() time.Time { return now }
	enqueueAlone(t, e, "first", operation(protocol.Prepare, 1))
	s := idleServer(e)
	c := e.takeCommand(s, false)
	e.supersede(c)
	c.lane.now = e.now
	b := &behindLock{Engine: e, server: s, document: c.lane.suspects[c.tasks[0].subject]}
	c.tasks[0].Suspect = true
	c.answer(protocol.Unknown, heldUp())
	e.complete(c)
	c.lane.window.size = firstSize
	for i := range n {
		enqueueAlone(t, e, fmt.Sprint("waits", i), operation(protocol.Prepare, 1))
	}
	b.newOne = enqueueAlone(t, e, "new", insert())
	return b
}

func (b *behindLock) isRefused() bool { return b.waitsBehindLock(&b.newOne.tasks[0]) }

// giveUp takes a command about the document, which the server gives up. It finds the
// first so many tasks not done.
func (b *behindLock) giveUp(t *testing.T, marked int) *command {
	t.Helper()
	c := b.takeCommand(b.server, true)
	c.answer(protocol.Unknown, heldUp())
	for _, task := range c.tasks[:marked] {
		task.Suspect = true
	}
	b.complete(c)
	return c
}

// Those that a command about a locked document carries wait as well, also until they are
// sent again. Once it returns without having been held up, they don't.
func TestCarriedTasksWaitBehindALock(t *testing.T) {
	b := newBehindLock(t, fewInProgress)
	for range 2 {
		isolated := b.takeCommand(b.server, true)
		require.Len(t, isolated.tasks, fewInProgress)
		require.Zero(t, b.document.waiting.length)
		require.True(t, b.isRefused())
		isolated.answer(protocol.Unknown, heldUp())
		for _, task := range isolated.tasks {
			task.Suspect = true
		}
		b.complete(isolated)
		require.True(t, b.isRefused(), "they are about to be sent again")
		for _, task := range isolated.tasks {
			task.Suspect = false
			b.enqueue(task.job.tasks)
		}
	}
	isolated := b.takeCommand(b.server, true)
	isolated.answer(protocol.Unknown, deadlineExceeded(t))
	b.complete(isolated)
	require.False(t, b.isRefused(), "nobody knows whether it is locked")
}

// They are counted once, whether they are under way, or pause, or wait again.
func TestWaitersAreCountedOnce(t *testing.T) {
	const n = fewInProgress/2 + 1
	b := newBehindLock(t, n)
	c := b.giveUp(t, n)
	for _, task := range c.tasks {
		task.Suspect = false
		b.enqueue(task.job.tasks)
	}
	require.Equal(t, n, b.document.waiting.length)
	require.False(t, b.isRefused())

	b = newBehindLock(t, n)
	b.document.lane.window.size = n / 2
	require.Len(t, b.takeCommand(b.server, true).tasks, n/2)
	require.Equal(t, n, b.document.waiters(), "some are under way")
}

// Where the server says of one of the tasks alone that it was not done, the others wait
// as well.
func TestUnmarkedTasksWaitAsWell(t *testing.T) {
	b := newBehindLock(t, fewInProgress)
	b.giveUp(t, 1)
	require.True(t, b.isRefused())
}

// Others may have finished all that waited for a document. Then nobody is left who would
// find that it is free, and the next transfer has to.
func TestNobodyIsLeftBehindTheLock(t *testing.T) {
	b := newBehindLock(t, fewInProgress)
	c := b.giveUp(t, fewInProgress)
	for _, task := range c.tasks {
		b.unregister(task.job)
	}
	require.True(t, b.isRefused(), "for all that is known they pause")
	now := b.now().Add(2*longestPause + 1)
	b.document.lane.now = func() time.Time { return now }
	require.False(t, b.isRefused())
}

// A closed engine doesn't wait for somebody else's lock before it claims anything.
func TestCloseDoesNotWaitForALock(t *testing.T) {
	b := newBehindLock(t, fewInProgress)
	go func() { _ = b.Close(t.Context()) }()
	<-b.Closing()
	require.Nil(t, b.takeCommand(b.server, false), "the claim is returned")
	select {
	case <-b.newOne.replied:
	case <-time.NewTimer(eventually).C:
		require.Fail(t, "it waits on")
	}
	require.ErrorIs(t, b.newOne.failure, ErrNothingSent)
	require.ErrorIs(t, b.newOne.failure, ErrClosed)
}

// Nothing is in doubt where no server was reached, whenever the caller leaves.
func TestNothingSentIsNoDoubt(t *testing.T) {
	e := idle(t)
	j := enqueueAlone(t, e, "t", insert())
	require.True(t, claims(e, &j.tasks[0]))
	j.tasks[0].Answer = protocol.Answer{Result: protocol.NotSent}
	e.endRound(j, e.now())
	require.False(t, e.Sent("t"))
	require.False(t, j.abandon())
}

// A claim that certainly reached no server counts as not sent. One that may have, or that
// comes after such a one, counts as sent.
func TestClaimsAreTakenBack(t *testing.T) {
	for name, row := range map[string]struct {
		answers []protocol.Result
		sent    bool
	}{
		"not sent":           {[]protocol.Result{protocol.NotSent}, false},
		"refused":            {[]protocol.Result{protocol.Failed}, true},
		"unknown":            {[]protocol.Result{protocol.Unknown}, true},
		"not sent after all": {[]protocol.Result{protocol.Unknown, protocol.NotSent}, true},
	} {
		t.Run(name, func(t *testing.T) {
			e := idle(t)
			j := enqueueAlone(t, e, "t", insert())
			j.hasPlace = true
			for _, result := range row.answers {
				require.True(t, claims(e, &j.tasks[0]))
				require.True(t, e.Sent("t"))
				j.tasks[0].Answer = protocol.Answer{Result: result}
				j.execution.Observe(j.tasks[0].Op, j.tasks[0].Answer)
				e.takeBackClaim(j, &j.tasks[0])
			}
			require.Equal(t, row.sent, e.Sent("t"))
			require.Equal(t, row.sent, j.counted)
			require.Equal(t, row.sent, j.waitlist.pace.inProgress == 1)
			e.lendPlace(j)
			require.Equal(t, row.sent, j.hasPlace)
			require.Equal(t, row.sent, j.abandon())
			e.unregister(j)
			require.Empty(t, e.running)
		})
	}
}
