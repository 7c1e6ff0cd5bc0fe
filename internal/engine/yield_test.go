package engine

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// While there are callers of new transfers, and enough submitted ones are in progress,
// the claims of others that were submitted are set aside until one of those ends.
func TestSubmittedTransfersYield(t *testing.T) {
	const half = 50
	for name, row := range map[string]struct {
		worker   bool
		op       protocol.Operation
		callers  int64
		begun    int
		yielding int
		again    bool
		yields   bool
	}{
		"many":             {true, insert(), 1, mostSubmitted, 0, false, true},
		"few":              {true, insert(), 1, mostSubmitted - 1, 0, false, false},
		"nobody waits":     {true, insert(), 0, mostSubmitted, 0, false, false},
		"a caller's":       {false, insert(), 1, mostSubmitted, 0, false, false},
		"claimed before":   {true, insert(), 1, mostSubmitted, 0, true, false},
		"too many yield":   {true, insert(), 1, mostSubmitted, half, false, false},
		"nearly too many":  {true, insert(), 1, mostSubmitted, half - 1, false, true},
		"no claim":         {true, operation(protocol.Prepare, 0), 1, mostSubmitted, 0, false, false},
		"all wait for one": {true, insert(), 1, 0, 0, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := idle(t)
			e.limits.MaxPending = 2 * half
			j := enqueueAlone(t, e, "t", row.op)
			j.submitted = row.worker
			if row.again {
				j.claimSentAt = e.now()
			}
			w, s := j.waitlist, idleServer(e)
			w.crowd.admitted.Store(row.callers)
			w.pace.submitted, w.yielding.length = row.begun, row.yielding
			require.Equal(t, row.yields, e.takeCommand(s, false) == nil)
			if !row.yields {
				return
			}
			require.Zero(t, s.ready())
			require.Equal(t, row.yielding+1, w.yielding.length)
			w.count(&job{}, -1)
			require.Zero(t, s.ready(), "that one was not submitted")
			w.count(&job{submitted: true}, -1)
			require.Equal(t, []string{"t"}, transfersOf(e.takeCommand(s, false)))
			require.Equal(t, row.begun, w.pace.submitted)
			e.recordPace(j)
			require.Equal(t, row.begun-1, w.pace.submitted)
		})
	}
}

// Whoever has left while its claim was set aside claims nothing.
func TestAbandonedWhileItYields(t *testing.T) {
	e := idle(t)
	ctx, cancel := context.WithCancel(t.Context())
	j := enqueueAlone(t, e, "t", insert())
	j.caller, j.submitted = ctx, true
	w, s := j.waitlist, idleServer(e)
	w.crowd.admitted.Store(1)
	w.pace.submitted = mostSubmitted
	require.Nil(t, e.takeCommand(s, false))
	cancel()
	require.False(t, j.abandon())
	w.count(&job{submitted: true}, -1)
	require.Nil(t, e.takeCommand(s, false))
	<-j.replied
	require.Equal(t, mostSubmitted-1, w.pace.submitted)
}

// A job that nobody waits for any more is not set aside: it ends.
func TestAbandonedJobsDoNotYield(t *testing.T) {
	e := idle(t)
	j := enqueueAlone(t, e, "t", insert())
	j.submitted = true
	w, s := j.waitlist, idleServer(e)
	w.crowd.admitted.Store(1)
	w.pace.submitted = mostSubmitted
	require.False(t, j.abandon())
	require.Nil(t, e.takeCommand(s, false))
	require.Zero(t, w.yielding.length)
	<-j.replied
}

// yielding returns an engine and its server, with a claim that is set aside, and with
// nobody who sends.
func yielding(t *testing.T) (*Engine, *server, *waitlist) {
	t.Helper()
	e, _ := unreachable(t)
	e.now = time.Now
	w := e.gate.waitlistFor(nil)
	w.crowd.admitted.Store(1)
	w.pace.submitted, w.pace.inProgress = mostSubmitted, mostSubmitted
	e.limits.MaxInFlight = 0
	j := enqueueAlone(t, e, "yields", insert())
	j.submitted = true
	s := idleServer(e)
	require.Nil(t, e.takeCommand(s, false))
	require.Equal(t, 1, w.yielding.length)
	s.inTime, s.maxInFlight = 0, 1
	return e, s, w
}

// The end of an execution that is stuck has a claim sent that was set aside.
func TestStuckJobsEndTheYielding(t *testing.T) {
	e, s, w := yielding(t)
	stuck := claimed(t, protocol.Committed)
	operations, err := stuck.execution.Next()
	require.NoError(t, err)
	stuck.attempt, stuck.replied, stuck.waitlist = attemptFor(t, e, "stuck"), make(chan struct{}), w
	stuck.submitted, stuck.counted, stuck.claimSentAt = true, true, e.now()
	require.NoError(t, e.register("stuck"))
	stuck.recordFailedWrite(operations[0].Participant, errors.New("no"))
	stuck.execution.Observe(operations[0], protocol.Answer{Result: protocol.Failed})
	e.storeStuckReasons([]*job{stuck})
	requireSender(t, e, s)
}

// Executions on another cluster that begin to wait for a lock have a claim sent that was
// set aside: when a command is overdue, and when a document has come to be suspected.
func TestLocksElsewhereEndTheYielding(t *testing.T) {
	for _, overdue := range []bool{true, false} {
		e, s, w := yielding(t)
		far := &server{maxInFlight: 1, inTime: 1, isolated: 1}
		waits := enqueueCounted(t, e, "waits")
		waits.submitted = true
		w.pace.submitted = mostSubmitted
		l := waits.tasks[0].lane
		s.lanes = slices.DeleteFunc(s.lanes, func(other *lane) bool { return other == l })
		l.server, far.lanes = far, []*lane{l}
		if overdue {
			c := e.takeCommand(far, false)
			require.NotNil(t, c)
			require.Zero(t, s.ready())
			e.supersede(c)
		} else {
			l.suspectFor(waits.tasks[0].subject).overdue++
			require.Equal(t, 1, w.yielding.length)
			require.Nil(t, e.takeCommand(far, false))
			require.Zero(t, w.yielding.length)
		}
		requireSender(t, e, s)
	}
}

// requireSender requires that somebody has sent what is ready for a server.
func requireSender(t *testing.T, e *Engine, s *server) {
	t.Helper()
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return s.ready() == 0
	}, eventually, tick)
}

// Only what a worker runs gives way. A caller that goes on with what was submitted is one
// of the others.
func TestWorkersAreToldApart(t *testing.T) {
	e := idle(t)
	start := protocol.Start{Claim: protocol.FromInitiated}
	require.True(t, e.newJob(ForWorker(t.Context()), attemptFor(t, e, "t"), start, protocol.Complete).submitted)
	require.False(t, e.newJob(t.Context(), attemptFor(t, e, "t"), start, protocol.Complete).submitted)
}
