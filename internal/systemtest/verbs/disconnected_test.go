package verbs

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// quickly is less than the time after which a call is given up, also on a machine that
// others keep busy.
const quickly = engine.AwayLimit * 2 / 3

// A method whose client was disconnected returns at once, and does not wait as for a
// server that is away, because the client never comes back.
func TestDisconnectedClient(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	for name, call := range verbs() {
		for _, used := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				client, err := mongo.Connect(options.Client().ApplyURI(mongotest.URI()))
				require.NoError(t, err)
				c := b.NewCoordinator(client.Database(b.DB.Name()))
				if used {
					_, err := c.Transfer(t.Context(), bank.Move("used "+name, "a", "b", 1))
					require.NoError(t, err)
				}
				require.NoError(t, client.Disconnect(t.Context()))
				begun := time.Now()
				err = call(t.Context(), c)
				require.ErrorIs(t, err, mongo.ErrClientDisconnected)
				if name != "Coordinator.Wait" { // for what another process does
					require.NotErrorIs(t, err, transfer.ErrInDoubt, "nothing was sent")
				}
				require.Less(t, time.Since(begun), quickly)
			})
		}
	}
}

// disconnecting returns a coordinator whose client is disconnected after the answer to
// its n-th command of a kind.
func disconnecting(b *bank.Bank, command string, n int64) *transfer.Coordinator {
	b.T.Helper()
	var client *mongo.Client
	var seen atomic.Int64
	monitor := &event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
		_, counts := e.Reply.LookupErr("upserted") // not that the process lives
		if counts != nil && e.CommandName == command && seen.Add(1) == n {
			disconnect(client)
		}
	}}
	var err error
	client, err = mongo.Connect(options.Client().ApplyURI(mongotest.URI()).SetMonitor(monitor))
	require.NoError(b.T, err)
	return b.NewCoordinator(client.Database(b.DB.Name()))
}

// A transfer whose client is disconnected in the middle is in doubt, and the call returns
// at once.
// Another process finishes it. The same holds for a hold, a submitted transfer and a
// committed one.
func TestDisconnectedInTheMiddle(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		command string
		n       int64
	}{
		"after the claim": {"insert", 1}, "after the prepares": {"update", 1},
		"after the commit": {"update", 2}, "before the finish": {"update", 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			c := disconnecting(b, row.command, row.n)
			begun := time.Now()
			_, err := c.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
			require.True(t, errors.Is(err, transfer.ErrInDoubt) || errors.Is(err, transfer.ErrUnsettled), "%v", err)
			require.ErrorIs(t, err, mongo.ErrClientDisconnected)
			require.Less(t, time.Since(begun), quickly)
			require.ErrorIs(t, c.Close(t.Context()), mongo.ErrClientDisconnected, "it is left, and nothing goes on in the background")
			b.RecoverAll()
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// A worker whose client is disconnected ends, and says why.
// Otherwise it would read in vain for ever.
func TestDisconnectedWorker(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	c := disconnecting(b, "find", 5)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	require.ErrorIs(t, c.Run(ctx), mongo.ErrClientDisconnected)
	require.NoError(t, ctx.Err())
	b.CheckBooks(bank.Balances(100, 0))
}

// A standalone server has no majority that could acknowledge a write.
// Every method says so at once, in the same sentence, and creates nothing there.
func TestStandaloneServer(t *testing.T) {
	t.Parallel()
	server, err := mongotest.StartStandalone(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	client, err := mongo.Connect(options.Client().ApplyURI(server.URI()))
	require.NoError(t, err)
	db := client.Database("bank")
	for name, call := range verbs() {
		for _, opts := range [][]transfer.Option{nil, {transfer.WithRetention(time.Hour)}} {
			c, err := transfer.NewCoordinator(db, opts...)
			require.NoError(t, err)
			begun := time.Now()
			err = call(t.Context(), c)
			require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, name)
			require.NotErrorIs(t, err, transfer.ErrInDoubt, name)
			require.ErrorContains(t, err, "start it as a replica set", name)
			require.Equal(t, 1, strings.Count(err.Error(), "unsupported deployment"), "%s: %s", name, err)
			require.Less(t, time.Since(begun), quickly, name)
			require.NoError(t, c.Close(t.Context()))
		}
	}
	names, err := db.ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Empty(t, names)
	now, cancel := context.WithCancel(t.Context())
	cancel()
	_ = client.Disconnect(now)
}
