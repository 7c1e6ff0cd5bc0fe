package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// An execution that pauses lends its place to others while none of it is stored.
// It waits for a place again after the pause, and releases that when it ends.
func TestPausedExecutionLendsItsPlace(t *testing.T) {
	e, attempt := unreachable(t)
	e.gate = newGate(1, false)
	e.now = func() time.Time { return time.Unix(0, 0) } // never gives up by itself
	ended := make(chan error, 2)
	ctx, leave := context.WithCancel(t.Context())
	for _, attempt := range []*mongostore.Attempt{attempt, attemptFor(t, e, "other")} {
		go func() {
			_, err := e.Execute(ctx, attempt, protocol.Start{Claim: protocol.Insert}, protocol.Complete)
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

// An execution that has sent a claim keeps its place while it pauses.
func TestSentClaimKeepsItsPlace(t *testing.T) {
	for _, sent := range []bool{false, true} {
		e := idle(t)
		j := enqueueAlone(t, e, "t", insert())
		j.hasPlace, j.claimSent = true, sent
		e.gate.free--
		e.lendPlace(j)
		require.Equal(t, sent, j.hasPlace)
		require.Equal(t, sent, e.gate.free < e.limits.MaxPending)
	}
}

// An execution that nobody waits for ends, unless its claim may be stored.
func TestClaimInDoubtGoesOn(t *testing.T) {
	for _, result := range []protocol.Result{protocol.NotSent, protocol.Unknown} {
		j := &job{execution: protocol.New(protocol.Start{Claim: protocol.TakeOver}, 0), attempt: &mongostore.Attempt{}}
		operations, err := j.execution.Next()
		require.NoError(t, err)
		j.execution.Observe(operations[0], protocol.Answer{Result: result})
		j.abandon()
		require.Equal(t, result == protocol.Unknown, j.shouldContinue())
		require.Equal(t, result == protocol.Unknown, j.mayStillClaim(), "and is sent again")
	}
}

// A call that was not answered says nothing of how long answers take.
func TestOnlyAnswersAreCounted(t *testing.T) {
	e, attempt := unreachable(t)
	e.OnAnswer(func(time.Duration, int) { t.Error("nobody was answered") })
	ctx, leave := context.WithCancel(t.Context())
	leave()
	_, err := e.Execute(ctx, attempt, protocol.Start{Claim: protocol.Insert}, protocol.Complete)
	require.ErrorIs(t, err, ErrNothingSent)
	require.NoError(t, e.Close(t.Context()))
}

// A server that has just answered is not away.
// A claim that took long and did not match may have matched before.
// That is read, however long it took.
func TestAnsweringServerIsNotAway(t *testing.T) {
	e := idle(t)
	j := enqueueAlone(t, e, "t", insert())
	_, ids := takeNext(e)
	require.Equal(t, []string{"t"}, ids)
	j.execution = protocol.New(protocol.Start{Claim: protocol.TakeOver}, 0)
	operations, err := j.execution.Next()
	require.NoError(t, err)
	j.execution.Observe(operations[0], protocol.Answer{Result: protocol.Unknown})
	operations, err = j.execution.Next()
	require.NoError(t, err)
	j.tasks[0].Op, j.tasks[0].Answer = operations[0], protocol.Answer{Result: protocol.NotMatched}
	j.reachServerUntil = time.Unix(0, 0)
	e.endRound(j, e.now())
	c, _ := takeNext(e)
	require.NotNil(t, c, "it has given up")
	require.Equal(t, protocol.LookTransfer, c.calls[0].Op.Kind)
}
