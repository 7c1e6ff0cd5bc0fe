package transfer_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
)

// A verb tells that a transfer is not there, is not held, or can't be reversed, only after a read that a primary which was replaced can't
// answer: one that does not know it yet shows what once was. 1. A submits a transfer, and is told that it is stored. 2. A waits for it,
// is answered by an old primary, and hears that there is none.
func TestNotFoundIsToldByADecidingRead(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	_, err := b.Transfer(t.Context(), move("refused", "a", "b", 1000))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	var deciding atomic.Int64
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if level, _ := e.Command.Lookup("readConcern", "level").StringValueOK(); e.CommandName == "find" && level == "linearizable" {
			deciding.Add(1)
		}
	}}
	c := b.coordinator(b.through(options.Client().SetMonitor(monitor)))
	for name, verb := range map[string]func(context.Context) (transfer.Record, error){
		"wait":   func(ctx context.Context) (transfer.Record, error) { return c.Wait(ctx, "missing") },
		"cancel": func(ctx context.Context) (transfer.Record, error) { return c.Cancel(ctx, "missing", "") },
		"post":   func(ctx context.Context) (transfer.Record, error) { return c.Post(ctx, "missing") },
		"void":   func(ctx context.Context) (transfer.Record, error) { return c.Void(ctx, "missing") },
		"revert": func(ctx context.Context) (transfer.Record, error) { return c.Reverse(ctx, "missing", "r") },
	} {
		deciding.Store(0)
		_, err := verb(t.Context())
		require.ErrorIs(t, err, transfer.ErrTransferNotFound, name)
		require.Positive(t, deciding.Load(), name)
	}
	deciding.Store(0)
	_, err = c.Reverse(t.Context(), "refused", "r")
	require.ErrorIs(t, err, transfer.ErrNotReversible)
	require.Positive(t, deciding.Load(), "reverse what has failed")
	b.hold("h", 10, time.Minute)
	unhold := bson.D{{Key: "$unset", Value: bson.D{{Key: "held", Value: ""}}}}
	_, err = b.db.Collection("transfers").UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "h"}}, unhold)
	require.NoError(t, err)
	deciding.Store(0)
	_, err = c.Post(t.Context(), "h")
	require.ErrorIs(t, err, transfer.ErrNotHeld)
	require.Positive(t, deciding.Load(), "post what is not held yet")
	_, err = c.Void(t.Context(), "h")
	require.NoError(t, err)
	ended, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	_, err = c.Wait(ended, "missing")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, transfer.ErrTransferNotFound, "nobody knows")
	b.audit(initial(100, 0))
}
