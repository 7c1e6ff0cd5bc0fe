package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// committed returns a job whose execution knows that everything is prepared.
// The engine has registered it, as if its claim had been sent.
func committed(t *testing.T, e *Engine, id string, until protocol.Progress) *job {
	t.Helper()
	attempt := attemptFor(t, e, id)
	j := e.newJob(t.Context(), attempt, protocol.Start{Claim: protocol.Insert}, until)
	j.waitlist = e.gate.waitlistFor(nil)
	require.NoError(t, e.gate.acquire(t.Context(), e.closing, j.waitlist))
	j.hasPlace = true
	require.NoError(t, e.register(id))
	e.mu.Lock()
	j.claimSentAt, j.counted = e.now(), true
	j.waitlist.pace.inProgress++
	e.countClaims(id, 1)
	e.mu.Unlock()
	facts := protocol.Facts{
		Found: true, Fence: "f", Open: true, Unfrozen: true, Currency: true, Kind: true, BelowMarkerLimit: true, Funds: true, WithinLimits: true,
	}
	for {
		operations, err := j.execution.Next()
		require.NoError(t, err)
		if j.isCommitted() {
			return j // which asks for the same again
		}
		for _, op := range operations {
			answer := protocol.Answer{Result: protocol.Applied, Facts: facts}
			answer.Transfer = protocol.Image{Found: true, State: protocol.Preparing, Epoch: 1, Mine: true}
			j.execution.Observe(op, answer)
		}
	}
}

// observeAll answers the job's present tasks, and lets it go on.
func observeAll(e *Engine, j *job) {
	for i := range j.tasks {
		j.tasks[i].Answer = protocol.Answer{Result: protocol.Applied}
	}
	e.endRound(j, e.now())
}

// deferredOf returns which operations of a transfer are deferred.
func deferredOf(e *Engine, id string) (kinds []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.deferredTasks[id] {
		kinds = append(kinds, t.Op.Kind.String())
	}
	slices.Sort(kinds)
	return kinds
}

// requireNothingDeferred requires that the engine knows of no deferred task any more.
func requireNothingDeferred(t *testing.T, e *Engine) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	require.Empty(t, e.deferredTasks)
	for _, l := range e.lanes {
		for _, d := range l.deferred {
			require.Empty(t, d.bySubject)
		}
	}
}

// slowly returns an idle engine whose clock stands still.
func slowly(t *testing.T) *Engine {
	t.Helper()
	e := idle(t)
	e.now = func() time.Time { return time.Unix(0, 0) }
	return e
}

// What is left to be done after the answer is deferred, and has no place of the gate.
// Before the answer nothing is.
func TestOnlyWhatNobodyWaitsForIsDeferred(t *testing.T) {
	for until, wantAtOnce := range map[protocol.Progress][]string{
		protocol.Decided:  {"Decide", "Pay"},
		protocol.Settled:  nil,
		protocol.Complete: nil,
	} {
		e := slowly(t)
		j := committed(t, e, "t", until)
		e.advance(j, e.now())
		require.Equal(t, wantAtOnce, deferredOf(e, "t"))
		require.Equal(t, until == protocol.Decided, e.Answered("t"))
		require.Equal(t, until != protocol.Decided, j.hasPlace)
		e.HurryUp("t")() // and not for what comes after that
		observeAll(e, j)
		clears := []string{"Clear", "Settle"}
		if until == protocol.Complete {
			clears = nil
		}
		require.Equal(t, clears, deferredOf(e, "t"), "%v", until)
		require.Equal(t, until == protocol.Complete, j.hasPlace)
	}
}

// A call that waits for the success has nothing deferred, and keeps its place.
func TestAwaitedSuccessIsNotDeferred(t *testing.T) {
	e := slowly(t)
	j := committed(t, e, "t", protocol.Complete)
	e.advance(j, e.now())
	for range 2 {
		requireNothingDeferred(t, e)
		require.True(t, j.hasPlace)
		observeAll(e, j)
	}
	requireNothingDeferred(t, e)
	require.False(t, j.hasReplied)
	observeAll(e, j)
	<-j.replied
	require.Equal(t, protocol.Success, j.result.State)
	require.Equal(t, e.limits.MaxPending, e.gate.free)
}

// The transfers that are stored and unfinished are bounded by twice MaxPending: what is
// deferred beyond that keeps its place, and is not deferred.
// Each job counts once for the pace of its waitlist.
func TestDeferredJobsAreBounded(t *testing.T) {
	e := slowly(t)
	e.limits.MaxPending = 2
	e.gate = newGate(5, false)
	jobs := make([]*job, 3)
	for i := range jobs {
		jobs[i] = committed(t, e, fmt.Sprint("t", i), protocol.Decided)
		e.advance(jobs[i], e.now())
		require.Equal(t, i < 2, jobs[i].deferred)
		require.Equal(t, i == 2, jobs[i].hasPlace)
		<-jobs[i].replied
	}
	require.Equal(t, 4, e.gate.free)
	require.Equal(t, 2, e.deferredJobs)
	require.Equal(t, 1, jobs[0].waitlist.pace.inProgress, "those that are deferred do not count")
	for _, j := range jobs {
		e.end(j, nil)
	}
	require.Zero(t, e.deferredJobs)
	require.Zero(t, jobs[0].waitlist.pace.inProgress)
	require.Equal(t, 5, e.gate.free)
	require.Empty(t, e.running)
}

// Nothing is deferred on a closed engine, for a transfer that somebody waits for, for a
// job that shares no command, or while somebody waits for everything.
func TestWhatMayNotBeDeferred(t *testing.T) {
	for name, prepare := range map[string]func(e *Engine, j *job){
		"closed":   func(e *Engine, _ *job) { e.closed = true },
		"draining": func(e *Engine, _ *job) { e.draining++ },
		"hurried":  func(e *Engine, _ *job) { e.HurryUp("t") },
		"alone":    func(_ *Engine, j *job) { j.alone = true },
	} {
		e := slowly(t)
		j := committed(t, e, "t", protocol.Decided)
		prepare(e, j)
		e.advance(j, e.now())
		require.Empty(t, deferredOf(e, "t"), name)
		require.True(t, e.Answered("t"), name)
	}
}

// What is deferred is sent at once when somebody waits for the transfer, and what comes
// after it is not deferred, until nobody waits any more.
func TestHurryUp(t *testing.T) {
	e := slowly(t)
	mine, other := committed(t, e, "t", protocol.Decided), committed(t, e, "other", protocol.Decided)
	e.advance(mine, e.now())
	e.advance(other, e.now())
	first, second := e.HurryUp("t"), e.HurryUp("t")
	require.Empty(t, deferredOf(e, "t"))
	require.Equal(t, []string{"Decide", "Pay"}, deferredOf(e, "other"))
	first()
	observeAll(e, mine)
	require.Empty(t, deferredOf(e, "t"), "somebody waits still")
	second()
	require.Empty(t, e.hurried)
	observeAll(e, mine)
	require.Equal(t, []string{"Finish"}, deferredOf(e, "t"))
}

// A command carries with it what is deferred about its documents, as far as it has room.
func TestDeferredJoinsACommand(t *testing.T) {
	e := slowly(t)
	e.limits.MaxBatch = 4
	for i := range 5 {
		e.advance(committed(t, e, fmt.Sprint("d", i), protocol.Decided), e.now())
	}
	enqueueAlone(t, e, "elsewhere", operation(protocol.Prepare, 0))
	s := idleServer(e)
	require.Equal(t, []string{"elsewhere"}, transfersOf(e.takeCommand(s, false)), "it is about the payer")
	enqueueAlone(t, e, "same", operation(protocol.Prepare, 1))
	c := e.takeCommand(s, false)
	require.Equal(t, []string{"same", "d0", "d1", "d2"}, transfersOf(c))
	require.True(t, c.full)
	require.Equal(t, []string{"Decide"}, deferredOf(e, "d0"))
	require.Equal(t, []string{"Decide", "Pay"}, deferredOf(e, "d3"))
	enqueueAlone(t, e, "odd", operation(protocol.Prepare, 1)).alone = true
	c.answer(protocol.Applied, nil)
	e.complete(c)
	require.Equal(t, []string{"odd"}, transfersOf(e.takeCommand(s, false)), "it shares no command")
}

// enqueueDeferred queues pays of a job that nobody waits for.
func enqueueDeferred(t *testing.T, e *Engine, pays int) {
	t.Helper()
	many := bigJob(t, e, "due", pays)
	many.deferred, many.execution = true, committed(t, e, "x", protocol.Decided).execution
	for i := range many.tasks {
		many.tasks[i].Op.Kind = protocol.Pay
	}
	e.enqueue(many.tasks)
}

// What is due goes out behind what is waited for, and has a quarter of each command.
// A thousand of them delay nobody, and nobody delays them for ever.
func TestDueTasksComeLast(t *testing.T) {
	e := slowly(t)
	e.limits.MaxBatch = 8
	enqueueDeferred(t, e, 20)
	for i := range 8 {
		e.enqueue(bigJob(t, e, fmt.Sprint("t", i), 1).tasks)
	}
	s := idleServer(e)
	l := s.lanes[0]
	require.Equal(t, 8, s.ready())
	e.sendDue(l, l.deferred[0])
	requireNothingDeferred(t, e)
	require.Equal(t, 28, s.ready())
	require.Equal(t, 8, l.backlog(), "of what is waited for")
	counts := tasksByTransfer(e.takeCommand(s, false))
	require.Equal(t, 2, counts["due"])
	require.Len(t, counts, 7)
	require.Equal(t, 6, tasksByTransfer(e.takeCommand(s, false))["due"], "beside the other two")
	require.Equal(t, 8, tasksByTransfer(e.takeCommand(s, false))["due"], "it is alone")
	require.Equal(t, 4, tasksByTransfer(e.takeCommand(s, false))["due"])
	require.Nil(t, e.takeCommand(s, false))
	require.Zero(t, s.ready())
}

// Where a quarter of a command is less than a task, every few commands carry one that is
// due.
func TestDueTasksHaveAPartOfSmallCommands(t *testing.T) {
	for largest, due := range map[int]int{1: 5, 2: 10, 3: 15, 5: 25} {
		e := slowly(t)
		e.limits.MaxBatch = largest
		enqueueDeferred(t, e, 100)
		for i := range 100 {
			e.enqueue(bigJob(t, e, fmt.Sprint("t", i), 1).tasks)
		}
		s := idleServer(e)
		s.maxInFlight = 20
		e.sendDue(s.lanes[0], s.lanes[0].deferred[0])
		sent := 0
		for range 20 {
			sent += tasksByTransfer(e.takeCommand(s, false))["due"]
		}
		require.Equal(t, due, sent, largest)
	}
}

// A due task that has to wait for its document is still behind what is waited for.
func TestParkedDueTaskStaysLast(t *testing.T) {
	e := slowly(t)
	e.limits.MaxBatch = 4
	enqueueAlone(t, e, "first", operation(protocol.Prepare, 1))
	s := idleServer(e)
	first := e.takeCommand(s, false)
	e.advance(committed(t, e, "due", protocol.Decided), e.now())
	for _, d := range first.lane.deferred {
		e.sendDue(first.lane, d)
	}
	for i := range 4 {
		enqueueAlone(t, e, fmt.Sprint("t", i), operation(protocol.Prepare, 1))
	}
	require.Zero(t, first.lane.ready, "all wait for the document")
	first.answer(protocol.Applied, nil)
	e.complete(first)
	require.Equal(t, []string{"t0", "t1", "t2", "due"}, transfersOf(e.takeCommand(s, false)))
}

// Deferred jobs are not counted among those that share a command.
func TestDeferredJobsTakeNoShare(t *testing.T) {
	e, s := idleWithBigJob(t, 512)
	e.now = func() time.Time { return time.Unix(0, 0) }
	for i := range 60 {
		e.advance(committed(t, e, fmt.Sprint("d", i), protocol.Decided), e.now())
	}
	require.Equal(t, 128, tasksByTransfer(e.takeCommand(s, false))["big"])
}

// Deferred tasks are sent when their time has come, by their timer.
func TestDeferredIsSentInTime(t *testing.T) {
	e := slowly(t)
	j := committed(t, e, "t", protocol.Decided)
	e.advance(j, e.now())
	require.Eventually(t, func() bool { return len(deferredOf(e, "t")) == 0 }, eventually, tick)
	observeAll(e, j)
	require.Equal(t, []string{"Clear", "Settle"}, deferredOf(e, "t"))
	require.Eventually(t, func() bool { return len(deferredOf(e, "t")) == 0 }, eventually, tick)
	e.advance(committed(t, e, "next", protocol.Decided), e.now())
	require.Eventually(t, func() bool { return len(deferredOf(e, "next")) == 0 }, eventually, tick, "and again")
}

// A caller who is answered finds that its transfer counts as answered: nobody is while
// that can't be counted.
func TestAnsweredBeforeTheAnswer(t *testing.T) {
	e := slowly(t)
	j := committed(t, e, "t", protocol.Decided)
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	e.mu.Lock()
	go e.advance(j, time.Unix(0, 0))
	select {
	case <-j.replied:
		require.Fail(t, "it is answered too early")
	case <-brief.Done():
	}
	e.mu.Unlock()
	<-j.replied
	require.True(t, e.Answered("t"))
}

// Drain sends everything, and waits for those that were answered before, and no others.
func TestDrain(t *testing.T) {
	e := slowly(t)
	first, second := committed(t, e, "first", protocol.Decided), committed(t, e, "second", protocol.Decided)
	unanswered := committed(t, e, "unanswered", protocol.Complete)
	e.advance(first, e.now())
	e.advance(second, e.now())
	e.advance(unanswered, e.now())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	e.Drain(ended)
	requireNothingDeferred(t, e)
	drained := make(chan struct{})
	go func() {
		e.Drain(t.Context())
		close(drained)
	}()
	waits := func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.someEnded != nil
	}
	for _, j := range []*job{first, second} {
		require.Eventually(t, waits, eventually, tick)
		select {
		case <-drained:
			require.Fail(t, "it does not wait")
		default:
		}
		e.end(j, nil)
	}
	<-drained
	require.Zero(t, e.draining)
	require.Equal(t, 1, executions(e, "unanswered"))
}

// endedContext has ended, and never says so: who goes by that has to look.
type endedContext struct{ context.Context }

// Err implements context.Context.
func (endedContext) Err() error { return context.Canceled }

// Closing an engine sends what is deferred, and waits for it.
// If its context has ended nothing is sent any more.
func TestCloseSendsWhatIsDeferred(t *testing.T) {
	for _, late := range []bool{false, true} {
		e := slowly(t)
		j := committed(t, e, "t", protocol.Decided)
		e.advance(j, e.now())
		e.HurryUp("t")()
		observeAll(e, j)
		require.Equal(t, []string{"Clear", "Settle"}, deferredOf(e, "t"))
		ctx := t.Context()
		if late {
			ctx = endedContext{context.Background()}
		}
		closed := make(chan error, 1)
		go func() { closed <- e.Close(ctx) }()
		<-e.Closing()
		require.Equal(t, late, e.base.Err() != nil)
		require.Empty(t, deferredOf(e, "t"), "at once")
		e.end(j, nil)
		err := <-closed
		require.Equal(t, late, err != nil, "%v", err)
		require.ErrorIs(t, e.register("t"), ErrClosed)
	}
}

// A command that is sent after the answer carries nobody's values.
func TestDeferredCommandCarriesNoValues(t *testing.T) {
	type key struct{}
	for _, answered := range []bool{false, true} {
		j := &job{caller: context.WithValue(t.Context(), key{}, "me"), callerKnows: answered}
		c := &command{tasks: []*task{{job: j}, {job: j}}}
		want := any("me")
		if answered {
			want = nil
		}
		require.Equal(t, want, c.context(t.Context()).Value(key{}))
	}
}

// What brings the money or the record to others is deferred for a shorter time than what
// only tidies up.
// What looks into a doubt, or prepares, is not deferred.
func TestForHowLongIsDeferred(t *testing.T) {
	e := slowly(t)
	j := committed(t, e, "t", protocol.Decided)
	require.Zero(t, j.delay(), "somebody waits")
	e.advance(j, e.now())
	require.Equal(t, settleDelay, j.delay())
	e.HurryUp("t")()
	observeAll(e, j)
	require.Equal(t, clearDelay, j.delay())
	for kind := protocol.ReadFence; kind <= protocol.Finish; kind++ {
		want := slices.Contains([]protocol.Kind{protocol.Pay, protocol.Decide, protocol.Settle, protocol.Clear, protocol.Finish}, kind)
		require.Equal(t, want, deferrable(kind), "%v", kind)
	}
}
