package processes

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// Where no Run was started, a Coordinator is healthy as long as the servers of all its
// collections answer, and until it is closed.
func TestHealthyWithoutRun(t *testing.T) {
	t.Parallel()
	b, set := bank.New(t, 100, 0), startSet(t)
	there := bank.Client(t, set.URI()).Database(b.DB.Name())
	c := b.NewCoordinator(b.DB, transfer.WithLedger("other", there.Collection("accounts")))
	require.NoError(t, c.Healthy(t.Context()))
	require.NoError(t, set.Pause(0))
	var err error
	require.Eventually(t, func() bool { // it stops soon, and the other server may be slow, too
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = c.Healthy(ctx)
		return err != nil && strings.Contains(err.Error(), there.Name()+".accounts")
	}, eventually, time.Millisecond)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, b.Healthy(t.Context()), "it does not use that server")
	require.NoError(t, set.Resume(0))
	require.Eventually(t, func() bool { return c.Healthy(t.Context()) == nil }, eventually, 10*time.Millisecond)
	require.NoError(t, c.Close(t.Context()))
	require.ErrorIs(t, c.Healthy(t.Context()), transfer.ErrClosed)
	var none context.Context
	require.ErrorIs(t, b.Healthy(none), transfer.ErrInvalidRequest)
	b.CheckBooks(bank.Balances(100, 0))
}

// A Run that hangs, or fails again and again, makes the process unhealthy, although the
// server answers.
// Once it works again, so is the process.
func TestHealthyWhileRunWorks(t *testing.T) {
	t.Parallel()
	set := startSet(t)
	for name, trouble := range map[string]bson.D{
		"its questions fail": {{Key: "errorCode", Value: 2}},
		"its questions hang": {{Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: 20_000}},
	} {
		t.Run(name, func(t *testing.T) {
			b := bank.NewReplicated(t, set, "health-"+name[len(name)-4:])
			b.OpenAccounts([]int64{100, 0})
			c := b.NewCoordinator(b.Through(options.Client().SetAppName("worker")))
			end := bank.InBackground(t, c)
			b.MustSubmit("seen")
			_, err := b.Wait(t.Context(), "seen")
			require.NoError(t, err)
			require.NoError(t, c.Healthy(t.Context()))

			data := append(bson.D{
				{Key: "failCommands", Value: bson.A{"find", "aggregate"}}, {Key: "appName", Value: "worker"},
			}, trouble...)
			_, err = set.FailPoint(t.Context(), 0, "alwaysOn", data)
			require.NoError(t, err)
			require.Eventually(t, func() bool { return c.Healthy(t.Context()) != nil }, eventually, 100*time.Millisecond)
			require.ErrorContains(t, c.Healthy(t.Context()), "the worker has not found out what there is to do")
			require.NoError(t, b.Healthy(t.Context()), "this one has no Run")
			_, err = set.FailPoint(t.Context(), 0, "off", nil)
			require.NoError(t, err)
			require.Eventually(t, func() bool { return c.Healthy(t.Context()) == nil }, eventually, 10*time.Millisecond)
			end()
			require.NoError(t, c.Healthy(t.Context()), "it was stopped")
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// A Run that has ended with an error makes the process unhealthy, until another one is
// started.
func TestHealthyAfterRunHasFailed(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	client, err := mongo.Connect(options.Client().ApplyURI(mongotest.URI()))
	require.NoError(t, err)
	c := b.NewCoordinator(client.Database(b.DB.Name()))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(t.Context()) }()
	require.Eventually(t, func() bool { return c.Healthy(t.Context()) == nil }, eventually, time.Millisecond)
	require.NoError(t, client.Disconnect(t.Context()))
	require.ErrorIs(t, bank.Within(t, ended), mongo.ErrClientDisconnected)
	require.Error(t, c.Healthy(t.Context()))
	b.CheckBooks(bank.Balances(100, 0))
}
