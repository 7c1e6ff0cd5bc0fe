package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// claimed returns a job without participants that has taken over a transfer in the given
// state.
func claimed(t *testing.T, state protocol.State) *job {
	t.Helper()
	j := &job{execution: protocol.New(protocol.Start{Claim: protocol.TakeOver}, 0), attempt: &mongostore.Attempt{}}
	operations, err := j.execution.Next()
	require.NoError(t, err)
	j.execution.Observe(operations[0], protocol.Answer{
		Result: protocol.Applied, Transfer: protocol.Image{Found: true, State: state, Epoch: 2, Mine: true},
	})
	return j
}

// The server's refusal is the reason why a job is stuck.
// A document that makes no sense to this version gives no reason: nothing is written to
// it.
func TestStuckReasonOfAJob(t *testing.T) {
	t.Parallel()
	j := claimed(t, "Pondering")
	assert.Equal(t, protocol.Stuck, j.execution.Outcome())
	_, stuck := j.stuckReason()
	assert.False(t, stuck)

	j = claimed(t, protocol.Committed)
	_, stuck = j.stuckReason()
	assert.False(t, stuck, "it is under way")
	refused := errors.New("no")
	operations, err := j.execution.Next()
	require.NoError(t, err)
	require.Equal(t, protocol.Finish, operations[0].Kind)
	j.recordFailedWrite(operations[0].Participant, refused)
	j.execution.Observe(operations[0], protocol.Answer{Result: protocol.Failed})
	o, stuck := j.stuckReason()
	assert.True(t, stuck)
	assert.Equal(t, mongostore.StuckReason{
		Attempt: j.attempt, State: protocol.Committed, Participant: protocol.NoParticipant, Cause: refused,
	}, o)
}

// A job ends soon where its reason can't be stored, and does not wait for as long as a
// command may take.
func TestReasonThatCantBeStored(t *testing.T) {
	t.Parallel()
	e, attempt := unreachable(t)
	j := claimed(t, protocol.Committed)
	operations, err := j.execution.Next()
	require.NoError(t, err)
	j.attempt, j.replied = attempt, make(chan struct{})
	j.recordFailedWrite(operations[0].Participant, errors.New("no"))
	j.execution.Observe(operations[0], protocol.Answer{Result: protocol.Failed})
	require.NoError(t, e.register("t"))
	begun := time.Now()
	e.storeStuckReasons([]*job{j})
	<-j.replied
	require.Less(t, time.Since(begun), wire.CommandLimit)
	require.Zero(t, executions(e, "t"))
}

// Stuck jobs are taken in the order in which they came, no more at a time than a command
// may carry.
// After none is left, the next one starts a new goroutine.
func TestStuckJobsAreTaken(t *testing.T) {
	t.Parallel()
	jobs := make([]*job, 5)
	for i := range jobs {
		jobs[i] = &job{}
	}
	o := &stuckQueue{waiting: jobs, busy: true}
	assert.Equal(t, jobs[:2], o.take(2))
	assert.Equal(t, jobs[2:4], o.take(2))
	assert.True(t, o.busy)
	assert.Equal(t, jobs[4:], o.take(2))
	assert.Empty(t, o.take(2))
	assert.False(t, o.busy)
}
