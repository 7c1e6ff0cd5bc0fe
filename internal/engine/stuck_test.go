package engine

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// claimed returns a run without participants that has taken over a transfer in some
// state.
func claimed(t *testing.T, state protocol.State) *run {
	t.Helper()
	r := &run{execution: protocol.New(protocol.Start{Claim: protocol.TakeOver}, 0), work: &mongostore.Attempt{}}
	operations, err := r.execution.Next()
	require.NoError(t, err)
	r.execution.Observe(operations[0], protocol.Answer{
		Result: protocol.Applied, Transfer: protocol.Image{Found: true, State: state, Epoch: 2, Mine: true},
	})
	return r
}

// What the server refuses is the obstacle of a run that is stuck for it. A document that
// makes no sense to this version is none: nothing is written into it.
func TestObstacleOfARun(t *testing.T) {
	t.Parallel()
	r := claimed(t, "Pondering")
	assert.Equal(t, protocol.Stuck, r.execution.Outcome())
	_, stuck := r.obstacle()
	assert.False(t, stuck)

	r = claimed(t, protocol.Committed)
	_, stuck = r.obstacle()
	assert.False(t, stuck, "it is under way")
	refused := errors.New("no")
	operations, err := r.execution.Next()
	require.NoError(t, err)
	require.Equal(t, protocol.Finish, operations[0].Kind)
	r.refuses(operations[0].Participant, refused)
	r.execution.Observe(operations[0], protocol.Answer{Result: protocol.Failed})
	o, stuck := r.obstacle()
	assert.True(t, stuck)
	assert.Equal(t, mongostore.StuckReason{Attempt: r.work, State: protocol.Committed, Participant: protocol.NoParticipant, Cause: refused}, o)
}

// Obstacles are taken in the order in which they came, no more at a time than a command
// may carry; after none there is room for the next who stores them.
func TestObstaclesAreTaken(t *testing.T) {
	t.Parallel()
	runs := make([]*run, 5)
	for i := range runs {
		runs[i] = &run{}
	}
	o := &obstacles{waiting: runs, busy: true}
	assert.Equal(t, runs[:2], o.take(2))
	assert.Equal(t, runs[2:4], o.take(2))
	assert.True(t, o.busy)
	assert.Equal(t, runs[4:], o.take(2))
	assert.Empty(t, o.take(2))
	assert.False(t, o.busy)
}
