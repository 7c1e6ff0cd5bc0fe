package config

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// The transfers of a copy don't work with the accounts of the original, although these
// have the recorded identity: the original would lose the money of its holds.
// The copy works with its own accounts.
func TestCopyIsNotCombinedWithTheOriginal(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.MustHold("held", 60, time.Hour)
	db := bank.Copied(t, b.DB)
	before := b.Contents()
	mixed := b.NewCoordinator(db, transfer.WithAccounts(b.DB.Collection("accounts")))
	for name, verb := range fitVerbs(mixed) {
		if slices.Contains([]string{"Get", "List", "Wait", "Extend", "Reverse", "Adopt"}, name) {
			continue // they don't come to the accounts, or are the way to do it on purpose
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err := verb(ctx)
		cancel()
		require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, name)
		require.ErrorContains(t, err, b.DB.Name()+".accounts belongs to the transfers collection "+b.DB.Name()+".transfers, "+
			"and this one, "+db.Name()+".transfers, is a copy of that", name)
	}
	require.Equal(t, before, b.Contents())

	copied := b.NewCoordinator(db)
	require.NoError(t, copied.Setup(t.Context()))
	_, err := copied.Transfer(t.Context(), bank.Move("in the copy", "a", "b", 7))
	require.NoError(t, err)
	rec, err := b.Post(t.Context(), "held")
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
	b.CheckBooks(bank.Balances(100, 0))
}

// Transfers that were renamed are no copy: what the notes name isn't there any more.
// Nor are they one where the accounts were moved with them.
func TestMovedTransfersAreNoCopy(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.MustMove("before", 10)
	db := bank.Copied(t, b.DB)
	require.NoError(t, b.DB.Collection("transfers.transfer").Drop(t.Context()))
	c := b.NewCoordinator(db, transfer.WithAccounts(b.DB.Collection("accounts")))
	require.NoError(t, c.Setup(t.Context()))

	_, err := b.DB.Collection("transfers.transfer").InsertOne(t.Context(), bson.M{"_id": "deployment", "deployment": "another"})
	require.NoError(t, err)
	require.NoError(t, b.NewCoordinator(db, transfer.WithAccounts(b.DB.Collection("accounts"))).Check(t.Context()))
}

// Adopt gives accounts to a copy of the transfers on purpose.
// From then on the original is the one that is refused.
func TestAdoptByACopy(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.MustMove("before", 10)
	db := bank.Copied(t, b.DB)
	c := b.NewCoordinator(db, transfer.WithAccounts(b.DB.Collection("accounts")))
	require.ErrorIs(t, c.Setup(t.Context()), transfer.ErrUnsupportedDeployment)
	require.NoError(t, c.Adopt(t.Context()))
	require.NoError(t, c.Setup(t.Context()))
	require.NoError(t, c.Check(t.Context()))
	err := b.NewCoordinator(b.DB).Check(t.Context())
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
	require.ErrorContains(t, err, "is a copy of that")
	_, err = c.Transfer(t.Context(), bank.Move("after", "a", "b", 10))
	require.NoError(t, err)
	report, err := c.Audit(t.Context())
	require.NoError(t, err)
	require.Empty(t, report.Findings)
}
