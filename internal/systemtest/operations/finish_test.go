package operations

import (
	"context"
	"fmt"
	"sync"
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

// looking returns client options that call saw at each read of the transfers that a
// Recover waits for.
func looking(saw func()) *options.ClientOptions {
	return options.Client().SetMonitor(&event.CommandMonitor{
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			if e.CommandName == "find" {
				saw()
			}
		},
	})
}

// One call at the start finishes transfers that crashed a moment ago, wherever they
// crashed.
// It leaves alone submitted transfers and held ones.
func TestRecoverUntilFinished(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	_, err := b.Submit(t.Context(), bank.Move("submitted", "a", "b", 1))
	require.NoError(t, err)
	b.MustHold("held", 7, time.Hour)
	for at := bank.Prepares; at <= bank.Finish; at++ {
		b.StallAt(fmt.Sprintf("t%d", at), at, bank.Lost, 10)
	}
	c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(time.Hour))
	report, err := c.Recover(t.Context())
	require.NoError(t, err)
	require.Zero(t, report, "nothing has stalled for so long yet")

	c = b.NewCoordinator(b.DB, transfer.WithStallThreshold(2*time.Second))
	report, err = c.Recover(t.Context(), transfer.UntilFinished())
	require.NoError(t, err)
	require.Equal(t, transfer.RecoveryReport{Found: 5, Succeeded: 5}, report)
	for id, want := range map[string]transfer.State{
		"submitted": transfer.StateInitiated, "held": transfer.StatePreparing, "t2": transfer.StateSuccess,
	} {
		rec, err := b.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, want, rec.State, id)
	}
	report, err = c.Recover(t.Context(), transfer.UntilFinished())
	require.NoError(t, err)
	require.Zero(t, report, "nothing is left to wait for")
	_, err = b.Post(t.Context(), "held")
	require.NoError(t, err)
	b.CancelWaiting()
	b.CheckBooks(bank.Balances(1000, 0))
}

// Recover waits for a posted hold that crashed on its way, as for any other transfer.
func TestRecoverWaitsForPostedHold(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.MustHold("h", 60, time.Hour)
	b.Dying(bank.Finish, bank.Lost, func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Post(ctx, "h")
		return err
	})
	rec, err := b.Get(t.Context(), "h")
	require.NoError(t, err)
	require.Equal(t, transfer.StateCommitted, rec.State)
	c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(2*time.Second))
	report, err := c.Recover(t.Context(), transfer.UntilFinished())
	require.NoError(t, err)
	require.Equal(t, transfer.RecoveryReport{Found: 1, Succeeded: 1}, report)
	b.CheckBooks(bank.Balances(100, 0))
}

// Recover waits for the transfers of a live process, which alone finishes them.
func TestRecoverWaitsForTheLiving(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	var written atomic.Int64
	reached, goOn := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	slow := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		name, _ := e.Command.Lookup("update").StringValueOK()
		if name == "accounts" && written.Add(1) == 2 { // it is committed, and about to settle
			close(reached)
			<-goOn
		}
	}}
	living := b.NewCoordinator(b.Through(options.Client().SetMonitor(slow)))
	told := make(chan error, 1)
	go func() {
		_, err := living.Transfer(context.WithoutCancel(t.Context()), bank.Move("t", "a", "b", 60))
		told <- err
	}()
	bank.Within(t, reached)
	var looks atomic.Int64
	recovering := b.NewCoordinator(b.Through(looking(func() {
		if looks.Add(1) == 12 { // after several rounds
			release()
		}
	})))
	report, err := recovering.Recover(t.Context(), transfer.UntilFinished())
	require.NoError(t, err)
	require.Zero(t, report, "it was left to the living")
	rec, err := b.Get(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
	require.EqualValues(t, 1, rec.Epoch)
	require.NoError(t, bank.Within(t, told))
	b.CheckBooks(bank.Balances(100, 0))
}

// If ctx ends first, the error says so, and young transfers are left as they are.
func TestRecoverUntilFinishedEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.StallAt("t", bank.Decision, bank.Lost, 60)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var looks atomic.Int64
	c := b.NewCoordinator(b.Through(looking(func() {
		if looks.Add(1) == 12 {
			cancel()
		}
	})))
	report, err := c.Recover(ctx, transfer.UntilFinished())
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, report)
	rec, err := b.Get(t.Context(), "t")
	require.NoError(t, err)
	require.EqualValues(t, 1, rec.Epoch)
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
}

// A transfer that can't be finished is counted, and Recover doesn't wait for it, whether
// this sweep or an earlier one has found that out.
func TestRecoverDoesNotWaitForWhatIsStuck(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0, 0).WithIndexes()
	accounts := b.DB.Collection("accounts")
	b.StallRequest(bank.Move("t", "a", "b", 60), bank.Settles, bank.Lost)
	var gone bson.Raw
	require.NoError(t, accounts.FindOneAndDelete(t.Context(), bson.D{{Key: "_id", Value: "b"}}).Decode(&gone))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(time.Second))
	report, err := c.Recover(ctx, transfer.UntilFinished())
	require.NoError(t, err)
	require.Equal(t, transfer.RecoveryReport{Found: 1, Stuck: 1}, report)

	patient := b.NewCoordinator(b.DB, transfer.WithStallThreshold(time.Hour))
	report, err = patient.Recover(ctx, transfer.UntilFinished())
	require.NoError(t, err)
	require.Zero(t, report, "its reason is stored, and its time has not come")

	elsewhere := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0), transfer.WithAccounts(b.DB.Collection("others")))
	b.Insert("accounts", gone)
	_, err = b.DB.Collection("transfers").UpdateByID(ctx, "t", bson.D{{Key: "$unset", Value: bson.D{{Key: "stuck", Value: ""}}}})
	require.NoError(t, err)
	report, err = elsewhere.Recover(ctx, transfer.UntilFinished())
	require.NoError(t, err)
	require.Equal(t, transfer.RecoveryReport{Found: 1, Stuck: 1}, report, "its collection is not registered there")
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0, 0))
}

// A server that fails to search for a while does not end the wait.
func TestRecoverUntilFinishedOutlastsErrors(t *testing.T) {
	t.Parallel()
	const unknownError, app = 8, "recovering"
	server := bank.StartServer(t)
	db := mongotest.Client(t, options.Client().ApplyURI(server.URI())).Database("recovering")
	b := bank.Over(t, db)
	require.NoError(t, b.Setup(t.Context()))
	b.OpenAccounts([]int64{100, 0})
	rec, err := b.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.NoError(t, err)
	leaveUnfinished(b, rec)

	var looks atomic.Int64
	opts := looking(func() {
		if looks.Add(1) == 1 { // it has noted t
			b.Failing(app, bson.D{{Key: "times", Value: 3}}, "find", unknownError)
		}
	}).ApplyURI(server.URI()).SetAppName(app)
	c := b.NewCoordinator(mongotest.Client(t, opts).Database(db.Name()), transfer.WithStallThreshold(2*time.Second))
	report, err := c.Recover(t.Context(), transfer.UntilFinished())
	require.NoError(t, err)
	require.Equal(t, transfer.RecoveryReport{Found: 1, Succeeded: 1}, report)
	b.CheckBooks(bank.Balances(100, 0))
}

// leaveUnfinished makes a transfer look as if its process had died a moment ago, before
// it was finished.
func leaveUnfinished(b *bank.Bank, rec transfer.Record) {
	b.T.Helper()
	open := bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: "Committed"}, {Key: "open", Value: true}}}}
	_, err := b.DB.Collection("transfers").UpdateByID(b.T.Context(), rec.ID, open)
	require.NoError(b.T, err)
	b.Silence(rec.ID, 0)
}
