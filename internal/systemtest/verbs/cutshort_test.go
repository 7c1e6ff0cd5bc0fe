package verbs

import (
	"context"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// An operator can let the server cut reads short. From 8.0 on, defaultMaxTimeMS does it
// to reads without a limit of their own.
// The library then invents nothing: a transfer is neither done nor refused, and
// statements, balances, lists and audits return errors instead of a part.
// Once reads work again, the same ID has its outcome.
func TestReadsThatAreCutShort(t *testing.T) {
	t.Parallel()
	const maxTimeExpired = 50
	server, err := mongotest.StartOwn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Stop()) })
	uri := options.Client().ApplyURI(server.URI())
	b := &bank.Bank{T: t, DB: mongotest.Client(t, uri).Database("cut")}
	b.Coordinator = b.NewCoordinator(mongotest.Client(t, uri, options.Client().SetAppName("cut")).Database("cut"))
	require.NoError(t, b.Setup(t.Context()))
	b.OpenAccounts([]int64{100, 0})
	_, err = b.Transfer(t.Context(), bank.Move("before", "a", "b", 10))
	require.NoError(t, err)

	b.Failing("cut", "alwaysOn", "find", maxTimeExpired)
	// This coordinator knows no account yet.
	fresh := b.NewCoordinator(mongotest.Client(t, uri, options.Client().SetAppName("cut")).Database("cut"))
	// Without this limit a call would be retried for half a minute.
	soon := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		t.Cleanup(cancel)
		return ctx
	}
	_, err = fresh.Transfer(soon(), bank.Move("t", "a", "b", 10))
	require.Error(t, err)
	var refusal *transfer.RefusedError
	require.NotErrorAs(t, err, &refusal)

	requireLastError(t, b.Statement(soon(), "a", transfer.StatementQuery{}))
	_, err = b.BalanceAt(soon(), "a", time.Now())
	require.Error(t, err)
	requireLastError(t, b.List(soon(), transfer.Query{}))
	requireLastError(t, b.List(soon(), transfer.Query{Beyond: "t"}))
	_, err = b.Audit(soon())
	require.Error(t, err)

	b.Failing("cut", "off", "find", maxTimeExpired)
	_, err = b.Transfer(t.Context(), bank.Move("t", "a", "b", 10))
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(100, 0))
}

// requireLastError requires that a list ends with an error, so it can't be taken for
// complete.
func requireLastError[T any](t *testing.T, list iter.Seq2[T, error]) {
	t.Helper()
	var last error
	for _, err := range list {
		last = err
	}
	require.Error(t, last)
}

// A verb reports that a transfer does not exist, is not held, or can't be reversed only
// after a read that a replaced primary can't answer. A primary that does not know yet
// that it was replaced shows old data.
//
//  1. A submits a transfer, and the call returns that it is stored.
//  2. B waits for it, and an old primary answers that it does not exist.
func TestNotFoundIsToldByADecidingRead(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	_, err := b.Transfer(t.Context(), bank.Move("refused", "a", "b", 1000))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	var deciding atomic.Int64
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if level, _ := e.Command.Lookup("readConcern", "level").StringValueOK(); e.CommandName == "find" && level == "linearizable" {
			deciding.Add(1)
		}
	}}
	c := b.NewCoordinator(b.Through(options.Client().SetMonitor(monitor)))
	for name, verb := range map[string]func(context.Context) (transfer.Record, error){
		"wait":   func(ctx context.Context) (transfer.Record, error) { return c.Wait(ctx, "missing") },
		"cancel": func(ctx context.Context) (transfer.Record, error) { return c.Cancel(ctx, "missing", "") },
		"post":   func(ctx context.Context) (transfer.Record, error) { return c.Post(ctx, "missing") },
		"void":   func(ctx context.Context) (transfer.Record, error) { return c.Void(ctx, "missing") },
		"extend": func(ctx context.Context) (transfer.Record, error) { return c.Extend(ctx, "missing", time.Hour) },
		"revert": func(ctx context.Context) (transfer.Record, error) {
			return c.Reverse(ctx, transfer.Reversal{ID: "r", Of: "missing", All: true})
		},
	} {
		deciding.Store(0)
		_, err := verb(t.Context())
		require.ErrorIs(t, err, transfer.ErrTransferNotFound, name)
		require.Positive(t, deciding.Load(), name)
	}
	deciding.Store(0)
	_, err = c.Reverse(t.Context(), transfer.Reversal{ID: "r", Of: "refused", All: true})
	require.ErrorIs(t, err, transfer.ErrNotReversible)
	require.Positive(t, deciding.Load(), "reverse what has failed")
	b.MustHold("h", 10, time.Minute)
	deciding.Store(0)
	_, err = c.Extend(t.Context(), "h", time.Second)
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	require.Positive(t, deciding.Load(), "extend what lasts longer already")
	unhold := bson.D{{Key: "$unset", Value: bson.D{{Key: "held", Value: ""}}}}
	_, err = b.DB.Collection("transfers").UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "h"}}, unhold)
	require.NoError(t, err)
	deciding.Store(0)
	_, err = c.Post(t.Context(), "h")
	require.ErrorIs(t, err, transfer.ErrNotHeld)
	require.Positive(t, deciding.Load(), "post what is not held yet")
	deciding.Store(0)
	_, err = c.Extend(t.Context(), "h", time.Hour)
	require.ErrorIs(t, err, transfer.ErrNotHeld)
	require.Positive(t, deciding.Load(), "extend what is not held yet")
	_, err = c.Void(t.Context(), "h")
	require.NoError(t, err)
	ended, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	_, err = c.Wait(ended, "missing")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, transfer.ErrTransferNotFound, "nobody knows")
	b.CheckBooks(bank.Balances(100, 0))
}
