package servers

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// streams counts the change streams that are opened.
func streams(n *atomic.Int64) *options.ClientOptions {
	return options.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if _, err := e.Command.LookupErr("pipeline", "0", "$changeStream"); err == nil {
			n.Add(1)
		}
	}})
}

// Where a set has one member, the oplog is read for few callers who move one amount after
// the other, and no longer than until Close.
func TestOplogIsReadForFewCallers(t *testing.T) {
	t.Parallel()
	set, err := mongotest.StartSet(t.Context(), 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Stop()) })
	b := bank.NewReplicated(t, set, "bank")
	b.OpenAccounts([]int64{1_000_000, 0})
	cursors := openCursors(b)
	var opened atomic.Int64
	c := b.NewCoordinator(b.Through(streams(&opened)), transfer.WithReturnAt(transfer.AtSettled))
	moved := 0
	for begun := time.Now(); opened.Load() == 0; { // a server that is slow for a while is not worth it
		require.Less(t, time.Since(begun), 5*time.Minute)
		var few []transfer.Request
		for range 4 {
			few = append(few, bank.Move(fmt.Sprint(moved), "a", "b", 1))
			moved++
		}
		_, errs := c.TransferMany(t.Context(), few)
		require.NoError(t, errors.Join(errs...))
	}
	require.NoError(t, c.Close(t.Context()))
	require.Equal(t, cursors, openCursors(b))
	b.CheckBooks(bank.Balances(1_000_000, 0))
}

// openCursors returns how many cursors the server has open.
func openCursors(b bank.Replicated) int64 {
	b.T.Helper()
	var status struct {
		Metrics struct {
			Cursor struct {
				Open struct {
					Total int64 `bson:"total"`
				} `bson:"open"`
			} `bson:"cursor"`
		} `bson:"metrics"`
	}
	require.NoError(b.T, b.DB.RunCommand(b.T.Context(), bson.M{"serverStatus": 1}).Decode(&status))
	return status.Metrics.Cursor.Open.Total
}
