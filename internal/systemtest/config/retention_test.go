package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

const oneDay = 24 * time.Hour

// purges returns when each transfer is purged, by ID. The zero time means never.
func purges(b *bank.Bank) map[string]time.Time {
	b.T.Helper()
	at := map[string]time.Time{}
	for rec, err := range b.List(b.T.Context(), transfer.Query{}) {
		require.NoError(b.T, err)
		at[rec.ID] = rec.PurgeAt
	}
	return at
}

// A transfer is purged the retention after its end, however it ends, and not before.
func TestEveryEndIsPurged(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.StallAt("recovered", bank.Settles, bank.Lost, 1)
	b.StallAt("committed by fact", bank.Decision, bank.Lost, 1)
	b.StallHalf("rolled back", 1)
	b.StallHalf("cancelled", 1)
	c := b.NewCoordinator(b.DB, transfer.WithRetention(oneDay), transfer.WithStallThreshold(0), transfer.WithStallPolicy(transfer.RollBack))
	rec, err := c.Transfer(t.Context(), bank.Move("alone", "a", "b", 1))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(oneDay), rec.PurgeAt, time.Minute)
	_, err = c.Transfer(t.Context(), bank.Move("refused", "a", "b", 1000))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	_, failures := c.TransferMany(t.Context(), []transfer.Request{bank.Move("one", "a", "b", 1), bank.Move("of many", "a", "b", 1)})
	require.Equal(t, []error{nil, nil}, failures)
	for _, id := range []string{"submitted", "taken back", "waits"} {
		req := bank.Move(id, "a", "b", 1)
		if id != "submitted" {
			req.NotBefore = time.Now().Add(time.Hour)
		}
		rec, err := c.Submit(t.Context(), req)
		require.NoError(t, err)
		require.Zero(t, rec.PurgeAt)
	}
	_, err = c.Cancel(t.Context(), "cancelled", "")
	require.NoError(t, err)
	_, err = c.Cancel(t.Context(), "taken back", "")
	require.NoError(t, err)
	for _, at := range []string{"recovered", "committed by fact", "rolled back", "submitted", "waits"} {
		require.Zero(t, purges(b)[at], "%s is not final", at)
	}
	end := bank.InBackground(t, c) // it recovers too
	for _, id := range []string{"submitted", "recovered", "committed by fact", "rolled back"} {
		_, _ = b.Wait(t.Context(), id)
	}
	end()
	for id, at := range purges(b) {
		if id == "waits" {
			require.Zero(t, at, "it is not final")
			continue
		}
		require.WithinDuration(t, time.Now().Add(oneDay), at, time.Minute, id)
	}
	require.Len(t, purges(b), 11)
	b.CancelWaiting()
	require.Zero(t, purges(b)["waits"], "a coordinator without a retention has finished it")
	b.CheckBooks(bank.Balances(100, 0))
}

// A hold is purged after it was posted, was voided or has expired, and not while it is
// held.
// A reversal and its original are purged like any other transfer.
func TestHoldsAndReversalsArePurged(t *testing.T) {
	t.Parallel()
	b := bank.NewWith(t, []transfer.Option{transfer.WithRetention(oneDay)}, 100, 0).WithIndexes()
	for _, id := range []string{"posted", "posted in part", "voided", "expired", "held"} {
		b.MustHold(id, 10, time.Hour)
		require.Zero(t, purges(b)[id])
	}
	_, err := b.Post(t.Context(), "posted")
	require.NoError(t, err)
	_, err = b.Post(t.Context(), "posted in part", transfer.PostAmount(transfer.Units(3)))
	require.NoError(t, err)
	_, err = b.Void(t.Context(), "voided")
	require.NoError(t, err)
	b.Expire("expired")
	report, err := b.Recover(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, report.Expired)
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "reversal", Of: "posted", All: true})
	require.NoError(t, err)
	for id, at := range purges(b) {
		require.Equal(t, id == "held", at.IsZero(), id)
	}
	require.Len(t, purges(b), 6)
	_, err = b.Void(t.Context(), "held")
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(oneDay), purges(b)["held"], time.Minute)
	b.CheckBooks(bank.Balances(100, 0))
}

// The server removes a transfer when its time has come, and no other one.
// The ID is forgotten then: a new request with it moves money again.
func TestServerPurges(t *testing.T) {
	t.Parallel()
	b := bank.NewWith(t, []transfer.Option{transfer.WithRetention(time.Hour)}, 100, 0).WithIndexes()
	kept := b.NewCoordinator(b.DB)
	for id, c := range map[string]*transfer.Coordinator{"due": b.Coordinator, "not yet": b.Coordinator, "for good": kept} {
		_, err := c.Transfer(t.Context(), bank.Move(id, "a", "b", 10))
		require.NoError(t, err)
	}
	b.StallAt("under way", bank.Settles, bank.Lost, 10)
	waits := bank.Move("waits", "a", "b", 10)
	waits.NotBefore = time.Now().Add(time.Hour)
	_, err := b.Submit(t.Context(), waits)
	require.NoError(t, err)
	past := bson.D{{Key: "$set", Value: bson.D{{Key: "purgeAt", Value: time.Now().Add(-time.Second)}}}}
	_, err = b.DB.Collection("transfers").UpdateByID(t.Context(), "due", past)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(purges(b)) == 4 }, 150*time.Second, 100*time.Millisecond,
		"the server looks every second, or every minute where it was given")
	_, err = b.Get(t.Context(), "due")
	require.ErrorIs(t, err, transfer.ErrTransferNotFound)
	for _, id := range []string{"not yet", "for good", "under way", "waits"} {
		require.Contains(t, purges(b), id)
	}
	rec, err := b.Transfer(t.Context(), bank.Move("due", "a", "b", 10))
	require.NoError(t, err)
	require.EqualValues(t, 1, rec.Epoch)
	b.RecoverAll()
	b.CancelWaiting()
	b.CheckBooks(bank.Balances(90, 10)) // purged transfers are still in the balances
}

// A retention that can't be announced to readers of the history is refused before
// anything is stored.
func TestUnknownRetentionIsRefused(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	create := bson.D{{Key: "create", Value: "transfers.retention"}, {Key: "validator", Value: bson.M{"never": true}}}
	require.NoError(t, b.DB.RunCommand(t.Context(), create).Err())
	c := b.NewCoordinator(b.DB, transfer.WithRetention(oneDay))
	require.ErrorIs(t, c.Setup(t.Context()), transfer.ErrUnsupportedDeployment)
	_, err := c.Transfer(t.Context(), bank.Move("t", "a", "b", 10))
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
	require.ErrorContains(t, err, "transfers.retention")
	require.ErrorIs(t, c.Run(t.Context()), transfer.ErrUnsupportedDeployment)
	require.Empty(t, b.Raw("transfers"))
	b.CheckBooks(bank.Balances(100, 0))
}
