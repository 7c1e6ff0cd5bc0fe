package verbs

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A reversal is stored, and has to be planned anew, because another one was first. Where
// its caller leaves before the second execution has sent anything, it is in doubt all the
// same: recovery finishes it.
func TestReversalThatIsPlannedAnewIsStored(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustMove("t", 60)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var first sync.Once
	var stored, left atomic.Bool
	returned, overtaken := make(chan struct{}), make(chan error, 1)
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		to, _ := e.Command.Lookup(e.CommandName).StringValueOK()
		switch {
		case e.CommandName == "insert" && to == "transfers":
			first.Do(func() {
				_, err := b.Reverse(t.Context(), partOfT("part"))
				overtaken <- err
				stored.Store(true)
			})
		case e.CommandName == "find" && to == "accounts" && stored.Load():
			leave() // the second execution reads its fences
			left.Store(true)
			<-returned
		}
	}}
	c := b.NewCoordinator(b.Through(options.Client().SetMonitor(monitor)))
	rec, err := c.Reverse(ctx, rest("all", "t"))
	close(returned)
	require.NoError(t, <-overtaken)
	require.True(t, left.Load())
	require.ErrorIs(t, err, transfer.ErrInDoubt)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "all", rec.ID)
	b.RecoverAll()
	require.Equal(t, "Success", b.RawTransfer("all").State)
	b.CheckBooks(bank.Balances(100, 0))
}

// A transfer that is stored is not reported as not stored, where the server refuses to
// have it taken over.
func TestRefusedTakeOverIsNoRefusedTransfer(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.StallAt("t", bank.Decision, bank.Lost, 60)
	c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0))
	require.NoError(t, c.Setup(t.Context()))
	validate := func(validator bson.D) {
		t.Helper()
		require.NoError(t, b.DB.RunCommand(t.Context(), bson.D{{Key: "collMod", Value: "transfers"}, {Key: "validator", Value: validator}}).Err())
	}
	validate(bson.D{{Key: "epoch", Value: 1}})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err := c.Transfer(ctx, bank.Move("t", "a", "b", 60))
	require.ErrorIs(t, err, transfer.ErrInDoubt)
	require.ErrorContains(t, err, "DocumentValidationFailure")
	validate(bson.D{})
	b.RecoverAll()
	require.Equal(t, bank.Balances(40, 60), b.Balances())
	b.CheckBooks(bank.Balances(100, 0))
}
