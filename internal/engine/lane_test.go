package engine

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// still returns an engine that sends nothing by itself.
func still(t *testing.T) *Engine {
	t.Helper()
	e, _ := away(t)
	e.limits.MaxInFlight = 0
	return e
}

// workFor returns a work like another one, on a transfer of its own.
func workFor(t *testing.T, e *Engine, id string) *mongostore.Work {
	t.Helper()
	w, err := e.store.NewWork(mongostore.Transfer{ID: id, Legs: []mongostore.Leg{
		{Namespace: "nowhere.accounts", Account: "a", Amount: money.Units(-1)},
		{Namespace: "nowhere.accounts", Account: "b", Amount: money.Units(1)},
	}}, "me")
	require.NoError(t, err)
	return w
}

// queued puts an operation of a run of its own into its lane, and returns the run.
func queued(t *testing.T, e *Engine, id string, op protocol.Operation) *run {
	t.Helper()
	w := workFor(t, e, id)
	r := &run{
		work: w, execution: protocol.New(protocol.Start{Claiming: protocol.Insert}, 2), until: protocol.Success,
		values: t.Context(), answered: make(chan struct{}),
	}
	require.NoError(t, e.begin(id))
	r.tasks = []task{{Request: mongostore.Request{Work: w, Op: op}, run: r, subject: mongostore.SubjectOf(w, op)}}
	r.open.Store(1)
	e.enqueue(r.tasks)
	return r
}

func insert() protocol.Operation {
	return protocol.Operation{Kind: protocol.Claim, Claiming: protocol.Insert, Participant: protocol.NoParticipant}
}

func on(kind protocol.Kind, participant int) protocol.Operation {
	return protocol.Operation{Kind: kind, Participant: participant}
}

// taken returns the transfers of the next command.
func taken(e *Engine) (*command, []string) {
	var ids []string
	for _, s := range e.servers {
		s.out++ // the turn of the one who asks
		c := e.take(s)
		if c == nil {
			return nil, nil
		}
		for _, r := range c.requests {
			ids = append(ids, r.Work.Transfer.ID)
		}
		return c, ids
	}
	return nil, nil
}

// A command carries all that waits for it, in order, up to the limit. What is about a document that another command is
// about waits until that one is back, or overdue.
func TestCommandsGather(t *testing.T) {
	e := still(t)
	e.limits.MaxBatch = 3
	for i := range 5 {
		queued(t, e, fmt.Sprint("t", i), on(protocol.Prepare, 0))
	}
	first, ids := taken(e)
	require.Equal(t, []string{"t0", "t1", "t2"}, ids)
	none, _ := taken(e)
	require.Nil(t, none, "the others are about the same account")
	queued(t, e, "t5", on(protocol.Prepare, 1))
	_, ids = taken(e)
	require.Equal(t, []string{"t5"}, ids, "it is about another account")
	require.True(t, e.back(first))
	_, ids = taken(e)
	require.Equal(t, []string{"t3", "t4"}, ids)
	require.False(t, e.back(first), "it was back already")
}

// A command that is overdue gives way, and has lost its turn when it comes back.
func TestOverdueCommandGivesWay(t *testing.T) {
	e := still(t)
	queued(t, e, "t0", on(protocol.Prepare, 0))
	first, _ := taken(e)
	queued(t, e, "t1", on(protocol.Prepare, 0))
	none, _ := taken(e)
	require.Nil(t, none)
	e.giveWay(first)
	e.giveWay(first) // twice is no more than once
	_, ids := taken(e)
	require.Equal(t, []string{"t1"}, ids)
	require.False(t, e.back(first))
	for _, s := range e.servers {
		require.Equal(t, 1, s.out)
	}
}

// The lane where most is waiting goes first, but the others get their turn.
func TestNoLaneStarves(t *testing.T) {
	e := still(t)
	queued(t, e, "lonely", insert())
	for round := range maxPassed {
		for i := range 10 {
			queued(t, e, fmt.Sprint("t", round, "-", i), on(protocol.Prepare, 0))
		}
		c, ids := taken(e)
		require.Len(t, ids, 10)
		require.True(t, e.back(c))
	}
	for i := range 10 {
		queued(t, e, fmt.Sprint("more", i), on(protocol.Prepare, 0))
	}
	_, ids := taken(e)
	require.Equal(t, []string{"lonely"}, ids)
}

// A claim whose caller has left before it was sent is never sent, and its run ends.
func TestAbandonedClaimIsNotSent(t *testing.T) {
	e := still(t)
	gone, stays := queued(t, e, "gone", insert()), queued(t, e, "stays", insert())
	require.False(t, gone.abandon(), "nothing was sent")
	_, ids := taken(e)
	require.Equal(t, []string{"stays"}, ids)
	<-gone.answered
	require.ErrorIs(t, gone.failure, ErrNothingSent)
	require.Zero(t, executions(e, "gone"))
	require.True(t, stays.abandon(), "its claim is on its way")
}

// What may be why a command was refused as a whole shares none with others any more.
func TestAloneMeansAlone(t *testing.T) {
	e := still(t)
	queued(t, e, "t0", insert())
	queued(t, e, "odd", insert()).alone = true
	queued(t, e, "t1", insert())
	queued(t, e, "t2", insert())
	for _, want := range [][]string{{"t0"}, {"odd"}, {"t1", "t2"}} {
		c, ids := taken(e)
		require.Equal(t, want, ids)
		require.True(t, e.back(c))
		for _, s := range e.servers {
			s.out--
		}
	}
}

// While as many executions are under way as may be, the callers wait outside: a hundred thousand of them cost the engine nothing, and
// each leaves as soon as its context ends, with nothing sent.
func TestBackPressure(t *testing.T) {
	e, _ := away(t)
	e.now = func() time.Time { return time.Unix(0, 0) } // never gives up by itself
	const waiting = 100_000
	for range cap(e.places) {
		e.places <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := workFor(t, e, "t")
	errs := make([]error, waiting)
	var callers sync.WaitGroup
	before := inUse()
	for i := range waiting {
		callers.Go(func() { _, errs[i] = e.Execute(ctx, w, protocol.Start{Claiming: protocol.Insert}, protocol.Success) })
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() > waiting }, time.Minute, time.Millisecond)
	grown := inUse() - before
	require.Less(t, grown, int64(waiting*1024), "beyond the goroutines of the callers")
	require.Zero(t, executions(e, "t"))
	require.Empty(t, e.lanes)
	cancel()
	callers.Wait()
	for _, err := range errs {
		require.ErrorIs(t, err, ErrNothingSent)
	}
	for range cap(e.places) {
		<-e.places
	}
	require.NoError(t, e.Close(t.Context()))
}

// inUse returns the bytes of the heap that are in use. The stacks of goroutines are not in it.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A closed engine sends those away that wait for a place.
func TestCloseSendsTheWaitingAway(t *testing.T) {
	e, w := away(t)
	for range cap(e.places) {
		e.places <- struct{}{}
	}
	outcome := make(chan error, 1)
	go func() {
		_, err := e.Execute(t.Context(), w, protocol.Start{Claiming: protocol.Insert}, protocol.Success)
		outcome <- err
	}()
	require.NoError(t, e.Close(t.Context()))
	require.ErrorIs(t, <-outcome, ErrClosed)
}

// What replaces a fence comes last in a command, in the order of arrival: the prepares beside it still find the fence that they name.
func TestPreparesGoBeforeNewFences(t *testing.T) {
	e := still(t)
	settle := on(protocol.Settle, 0)
	settle.ReplaceFence = true
	queued(t, e, "dirty", settle)
	queued(t, e, "t0", on(protocol.Prepare, 0))
	queued(t, e, "fence", on(protocol.FenceOnly, 0))
	queued(t, e, "clean", on(protocol.Settle, 0))
	_, ids := taken(e)
	require.Equal(t, []string{"t0", "clean", "dirty", "fence"}, ids)
}

// An execution that waits for a server to come back keeps no place from one that has something to do.
func TestWhoPausesGivesItsPlaceAway(t *testing.T) {
	e, w := away(t)
	e.places = make(chan struct{}, 1)
	e.now = func() time.Time { return time.Unix(0, 0) } // never gives up by itself
	ended := make(chan error, 2)
	for _, w := range []*mongostore.Work{w, workFor(t, e, "other")} {
		go func() {
			_, err := e.Execute(context.Background(), w, protocol.Start{Claiming: protocol.Insert}, protocol.Success)
			ended <- err
		}()
	}
	require.Eventually(t, func() bool { return executions(e, "t")+executions(e, "other") == 2 }, time.Minute, time.Millisecond)
	now, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, e.Close(now), context.Canceled)
	require.ErrorIs(t, <-ended, ErrUnfinished)
	require.ErrorIs(t, <-ended, ErrUnfinished)
}
