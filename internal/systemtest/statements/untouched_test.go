package statements

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// ageRetention makes the retention of an hour look first used that long ago.
func ageRetention(b *bank.Bank, since time.Duration) {
	b.T.Helper()
	update := bson.M{"$set": bson.M{"since": time.Now().Add(-since)}}
	result, err := b.DB.Collection("transfers.retention").UpdateOne(b.T.Context(), bson.M{"_id": time.Hour.Milliseconds()}, update)
	require.NoError(b.T, err)
	require.EqualValues(b.T, 1, result.MatchedCount)
}

// A statement of the time before the first transfer is empty, in both orders, although a
// retention removes old transfers.
// Transfers committed before the retention was first used are kept for good.
// Entries that may have been removed are reported as gone, and so are existing ones whose
// balance can't be computed any more.
func TestStatementBeforeTheFirstUse(t *testing.T) {
	t.Parallel()
	b := bank.NewWith(t, []transfer.Option{transfer.WithRetention(time.Hour)}, 100, 0).WithIndexes()
	_, err := b.Transfer(t.Context(), bank.Move("t", "a", "b", 10))
	require.NoError(t, err)
	const since = 100 * time.Hour
	ageRetention(b, since)
	now := time.Now()
	for _, newestFirst := range []bool{false, true} {
		for _, row := range []struct {
			after, before time.Time
			gone          bool
		}{
			{time.Time{}, time.Unix(0, 0), false},
			{time.Time{}, now.Add(-since - 6*time.Minute), false},
			{now.Add(-3 * since), now.Add(-2 * since), false},
			{time.Time{}, now.Add(-since - 4*time.Minute), true},
			{time.Time{}, now.Add(-since / 2), true},
			{time.Time{}, time.Time{}, true},
		} {
			c := b.NewCoordinator(b.DB) // a coordinator that has not read about retentions yet
			q := transfer.StatementQuery{After: row.after, Before: row.before, NewestFirst: newestFirst}
			err := bank.FirstError(c.Statement(t.Context(), "a", q))
			if row.before.IsZero() && newestFirst {
				err = bank.LastError(c.Statement(t.Context(), "a", q))
			}
			if !row.gone {
				require.NoError(t, err, "%+v", q)
				continue
			}
			require.ErrorIs(t, err, transfer.ErrHistoryGone, "%+v", q)
		}
	}
	c := b.NewCoordinator(b.DB)
	_, err = c.BalanceAt(t.Context(), "a", time.Unix(0, 0))
	require.ErrorIs(t, err, transfer.ErrHistoryGone, "it can't be counted back to")

	b.Insert("transfers", bson.M{
		"_id": "old", "state": "Success", "committedAt": now.Add(-2 * since),
		"legs": bson.A{bson.M{"ledger": "", "account": "a", "amount": int64(1)}},
	})
	err = bank.FirstError(c.Statement(t.Context(), "a", transfer.StatementQuery{Before: now.Add(-since * 3 / 2)}))
	require.ErrorIs(t, err, transfer.ErrHistoryGone, "it is there, and its balance can't be told")
	require.NoError(t, bank.FirstError(c.Statement(t.Context(), "a", transfer.StatementQuery{Before: now.Add(-3 * since)})))
}

// A transfer that was committed before a retention was first used, and finished after, is
// purged.
// From that first use on, an empty period can't be proved.
func TestStatementOfWhatWasOwing(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.StallAt("t", bank.Settles, bank.Lost, 60) // committed and not settled
	committed := time.Now().Add(-200 * time.Hour)
	b.SetField("transfers", "t", "committedAt", committed)
	keeping := b.NewCoordinator(b.DB, transfer.WithRetention(time.Hour), transfer.WithStallThreshold(0))
	require.NoError(t, keeping.Setup(t.Context()))
	_, err := keeping.Recover(t.Context())
	require.NoError(t, err)
	ageRetention(b, 100*time.Hour)
	b.Remove("transfers", "t") // as the server does an hour later
	c := b.NewCoordinator(b.DB)
	err = bank.FirstError(c.Statement(t.Context(), "a", transfer.StatementQuery{Before: committed.Add(time.Hour)}))
	require.ErrorIs(t, err, transfer.ErrHistoryGone)
	require.NoError(t, bank.FirstError(c.Statement(t.Context(), "a", transfer.StatementQuery{Before: committed.Add(-time.Hour)})))
}
