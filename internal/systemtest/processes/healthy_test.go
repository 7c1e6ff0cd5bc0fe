package processes

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
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
// The reason is reported, by the log as well, even if nothing else fails than the
// question for what there is to do.
func TestHealthyWhileRunWorks(t *testing.T) {
	t.Parallel()
	set := startSet(t)
	fails, hangs := bson.E{Key: "errorCode", Value: 2}, bson.E{Key: "blockConnection", Value: true}
	for name, trouble := range map[string]bson.D{
		"its questions fail":       {{Key: "failCommands", Value: bson.A{"find", "aggregate"}}, fails},
		"its questions hang":       {{Key: "failCommands", Value: bson.A{"find", "aggregate"}}, hangs, {Key: "blockTimeMS", Value: 20_000}},
		"one question fails alone": {{Key: "failCommands", Value: bson.A{"aggregate"}}, fails},
	} {
		t.Run(name, func(t *testing.T) {
			b := bank.NewReplicated(t, set, "health-"+name[len(name)-4:])
			b.OpenAccounts([]int64{100, 0})
			log := new(bank.Logged)
			c := b.NewCoordinator(b.Through(options.Client().SetAppName("worker")), transfer.WithLogger(slog.New(log)))
			end := bank.InBackground(t, c)
			b.MustSubmit("seen")
			_, err := b.Wait(t.Context(), "seen")
			require.NoError(t, err)
			require.NoError(t, c.Healthy(t.Context()))

			_, err = set.FailPoint(t.Context(), 0, "alwaysOn", append(trouble, bson.E{Key: "appName", Value: "worker"}))
			require.NoError(t, err)
			require.Eventually(t, func() bool { return c.Healthy(t.Context()) != nil }, eventually, 100*time.Millisecond)
			err = c.Healthy(t.Context())
			require.ErrorContains(t, err, "the worker has not found out what there is to do")
			var refusal mongo.CommandError
			if trouble[1] == fails {
				require.ErrorAs(t, err, &refusal)
				require.EqualValues(t, 2, refusal.Code)
			}
			require.Positive(t, log.Count("the question for what there is to do has failed"))
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

// A Run that delivers no events makes the process unhealthy, although all else works.
func TestHealthyWhileEventsAreDelivered(t *testing.T) {
	t.Parallel()
	set := startSet(t)
	kinds := []transfer.EventKind{transfer.EventSucceeded}
	b := bank.NewReplicated(t, set, "health-events", transfer.WithEvents(transfer.EventHandler{Kinds: kinds}))
	b.OpenAccounts([]int64{100, 0})
	b.MustMove("pay", 60)
	handled := make(chan transfer.Event, 10)
	c := b.NewCoordinator(b.Through(options.Client().SetAppName("worker")), transfer.WithEvents(transfer.EventHandler{
		Kinds: kinds, Handle: func(_ context.Context, e transfer.Event) error { handled <- e; return nil },
	}))
	require.NoError(t, c.Setup(t.Context()))
	_, err := set.FailPoint(t.Context(), 0, "alwaysOn", bson.D{
		{Key: "failCommands", Value: bson.A{"update"}}, {Key: "appName", Value: "worker"}, {Key: "errorCode", Value: 2},
	})
	require.NoError(t, err)
	end := bank.InBackground(t, c)
	require.Eventually(t, func() bool { err = c.Healthy(t.Context()); return err != nil }, eventually, 100*time.Millisecond)
	require.ErrorContains(t, err, "the worker's search for undelivered events has not succeeded")
	var refusal mongo.CommandError
	require.ErrorAs(t, err, &refusal)
	require.EqualValues(t, 2, refusal.Code)
	require.Empty(t, handled)
	_, err = set.FailPoint(t.Context(), 0, "off", nil)
	require.NoError(t, err)
	require.Equal(t, "pay:succeeded", bank.Within(t, handled).ID)
	require.Eventually(t, func() bool { return c.Healthy(t.Context()) == nil }, eventually, 10*time.Millisecond)
	end()
	b.CheckBooks(bank.Balances(100, 0))
}

// A Run that has ended with an error makes the process unhealthy, although its servers
// answer, until another one is started.
func TestHealthyAfterRunHasFailed(t *testing.T) {
	t.Parallel()
	set := startSet(t)
	b := bank.NewReplicated(t, set, "health-failed")
	b.OpenAccounts([]int64{100, 0})
	c := b.NewCoordinator(b.Through(options.Client().SetAppName("worker")))
	require.NoError(t, c.Setup(t.Context()))
	_, err := set.FailPoint(t.Context(), 0, "alwaysOn", bson.D{
		{Key: "failCommands", Value: bson.A{"update"}}, {Key: "appName", Value: "worker"}, {Key: "errorCode", Value: 13},
	})
	require.NoError(t, err)
	require.ErrorIs(t, c.Run(t.Context()), transfer.ErrUnauthorized)
	err = c.Healthy(t.Context())
	require.ErrorIs(t, err, transfer.ErrUnauthorized)
	require.ErrorContains(t, err, "the worker has ended")
	require.NoError(t, b.Healthy(t.Context()), "this one has no Run")

	_, err = set.FailPoint(t.Context(), 0, "off", nil)
	require.NoError(t, err)
	require.Error(t, c.Healthy(t.Context()), "nothing works yet")
	end := bank.InBackground(t, c)
	require.Eventually(t, func() bool { return c.Healthy(t.Context()) == nil }, eventually, time.Millisecond)
	end()
	require.NoError(t, c.Healthy(t.Context()))
	b.CheckBooks(bank.Balances(100, 0))
}
