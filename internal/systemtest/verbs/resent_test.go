package verbs

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A submission that the driver sends twice finds its ID taken, by itself. Where its
// caller then leaves, it is in doubt.
func TestSubmissionThatIsSentTwice(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	w := &bank.Wire{Of: bank.Writes, To: "transfers", What: bank.Resent, Also: allButTwo(bank.Lost), Idle: true}
	c := b.NewCoordinator(b.Through(w.Client()))
	mustUpdate(t, c, "b", frozen(false)) // what it asks a server first is asked
	w.SetIdle(false)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err := c.Submit(ctx, bank.Move("t", "a", "b", 60))
	require.True(t, w.HasStruck())
	require.ErrorIs(t, err, transfer.ErrInDoubt)
	require.Equal(t, "Initiated", b.RawTransfer("t").State)
}

// onceStruck has something done just before the next such command, once a wire has
// struck.
func onceStruck(w *bank.Wire, command string, do func()) *options.ClientOptions {
	var once sync.Once
	return w.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == command && w.HasStruck() {
			once.Do(do)
		}
	}})
}

// A repair that the driver sends twice finds its marker gone, by itself, and somebody
// else has written to the account since: it is in doubt.
func TestRepairThatIsSentTwice(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.LeaveRecorded("t", 60)
	b.Change("transfers", "t", bson.M{"$set": bson.M{"state": "Fail"}, "$unset": bson.M{"open": ""}})
	w := &bank.Wire{Of: func(command string) bool { return command == "update" }, To: "accounts", What: bank.Resent, Idle: true}
	c := b.NewCoordinator(b.Through(onceStruck(w, "find", func() { mustUpdate(t, b.Coordinator, "a", frozen(false)) })))
	mustUpdate(t, c, "b", frozen(false))
	w.SetIdle(false)
	require.EqualValues(t, 40, b.Raw("accounts")[0]["balance"])
	err := c.RepairMarker(t.Context(), transfer.MarkerRepair{
		Account: "a", TransferID: "t", Amount: transfer.Units(-60), Decision: transfer.PayIn,
	})
	require.True(t, w.HasStruck())
	require.ErrorIs(t, err, transfer.ErrInDoubt)
	require.EqualValues(t, 100, b.Raw("accounts")[0]["balance"])
}

// An extension whose answer is lost is stored, though the hold is posted before the next
// try.
func TestExtensionBeforeAPost(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	held := b.MustHold("h", 60, time.Hour)
	w := &bank.Wire{Of: func(command string) bool { return command == "findAndModify" }, To: "transfers", What: bank.AnswerLost, Idle: true}
	posted := make(chan error, 1)
	c := b.NewCoordinator(b.Through(onceStruck(w, "find", func() { posted <- bank.ErrorOf(b.Post(t.Context(), "h")) })))
	require.NoError(t, bank.ErrorOf(c.Get(t.Context(), "h")))
	w.SetIdle(false)
	rec, err := c.Extend(t.Context(), "h", 10*time.Hour)
	require.NoError(t, <-posted)
	require.True(t, w.HasStruck())
	require.ErrorIs(t, err, transfer.ErrInDoubt)
	require.ErrorIs(t, err, transfer.ErrAlreadyCommitted)
	require.Greater(t, rec.ExpiresAt, held.ExpiresAt)
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
}
