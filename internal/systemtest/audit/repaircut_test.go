package audit

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A repair that ends after it has taken the ID of a lost transfer, and before it has
// removed the marker, is in doubt, whatever has ended it.
// What is stored then says what is to be done, which is true, and only that is done
// later.
func TestRepairCutShort(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		end  func(b *bank.Bank, c *transfer.Coordinator, cancel func())
		want error
	}{
		"its context has ended": {func(_ *bank.Bank, _ *transfer.Coordinator, cancel func()) { cancel() }, context.Canceled},
		"it is closed": {func(_ *bank.Bank, c *transfer.Coordinator, _ func()) {
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			_ = c.Close(ended)
		}, transfer.ErrClosed},
		"a validator": {func(b *bank.Bank, _ *transfer.Coordinator, _ func()) {
			validate(b, bson.M{"no": "account"})
		}, transfer.ErrUnwritable},
		"the marker is another one": {func(b *bank.Bank, _ *transfer.Coordinator, _ func()) {
			b.SetField("accounts", "a", "pending.lost", int64(-8))
		}, transfer.ErrNotRepairable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			b.SetField("accounts", "a", "pending.lost", int64(-7))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var c *transfer.Coordinator
			inserted := &event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
				if e.CommandName == "insert" {
					row.end(b, c, cancel)
				}
			}}
			c = b.NewCoordinator(b.Through(options.Client().SetMonitor(inserted)))
			repair := transfer.MarkerRepair{
				Account: "a", TransferID: "lost", Amount: transfer.Units(-7), Decision: transfer.PayIn, Reason: "why",
			}
			err := c.RepairMarker(ctx, repair)
			require.ErrorIs(t, err, row.want)
			require.ErrorIs(t, err, transfer.ErrInDoubt)
			require.Equal(t, transfer.InDoubt, transfer.OutcomeOf(err))
			requireStory(t, b, "a marker of -7 is to be removed, and its amount paid in: why")

			validate(b, bson.M{})
			b.SetField("accounts", "a", "pending.lost", int64(-7))
			other := repair
			other.Decision = transfer.KeepBalance
			err = b.RepairMarker(t.Context(), other)
			require.ErrorIs(t, err, transfer.ErrNotRepairable)
			require.ErrorContains(t, err, "the other decision is stored")
			require.Equal(t, []audit.Code{audit.OrphanMarker}, bank.CodesOf(b.MustAudit()))
			require.NoError(t, b.RepairMarker(t.Context(), repair))
			requireStory(t, b, "a marker of -7 is to be removed, and its amount paid in: why")
			require.Empty(t, b.MustAudit().Findings)
			require.Equal(t, bank.Balances(107, 0), b.Balances())
		})
	}
}

// The decision about one account's marker says nothing of the other accounts' markers.
func TestEachMarkerHasItsDecision(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	for account, decision := range map[string]transfer.MarkerDecision{"a": transfer.PayIn, "b": transfer.KeepBalance} {
		b.SetField("accounts", account, "pending.lost", int64(-7))
		repair := transfer.MarkerRepair{Account: account, TransferID: "lost", Amount: transfer.Units(-7), Decision: decision}
		require.NoError(t, b.RepairMarker(t.Context(), repair))
	}
	require.Empty(t, b.MustAudit().Findings)
	require.Equal(t, bank.Balances(107, 0), b.Balances())
}

func validate(b *bank.Bank, condition bson.M) {
	b.T.Helper()
	command := bson.D{{Key: "collMod", Value: "accounts"}, {Key: "validator", Value: condition}}
	require.NoError(b.T, b.DB.RunCommand(b.T.Context(), command).Err())
}

func requireStory(t *testing.T, b *bank.Bank, story string) {
	t.Helper()
	rec, err := b.Get(t.Context(), "lost")
	require.NoError(t, err)
	require.Equal(t, "its document was lost; "+story, rec.Failure.Message)
}
