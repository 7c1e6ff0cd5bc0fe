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

// still returns an engine that sends nothing by itself.
func still(t *testing.T) *Engine {
	t.Helper()
	e, _ := away(t)
	e.limits.MaxInFlight = 0
	return e
}

// workFor returns a work like another one, on a transfer of its own.
func workFor(t *testing.T, e *Engine, id string) *mongostore.Attempt {
	t.Helper()
	w, err := e.store.NewAttempt(document.Transfer{ID: id, Legs: []document.Leg{
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
		work: w, execution: protocol.New(protocol.Start{Claim: protocol.Insert}, 2), until: protocol.Success,
		values: t.Context(), caller: t.Context(), answered: make(chan struct{}), line: e.gate.line(nil),
	}
	require.NoError(t, e.begin(id))
	r.tasks = []task{{Call: mongostore.Call{Attempt: w, Op: op}, run: r, subject: mongostore.SubjectOf(w, op)}}
	r.open.Store(1)
	e.enqueue(r.tasks)
	return r
}

func insert() protocol.Operation {
	return protocol.Operation{Kind: protocol.Claim, Claim: protocol.Insert, Participant: protocol.NoParticipant}
}

func on(kind protocol.Kind, participant int) protocol.Operation {
	return protocol.Operation{Kind: kind, Participant: participant}
}

// taken returns the transfers of the next command.
func taken(e *Engine) (*command, []string) {
	var ids []string
	for _, s := range e.servers {
		s.out++ // the turn of the one who asks
		c := e.take(s, false)
		if c == nil {
			return nil, nil
		}
		for _, r := range c.requests {
			ids = append(ids, r.Attempt.Transfer.ID)
		}
		return c, ids
	}
	return nil, nil
}

// A command carries all that waits for it, in order, up to the limit. What is about a
// document that another command is about waits until that one is back, or overdue.
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
}

// A command that is overdue gives way, and has lost its turn when it comes back.
func TestOverdueCommandGivesWay(t *testing.T) {
	e := still(t)
	queued(t, e, "t0", on(protocol.Prepare, 0))
	first, _ := taken(e)
	queued(t, e, "t1", on(protocol.Prepare, 0))
	none, _ := taken(e)
	require.Nil(t, none)
	s := first.lane.server
	s.max, s.out, s.apart = 1, 100, 100 // nothing is sent by itself
	e.giveWay(first)
	require.Equal(t, 1, s.late)
	e.giveWay(first) // twice is no more than once
	none, _ = taken(e)
	require.Nil(t, none, "its account is suspected")
	apart := e.take(s, true)
	require.Equal(t, "t1", apart.requests[0].Attempt.Transfer.ID)
	require.False(t, e.back(first))
	require.Zero(t, s.late)
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
	require.Eventually(t, func() bool { return executions(e, "gone") == 0 }, time.Minute, time.Millisecond, "it is off the register")
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

// While as many executions are under way as may be, the callers wait outside: a hundred
// thousand of them cost the engine nothing, and each leaves as soon as its context ends,
// with nothing sent.
func TestBackPressure(t *testing.T) {
	e, _ := away(t)
	e.now = func() time.Time { return time.Unix(0, 0) } // never gives up by itself
	const waiting = 100_000
	e.gate.free = 0
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := workFor(t, e, "t")
	errs := make([]error, waiting)
	var callers sync.WaitGroup
	before := inUse()
	for i := range waiting {
		callers.Go(func() { _, errs[i] = e.Execute(ctx, w, protocol.Start{Claim: protocol.Insert}, protocol.Success) })
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
	require.Zero(t, e.gate.lines[0].waiting.Len())
	require.NoError(t, e.Close(t.Context()))
}

// inUse returns the bytes of the heap that are in use. The stacks of goroutines are not
// in it.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A closed engine sends those away that wait for a place.
func TestCloseSendsTheWaitingAway(t *testing.T) {
	e, w := away(t)
	e.gate.free = 0
	outcome := make(chan error, 1)
	go func() {
		_, err := e.Execute(t.Context(), w, protocol.Start{Claim: protocol.Insert}, protocol.Success)
		outcome <- err
	}()
	require.NoError(t, e.Close(t.Context()))
	require.ErrorIs(t, <-outcome, ErrClosed)
}

// What replaces a fence comes last in a command, in the order of arrival: the prepares
// beside it still find the fence that they name.
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

// bigRun returns a run of so many prepares, each on an account of its own.
func bigRun(t *testing.T, e *Engine, id string, n int) *run {
	t.Helper()
	many := make([]document.Leg, n)
	for i := range many {
		sign := int64(1 - i%2*2)
		many[i] = document.Leg{Namespace: "nowhere.accounts", Account: fmt.Sprint(id, i), Amount: money.Units(sign)}
	}
	w, err := e.store.NewAttempt(document.Transfer{ID: id, Legs: many}, "me")
	require.NoError(t, err)
	require.NoError(t, e.begin(id))
	big := &run{work: w, values: t.Context(), caller: t.Context(), answered: make(chan struct{})}
	for i := range many {
		op := on(protocol.Prepare, i)
		big.tasks = append(big.tasks, task{Call: mongostore.Call{Attempt: w, Op: op}, run: big, subject: mongostore.SubjectOf(w, op)})
	}
	return big
}

// carried counts what each transfer has of a command, nil if there is none.
func carried(c *command) map[string]int {
	counts := map[string]int{}
	for _, id := range transfersOf(c) {
		counts[id]++
	}
	return counts
}

// No run has more than a quarter of a command. Beside others it has its small share, or a
// quarter of what they send as well; what it has beyond that waits behind them.
func TestRunsShareACommand(t *testing.T) {
	e := still(t)
	big := bigRun(t, e, "big", 300)
	e.enqueue(big.tasks)
	s := quiet(e)
	s.lanes[0].window.size = 512
	require.Equal(t, map[string]int{"big": 128}, carried(e.take(s, false)), "it is alone")
	for i := range 8 {
		e.enqueue(bigRun(t, e, fmt.Sprint("few", i), 1).tasks)
	}
	counts := carried(e.take(s, false))
	require.Len(t, counts, 9)
	require.Equal(t, 128/8, counts["big"])
	for i := range 90 {
		e.enqueue(bigRun(t, e, fmt.Sprint("other", i), 1).tasks)
	}
	counts = carried(e.take(s, false))
	require.Len(t, counts, 91)
	require.Equal(t, 90/3, counts["big"])
	for left := 300 - 128 - 16 - 30; left > 0; left -= smallShare {
		require.Equal(t, map[string]int{"big": min(left, smallShare)}, carried(e.take(s, false)))
	}
	require.Nil(t, e.take(s, false))
	require.Zero(t, s.waiting())
}

// Where a command can't carry more, what is left of a run goes first in the next one.
func TestFullCommand(t *testing.T) {
	e := still(t)
	e.limits.MaxBatch = 8 // of which a run has 2
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		e.enqueue(bigRun(t, e, id, 2).tasks)
	}
	s := quiet(e)
	require.Equal(t, map[string]int{"a": 2, "b": 2, "c": 2, "d": 2}, carried(e.take(s, false)))
	s.lanes[0].window.size = 4
	e.enqueue(bigRun(t, e, "f", 4).tasks)
	require.Equal(t, map[string]int{"e": 1, "f": 1}, carried(e.take(s, false)), "a quarter of four")
	require.Equal(t, map[string]int{"e": 1, "f": 1}, carried(e.take(s, false)))
}

// To take a command costs what it carries: what is about a busy document is looked at
// once, and parked.
func TestBusyDocumentsAreParked(t *testing.T) {
	e := still(t)
	e.limits.MaxBatch = 2
	for i := range 6 {
		queued(t, e, fmt.Sprint("t", i), on(protocol.Prepare, 0))
	}
	s := quiet(e)
	first := e.take(s, false)
	require.Equal(t, []string{"t0", "t1"}, transfersOf(first))
	require.Nil(t, e.take(s, false))
	require.Zero(t, s.waiting(), "all are parked")
	first.answer(protocol.Applied, nil)
	e.back(first)
	require.Equal(t, 4, s.waiting())
	require.Equal(t, []string{"t2", "t3"}, transfersOf(e.take(s, false)))
}

// Claims go last while more than one command's worth of other work is waiting, but not
// for ever.
func TestWhatIsBegunGoesFirst(t *testing.T) {
	e := still(t)
	e.limits.MaxBatch = 2
	for i := range 4 {
		queued(t, e, fmt.Sprint("claim", i), insert())
	}
	for i := range 3 {
		queued(t, e, fmt.Sprint("t", i), on(protocol.Prepare, i%2))
	}
	s := quiet(e)
	require.Equal(t, []string{"t0", "t1"}, transfersOf(e.take(s, false)))
	require.Equal(t, []string{"claim0", "claim1"}, transfersOf(e.take(s, false)), "most is waiting there")
	for i := range 3 {
		queued(t, e, fmt.Sprint("d", i), on(protocol.Verify, protocol.NoParticipant))
	}
	for _, l := range s.lanes {
		if l.claims {
			l.passed = maxPassed
		}
	}
	require.Equal(t, []string{"claim2", "claim3"}, transfersOf(e.take(s, false)), "it was passed over for long")
}

// crowded makes an engine believe that so many executions are under way, and that they
// take a minute.
func crowded(e *Engine, begun int) *pace {
	p := &e.gate.line(nil).pace
	p.begun, p.mean, p.deviation = begun, time.Minute/time.Duration(max(begun, 1)), 0
	return p
}

// A claim that can't come to its end before its caller leaves is not sent where many are
// under way. It is asked for again: what holds it up may be over.
func TestClaimThatComesTooLateIsNotSent(t *testing.T) {
	e := still(t)
	e.now = time.Now
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r := queued(t, e, "late", insert())
	queued(t, e, "patient", insert())
	r.caller = ctx
	s := quiet(e)
	p := crowded(e, 100)
	require.Equal(t, []string{"patient"}, transfersOf(e.take(s, false)))
	require.Equal(t, 101, p.begun)
	crowded(e, 0)
	require.Eventually(t, func() bool { return r.open.Load() > 0 }, eventually, tick, "it asks again")
	require.False(t, r.abandon(), "nothing was sent")
	require.Empty(t, r.answered)
}

// Where few are under way, and where a stored transfer is taken over, no claim comes too
// late. What other clusters do says nothing.
func TestClaimsThatAreInTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	takeOver := insert()
	takeOver.Claim = protocol.TakeOver
	for name, row := range map[string]struct {
		op      protocol.Operation
		begun   int
		prepare func(*pace)
		late    bool
	}{
		"many":            {insert(), fewBegun, func(*pace) {}, true},
		"few":             {insert(), fewBegun - 1, func(*pace) {}, false},
		"quick":           {insert(), fewBegun, func(p *pace) { p.mean = time.Millisecond }, false},
		"others are slow": {insert(), fewBegun, func(p *pace) { p.begun = 0 }, false},
		"a takeover":      {takeOver, fewBegun, func(*pace) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := still(t)
			e.now = time.Now
			r := queued(t, e, "t", row.op)
			r.caller = ctx
			row.prepare(crowded(e, row.begun))
			require.Equal(t, row.late, e.tooLate(&r.tasks[0]))
		})
	}
}

// A claim that came too late once is let through when there is twice the time that it
// takes.
func TestClaimThatWasLate(t *testing.T) {
	e := still(t)
	e.now = time.Now
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r := queued(t, e, "t", insert())
	r.caller = ctx
	p := crowded(e, 1000)
	for _, row := range []struct {
		mean time.Duration
		late bool
	}{{25 * time.Second, false}, {time.Minute, true}, {25 * time.Second, true}, {10 * time.Second, false}, {25 * time.Second, false}} {
		p.mean = row.mean / 1000
		require.Equal(t, row.late, e.tooLate(&r.tasks[0]))
	}
}

// An execution that pauses lets others pass while nothing of it is stored, waits for a
// place again after that, and gives it back when it ends.
func TestWhoPausesLetsOthersPass(t *testing.T) {
	e, w := away(t)
	e.gate = newGate(1, false)
	e.now = func() time.Time { return time.Unix(0, 0) } // never gives up by itself
	ended := make(chan error, 2)
	ctx, leave := context.WithCancel(t.Context())
	for _, w := range []*mongostore.Attempt{w, workFor(t, e, "other")} {
		go func() {
			_, err := e.Execute(ctx, w, protocol.Start{Claim: protocol.Insert}, protocol.Success)
			ended <- err
		}()
	}
	require.Eventually(t, func() bool { return executions(e, "t")+executions(e, "other") == 2 }, eventually, tick)
	leave()
	require.ErrorIs(t, <-ended, ErrNothingSent)
	require.ErrorIs(t, <-ended, ErrNothingSent)
	require.NoError(t, e.Close(t.Context()))
	require.Equal(t, 1, e.gate.free)
}

// One that has sent a claim keeps its place while it pauses.
func TestWhoHasSentAClaimKeepsItsPlace(t *testing.T) {
	for _, sent := range []bool{false, true} {
		e := still(t)
		r := queued(t, e, "t", insert())
		r.admitted, r.sent = true, sent
		e.gate.free--
		e.letPass(r)
		require.Equal(t, sent, r.admitted)
		require.Equal(t, sent, e.gate.free < e.limits.MaxPending)
	}
}

// An execution that nobody waits for any more ends, unless a claim of its own may be
// stored.
func TestClaimInDoubtGoesOn(t *testing.T) {
	for _, result := range []protocol.Result{protocol.NotSent, protocol.Unknown} {
		r := &run{execution: protocol.New(protocol.Start{Claim: protocol.TakeOver}, 0), work: &mongostore.Attempt{}}
		operations, err := r.execution.Next()
		require.NoError(t, err)
		r.execution.Observe(operations[0], protocol.Answer{Result: result})
		r.abandon()
		require.Equal(t, result == protocol.Unknown, r.mayGoOn())
		require.Equal(t, result == protocol.Unknown, r.send(), "and is sent again")
	}
}

// A window that has shrunk grows again although each run's share keeps the commands below
// it.
func TestSharesDontKeepAWindowSmall(t *testing.T) {
	e := still(t)
	big := bigRun(t, e, "big", 300)
	e.enqueue(big.tasks)
	s := quiet(e)
	s.lanes[0].window.size = 33
	c := e.take(s, false)
	require.Len(t, c.tasks, 8)
	require.True(t, c.full, "more is waiting")
}
