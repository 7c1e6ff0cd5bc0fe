package engine

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/retention"
)

// unreachable returns an engine whose server does not exist, and an attempt for it.
// Its clock advances by one second with each reading.
func unreachable(t *testing.T) (*Engine, *mongostore.Attempt) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close()) // nobody listens there now
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + address).SetServerSelectionTimeout(time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	var seconds atomic.Int64
	now := func() time.Time { return time.Unix(seconds.Add(1), 0) }
	db := client.Database("nowhere")
	catalog, err := collections.New(collections.Config{
		Transfers: db.Collection("transfers"), Ledgers: map[string]*mongo.Collection{"": db.Collection("accounts")},
		Now: now,
	})
	require.NoError(t, err)
	store, err := mongostore.New(catalog, retention.New(catalog, 0), mongostore.Limits{Markers: 1})
	require.NoError(t, err)
	attempt, err := store.NewAttempt(document.Transfer{ID: "t", Digest: digest(), Legs: []document.Leg{
		{Namespace: "nowhere.accounts", Account: "a", Amount: money.Units(-1)},
		{Namespace: "nowhere.accounts", Account: "b", Amount: money.Units(1)},
	}}, "me")
	require.NoError(t, err)
	return New(store, slog.New(slog.DiscardHandler), now, Limits{MaxBatch: 512, MaxInFlight: 2, MaxPending: 64}), attempt
}

// executions returns how many executions of a transfer are in progress.
func executions(e *Engine, transferID string) int {
	n, _ := e.Executions(transferID)
	return n
}

// The engine knows since when there was always an execution of a transfer, however many
// came and went in the meantime.
func TestSinceWhenThereWasAnExecution(t *testing.T) {
	e, attempt := unreachable(t)
	var now int64
	e.now = func() time.Time { now++; return time.Unix(now, 0) }
	require.NoError(t, e.register("t"))
	require.NoError(t, e.register("t"))
	e.unregister(&job{attempt: attempt})
	require.NoError(t, e.register("t"))
	n, since := e.Executions("t")
	require.Equal(t, 2, n)
	require.Equal(t, time.Unix(1, 0), since)
	e.unregister(&job{attempt: attempt})
	e.unregister(&job{attempt: attempt})
	require.Empty(t, e.running)
	require.NoError(t, e.register("t"))
	_, since = e.Executions("t")
	require.Equal(t, time.Unix(2, 0), since, "after a gap")
}

// An execution that can't reach the server gives up, and reports that nothing was sent,
// and why.
func TestServerAway(t *testing.T) {
	e, attempt := unreachable(t)
	result, err := e.Execute(t.Context(), attempt, protocol.Start{Claim: protocol.Insert}, protocol.Complete)
	require.ErrorIs(t, err, ErrNothingSent)
	require.Empty(t, e.waiters)
	require.ErrorContains(t, result.Cause, "server selection error")
	require.NoError(t, e.Close(t.Context()))
	require.Zero(t, executions(e, "t"))
}

// A closed engine accepts no execution.
// An engine that is closed in the middle of an execution stops it, and each Close reports
// what happened.
func TestClose(t *testing.T) {
	e, attempt := unreachable(t)
	e.now = func() time.Time { return time.Unix(0, 0) } // never gives up by itself
	outcome := make(chan error, 1)
	go func() {
		_, err := e.Execute(context.Background(), attempt, protocol.Start{Claim: protocol.Insert}, protocol.Complete)
		outcome <- err
	}()
	require.Eventually(t, func() bool { return executions(e, "t") == 1 }, time.Minute, time.Millisecond)
	patient := make(chan error, 1)
	go func() { patient <- e.Close(context.Background()) }()
	<-e.Closing()
	require.True(t, e.Awaited("t"))
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, e.Close(ended), context.Canceled)
	stopped := <-outcome
	require.ErrorIs(t, stopped, ErrNothingSent)
	require.ErrorIs(t, stopped, ErrClosed)
	require.ErrorIs(t, <-patient, ErrUnfinished, "what it waited for was stopped")
	require.NoError(t, e.Close(context.Background()), "nothing is under way any more")
	_, err := e.Execute(t.Context(), attempt, protocol.Start{Claim: protocol.Insert}, protocol.Complete)
	require.ErrorIs(t, err, ErrClosed)
}

// An execution that stops because nobody waits for it is never reported as a success,
// even if its caller asks at that very moment.
func TestAbandonedExecutionIsNoSuccess(t *testing.T) {
	e, attempt := unreachable(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	j := &job{
		attempt: attempt, execution: protocol.New(protocol.Start{Claim: protocol.Insert}, 2), until: protocol.Complete,
		caller: t.Context(), replied: make(chan struct{}),
	}
	require.NoError(t, e.register("t"))
	j.abandon()
	e.advance(j, e.now())
	_, err := j.callerResult(ended)
	require.ErrorIs(t, err, ErrNothingSent)
	require.ErrorIs(t, err, context.Canceled)
}

const (
	eventually = time.Minute
	tick       = time.Millisecond
)

// deadlineExceeded is the cause of a command that was not answered in time.
func deadlineExceeded(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	return ctx.Err()
}
