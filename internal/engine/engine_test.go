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
	"github.com/mongotransfer/transfer/internal/deployment"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// away returns an engine whose server is not there, by a clock that runs a second ahead
// whenever it is looked at, and work for it.
func away(t *testing.T) (*Engine, *mongostore.Attempt) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close()) // nobody listens there any more
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + address).SetServerSelectionTimeout(time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	var seconds atomic.Int64
	now := func() time.Time { return time.Unix(seconds.Add(1), 0) }
	db := client.Database("nowhere")
	catalog, err := collections.New(collections.Config{
		Transfers: db.Collection("transfers"), Ledgers: map[string]*mongo.Collection{"": db.Collection("accounts")}, Now: now,
	})
	require.NoError(t, err)
	store, err := mongostore.New(deployment.New(catalog, 0), mongostore.Limits{Markers: 1})
	require.NoError(t, err)
	w, err := store.NewAttempt(document.Transfer{ID: "t", Legs: []document.Leg{
		{Namespace: "nowhere.accounts", Account: "a", Amount: money.Units(-1)},
		{Namespace: "nowhere.accounts", Account: "b", Amount: money.Units(1)},
	}}, "me")
	require.NoError(t, err)
	return New(store, slog.New(slog.DiscardHandler), now, Limits{MaxBatch: 512, MaxInFlight: 2, MaxPending: 64}), w
}

// executions returns how many of a transfer are under way.
func executions(e *Engine, transferID string) int {
	n, _ := e.Executions(transferID)
	return n
}

// It is known since when there was always an execution of a transfer, however many came
// and went meanwhile.
func TestSinceWhenThereWasAnExecution(t *testing.T) {
	e, w := away(t)
	var now int64
	e.now = func() time.Time { now++; return time.Unix(now, 0) }
	require.NoError(t, e.begin("t"))
	require.NoError(t, e.begin("t"))
	e.finish(&run{work: w})
	require.NoError(t, e.begin("t"))
	n, since := e.Executions("t")
	require.Equal(t, 2, n)
	require.Equal(t, time.Unix(1, 0), since)
	e.finish(&run{work: w})
	e.finish(&run{work: w})
	require.Empty(t, e.running)
	require.NoError(t, e.begin("t"))
	_, since = e.Executions("t")
	require.Equal(t, time.Unix(2, 0), since, "after a gap")
}

// An execution that can't reach the server gives up, and says that nothing was sent, and
// why.
func TestServerAway(t *testing.T) {
	e, w := away(t)
	result, err := e.Execute(t.Context(), w, protocol.Start{Claim: protocol.Insert}, protocol.Success)
	require.ErrorIs(t, err, ErrNothingSent)
	require.Empty(t, e.awaited)
	require.ErrorContains(t, result.Cause, "server selection error")
	require.NoError(t, e.Close(t.Context()))
	require.Zero(t, executions(e, "t"))
}

// A closed engine takes no work, and one that is closed in the middle stops it, each
// Close telling the truth about that.
func TestClose(t *testing.T) {
	e, w := away(t)
	e.now = func() time.Time { return time.Unix(0, 0) } // never gives up by itself
	outcome := make(chan error, 1)
	go func() {
		_, err := e.Execute(context.Background(), w, protocol.Start{Claim: protocol.Insert}, protocol.Success)
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
	require.ErrorIs(t, <-outcome, ErrUnfinished)
	require.ErrorIs(t, <-patient, ErrUnfinished, "what it waited for was stopped")
	require.NoError(t, e.Close(context.Background()), "nothing is under way any more")
	_, err := e.Execute(t.Context(), w, protocol.Start{Claim: protocol.Insert}, protocol.Success)
	require.ErrorIs(t, err, ErrClosed)
}

// An execution that stops because nobody waits for it any more is never taken for one
// that has succeeded, even if its caller asks at that very moment.
func TestAbandonedExecutionIsNoSuccess(t *testing.T) {
	e, w := away(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	r := &run{
		work: w, execution: protocol.New(protocol.Start{Claim: protocol.Insert}, 2), until: protocol.Success,
		values: t.Context(), caller: t.Context(), answered: make(chan struct{}),
	}
	require.NoError(t, e.begin("t"))
	r.abandon()
	e.step(r)
	_, err := r.outcome(ended)
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
