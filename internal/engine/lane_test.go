package engine

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// idle returns an engine that sends nothing by itself.
func idle(t *testing.T) *Engine {
	t.Helper()
	e, _ := unreachable(t)
	e.limits.MaxInFlight = 0
	return e
}

// digest returns a digest of a transfer that this release stores, and commits by fact.
func digest() document.Digest { return document.Digest{Format: document.Format, Sum: []byte{1}} }

// attemptFor returns an attempt like that of [unreachable], for another transfer.
func attemptFor(t *testing.T, e *Engine, id string) *mongostore.Attempt {
	t.Helper()
	attempt, err := e.store.NewAttempt(document.Transfer{ID: id, Digest: digest(), Legs: []document.Leg{
		{Namespace: "nowhere.accounts", Account: "a", Amount: money.Units(-1)},
		{Namespace: "nowhere.accounts", Account: "b", Amount: money.Units(1)},
	}}, "me")
	require.NoError(t, err)
	return attempt
}

// enqueueAlone queues an operation of a new job in its lane, and returns the job.
func enqueueAlone(t *testing.T, e *Engine, id string, op protocol.Operation) *job {
	t.Helper()
	attempt := attemptFor(t, e, id)
	j := &job{
		attempt: attempt, execution: protocol.New(protocol.Start{Claim: protocol.Insert}, 2), until: protocol.Complete,
		caller: t.Context(), replied: make(chan struct{}), waitlist: e.gate.waitlistFor(nil),
	}
	require.NoError(t, e.register(id))
	j.tasks = []task{newTask(j, op)}
	j.unanswered.Store(1)
	e.enqueue(j.tasks)
	return j
}

func insert() protocol.Operation {
	return protocol.Operation{Kind: protocol.Claim, Claim: protocol.Insert, Participant: protocol.NoParticipant}
}

func operation(kind protocol.Kind, participant int) protocol.Operation {
	return protocol.Operation{Kind: kind, Participant: participant}
}

// takeNext takes the next command and returns it with its transfers.
func takeNext(e *Engine) (*command, []string) {
	var ids []string
	for _, s := range e.servers {
		s.inTime++ // the turn of the test's sender
		c := e.takeCommand(s, false)
		if c == nil {
			return nil, nil
		}
		for _, call := range c.calls {
			ids = append(ids, call.Attempt.Transfer.ID)
		}
		return c, ids
	}
	return nil, nil
}

// A command carries all tasks that wait for it, in order, up to the limit.
// A task about a document that another command is about waits until that command returns
// or is overdue.
func TestCommandsGather(t *testing.T) {
	e := idle(t)
	e.limits.MaxBatch = 3
	for i := range 5 {
		enqueueAlone(t, e, fmt.Sprint("t", i), operation(protocol.Prepare, 0))
	}
	first, ids := takeNext(e)
	require.Equal(t, []string{"t0", "t1", "t2"}, ids)
	none, _ := takeNext(e)
	require.Nil(t, none, "the others are about the same account")
	enqueueAlone(t, e, "t5", operation(protocol.Prepare, 1))
	_, ids = takeNext(e)
	require.Equal(t, []string{"t5"}, ids, "it is about another account")
	require.True(t, e.complete(first))
	_, ids = takeNext(e)
	require.Equal(t, []string{"t3", "t4"}, ids)
}

// A command that is overdue is superseded, and has lost its turn when it returns.
func TestOverdueCommandIsSuperseded(t *testing.T) {
	e := idle(t)
	enqueueAlone(t, e, "t0", operation(protocol.Prepare, 0))
	first, _ := takeNext(e)
	enqueueAlone(t, e, "t1", operation(protocol.Prepare, 0))
	none, _ := takeNext(e)
	require.Nil(t, none)
	s := first.lane.server
	s.maxInFlight, s.inTime, s.isolated = 1, 100, 100 // no sender starts by itself
	e.supersede(first)
	require.Equal(t, 1, s.overdue)
	e.supersede(first) // a second time changes nothing
	none, _ = takeNext(e)
	require.Nil(t, none, "its account is suspected")
	isolated := e.takeCommand(s, true)
	require.Equal(t, "t1", isolated.calls[0].Attempt.Transfer.ID)
	require.False(t, e.complete(first))
	require.Zero(t, s.overdue)
}

// The lane with the largest backlog is first, but the others get their turn.
func TestNoLaneStarves(t *testing.T) {
	e := idle(t)
	enqueueAlone(t, e, "lonely", insert())
	for round := range maxSkipped {
		for i := range 10 {
			enqueueAlone(t, e, fmt.Sprint("t", round, "-", i), operation(protocol.Prepare, 0))
		}
		c, ids := takeNext(e)
		require.Len(t, ids, 10)
		require.True(t, e.complete(c))
	}
	for i := range 10 {
		enqueueAlone(t, e, fmt.Sprint("more", i), operation(protocol.Prepare, 0))
	}
	_, ids := takeNext(e)
	require.Equal(t, []string{"lonely"}, ids)
}

// A claim is never sent if its caller left before, and its job ends.
func TestAbandonedClaimIsNotSent(t *testing.T) {
	e := idle(t)
	gone, stays := enqueueAlone(t, e, "gone", insert()), enqueueAlone(t, e, "stays", insert())
	require.False(t, gone.abandon(), "nothing was sent")
	_, ids := takeNext(e)
	require.Equal(t, []string{"stays"}, ids)
	<-gone.replied
	require.ErrorIs(t, gone.failure, ErrNothingSent)
	require.Eventually(t, func() bool { return executions(e, "gone") == 0 }, time.Minute, time.Millisecond, "it is off the register")
	require.True(t, stays.abandon(), "its claim is on its way")
}

// A task that may be the reason why a command was refused as a whole shares no command.
func TestTaskThatSharesNoCommand(t *testing.T) {
	e := idle(t)
	enqueueAlone(t, e, "t0", insert())
	enqueueAlone(t, e, "odd", insert()).alone = true
	enqueueAlone(t, e, "t1", insert())
	enqueueAlone(t, e, "t2", insert())
	for _, want := range [][]string{{"t0"}, {"odd"}, {"t1", "t2"}} {
		c, ids := takeNext(e)
		require.Equal(t, want, ids)
		require.True(t, e.complete(c))
		for _, s := range e.servers {
			s.inTime--
		}
	}
}

// While as many executions as allowed are in progress, callers wait outside.
// A hundred thousand of them cost the engine nothing, and each leaves as soon as its
// context ends, with nothing sent.
func TestBackPressure(t *testing.T) {
	e, _ := unreachable(t)
	e.now = func() time.Time { return time.Unix(0, 0) } // never gives up by itself
	const waiting = 100_000
	e.gate.free = 0
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	attempt := attemptFor(t, e, "t")
	errs := make([]error, waiting)
	var callers sync.WaitGroup
	before := inUse()
	for i := range waiting {
		callers.Go(func() {
			_, errs[i] = e.Execute(ctx, attempt, protocol.Start{Claim: protocol.Insert}, protocol.Complete)
		})
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() > waiting }, time.Minute, time.Millisecond)
	grown := inUse() - before
	require.Less(t, grown, int64(waiting*1200), "beyond the goroutines of the callers")
	require.Zero(t, executions(e, "t"))
	require.Empty(t, e.lanes)
	cancel()
	callers.Wait()
	for _, err := range errs {
		require.ErrorIs(t, err, ErrNothingSent)
	}
	require.Zero(t, e.gate.waitlists[0].waiting.Len())
	require.NoError(t, e.Close(t.Context()))
}

// inUse returns how many bytes of the heap are in use.
// The stacks of goroutines don't count.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Closing an engine sends away the callers that wait for a place.
func TestCloseSendsTheWaitingAway(t *testing.T) {
	e, attempt := unreachable(t)
	e.gate.free = 0
	outcome := make(chan error, 1)
	go func() {
		_, err := e.Execute(t.Context(), attempt, protocol.Start{Claim: protocol.Insert}, protocol.Complete)
		outcome <- err
	}()
	require.NoError(t, e.Close(t.Context()))
	require.ErrorIs(t, <-outcome, ErrClosed)
}

// Writes that replace a fence come last in a command, in the order of arrival.
// The prepares beside them still find the fence that they name.
func TestPreparesGoBeforeNewFences(t *testing.T) {
	e := idle(t)
	settle := operation(protocol.Settle, 0)
	settle.ReplaceFence = true
	enqueueAlone(t, e, "dirty", settle)
	enqueueAlone(t, e, "t0", operation(protocol.Prepare, 0))
	enqueueAlone(t, e, "fence", operation(protocol.FenceOnly, 0))
	enqueueAlone(t, e, "clean", operation(protocol.Settle, 0))
	_, ids := takeNext(e)
	require.Equal(t, []string{"t0", "clean", "dirty", "fence"}, ids)
}

// bigJob returns a job with n prepares, each on an account of its own.
func bigJob(t *testing.T, e *Engine, id string, n int) *job {
	t.Helper()
	many := make([]document.Leg, n)
	for i := range many {
		sign := int64(1 - i%2*2)
		many[i] = document.Leg{Namespace: "nowhere.accounts", Account: fmt.Sprint(id, i), Amount: money.Units(sign)}
	}
	attempt, err := e.store.NewAttempt(document.Transfer{ID: id, Digest: digest(), Legs: many}, "me")
	require.NoError(t, err)
	require.NoError(t, e.register(id))
	big := &job{attempt: attempt, caller: t.Context(), replied: make(chan struct{}), waitlist: e.gate.waitlistFor(nil)}
	for i := range many {
		op := operation(protocol.Prepare, i)
		big.tasks = append(big.tasks, newTask(big, op))
	}
	return big
}

// A command has the server compare or set as many fields of effects as it may.
// The next ones go with the next command, and one of more fields goes alone.
func TestCommandsShareFields(t *testing.T) {
	e := idle(t)
	big := bigJob(t, e, "big", 10)
	for i, fields := range []int{700, 700, 600, 1, 700, maxFields + 1, 1, 700, 700, 700} {
		big.tasks[i].fields = fields
	}
	e.enqueue(big.tasks)
	for _, want := range []int{3, 2, 1, 3, 1} {
		c, ids := takeNext(e)
		require.Len(t, ids, want)
		require.True(t, e.complete(c))
	}
}

// idleWithBigJob returns an idle engine in which one job has 300 tasks, and its server,
// whose window has the given size.
func idleWithBigJob(t *testing.T, window int) (*Engine, *server) {
	t.Helper()
	e := idle(t)
	e.enqueue(bigJob(t, e, "big", 300).tasks)
	s := idleServer(e)
	s.lanes[0].window.size = window
	return e, s
}

// tasksByTransfer counts the tasks of each transfer in a command.
func tasksByTransfer(c *command) map[string]int {
	counts := map[string]int{}
	for _, id := range transfersOf(c) {
		counts[id]++
	}
	return counts
}

// No job has more than a quarter of a command.
// Beside other jobs it has its first share, or a quarter of the command if that is more.
// The rest waits behind the others.
func TestJobsShareACommand(t *testing.T) {
	e, s := idleWithBigJob(t, 512)
	require.Equal(t, map[string]int{"big": 128}, tasksByTransfer(e.takeCommand(s, false)), "it is alone")
	for i := range 8 {
		e.enqueue(bigJob(t, e, fmt.Sprint("few", i), 1).tasks)
	}
	counts := tasksByTransfer(e.takeCommand(s, false))
	require.Len(t, counts, 9)
	require.Equal(t, 128/8, counts["big"])
	for i := range 90 {
		e.enqueue(bigJob(t, e, fmt.Sprint("other", i), 1).tasks)
	}
	counts = tasksByTransfer(e.takeCommand(s, false))
	require.Len(t, counts, 91)
	require.Equal(t, 90/3, counts["big"])
	for left := 300 - 128 - 16 - 30; left > 0; left -= minShare {
		require.Equal(t, map[string]int{"big": min(left, minShare)}, tasksByTransfer(e.takeCommand(s, false)))
	}
	require.Nil(t, e.takeCommand(s, false))
	require.Zero(t, s.ready())
}

// If a command can't carry more, the rest of a job is first in the next command.
func TestFullCommand(t *testing.T) {
	e := idle(t)
	e.limits.MaxBatch = 8 // of which a job has 2
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		e.enqueue(bigJob(t, e, id, 2).tasks)
	}
	s := idleServer(e)
	require.Equal(t, map[string]int{"a": 2, "b": 2, "c": 2, "d": 2}, tasksByTransfer(e.takeCommand(s, false)))
	s.lanes[0].window.size = 4
	e.enqueue(bigJob(t, e, "f", 4).tasks)
	require.Equal(t, map[string]int{"e": 1, "f": 1}, tasksByTransfer(e.takeCommand(s, false)), "a quarter of four")
	require.Equal(t, map[string]int{"e": 1, "f": 1}, tasksByTransfer(e.takeCommand(s, false)))
}

// Taking a command costs as much as the command carries: a task about a busy document is
// checked once, and parked.
func TestBusyDocumentsAreParked(t *testing.T) {
	e := idle(t)
	e.limits.MaxBatch = 2
	for i := range 6 {
		enqueueAlone(t, e, fmt.Sprint("t", i), operation(protocol.Prepare, 0))
	}
	s := idleServer(e)
	first := e.takeCommand(s, false)
	require.Equal(t, []string{"t0", "t1"}, transfersOf(first))
	require.Nil(t, e.takeCommand(s, false))
	require.Zero(t, s.ready(), "all are parked")
	first.answer(protocol.Applied, nil)
	e.complete(first)
	require.Equal(t, 4, s.ready())
	require.Equal(t, []string{"t2", "t3"}, transfersOf(e.takeCommand(s, false)))
}

// Claims come last while more than one command's worth of other tasks is waiting, but not
// forever.
func TestWhatIsBegunGoesFirst(t *testing.T) {
	e := idle(t)
	e.limits.MaxBatch = 2
	for i := range 4 {
		enqueueAlone(t, e, fmt.Sprint("claim", i), insert())
	}
	for i := range 3 {
		enqueueAlone(t, e, fmt.Sprint("t", i), operation(protocol.Prepare, i%2))
	}
	s := idleServer(e)
	require.Equal(t, []string{"t0", "t1"}, transfersOf(e.takeCommand(s, false)))
	require.Equal(t, []string{"claim0", "claim1"}, transfersOf(e.takeCommand(s, false)), "most is waiting there")
	for i := range 3 {
		enqueueAlone(t, e, fmt.Sprint("d", i), operation(protocol.Verify, protocol.NoParticipant))
	}
	for _, l := range s.lanes {
		if l.isClaim {
			l.skipped = maxSkipped
		}
	}
	require.Equal(t, []string{"claim2", "claim3"}, transfersOf(e.takeCommand(s, false)), "it was passed over for long")
}

// A window that has shrunk grows again, although each job's share keeps the commands
// smaller than the window.
func TestSharesDontKeepAWindowSmall(t *testing.T) {
	e, s := idleWithBigJob(t, 33)
	c := e.takeCommand(s, false)
	require.Len(t, c.tasks, 8)
	require.True(t, c.full, "more is waiting")
}
