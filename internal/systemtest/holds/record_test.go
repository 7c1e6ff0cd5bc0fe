package holds

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// The record of a hold shows what is held, whether it is held now, and, once it is
// posted, what was posted and when.
// What was held stays readable, and a statement shows what has moved.
func TestRecordOfAPost(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		part   []transfer.PostOption
		posted int64
	}{"whole": {nil, 60}, "part": {[]transfer.PostOption{transfer.PostAmount(transfer.Units(20))}, 20}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			held := b.MustHold("h", 60, time.Hour)
			require.True(t, held.Held)
			require.Nil(t, held.Posted)
			require.Nil(t, held.Moved(), "nothing has moved")
			require.Zero(t, held.CommittedAt)
			first, err := b.Post(t.Context(), "h", row.part...)
			require.NoError(t, err)
			stored, err := b.Get(t.Context(), "h")
			require.NoError(t, err)
			for _, rec := range []transfer.Record{first, stored} {
				require.False(t, rec.Held)
				require.Equal(t, held.Legs, rec.Legs, "what was held")
				require.Equal(t, row.posted, bank.Units(t, *rec.Posted))
				require.Equal(t, []transfer.Leg{
					{Account: "a", Amount: transfer.Units(-row.posted)}, {Account: "b", Amount: transfer.Units(row.posted)},
				}, rec.Moved())
				require.Equal(t, b.CommittedAt("h").UTC(), rec.CommittedAt.UTC())
			}
			for entry, err := range b.Statement(t.Context(), "b", transfer.StatementQuery{}) {
				require.NoError(t, err)
				require.Equal(t, row.posted, bank.Units(t, entry.Amount))
				require.Equal(t, row.posted, bank.Units(t, entry.Legs[1].Amount))
				require.Equal(t, stored.CommittedAt.UTC(), entry.At.UTC())
			}
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// Posted is of posted holds between two accounts only.
// CommittedAt is of all that is committed.
func TestRecordsWithoutPosted(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0, 0)
	split := transfer.Request{ID: "split", Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-30)}, {Account: "b", Amount: transfer.Units(10)}, {Account: "c", Amount: transfer.Units(20)},
	}}
	_, err := b.Hold(t.Context(), split, time.Hour)
	require.NoError(t, err)
	posted, err := b.Post(t.Context(), "split")
	require.NoError(t, err)
	moved, err := b.Transfer(t.Context(), bank.Move("t", "a", "b", 1))
	require.NoError(t, err)
	for _, rec := range []transfer.Record{posted, moved} {
		require.Nil(t, rec.Posted, rec.ID)
		require.Equal(t, rec.Legs, rec.Moved(), rec.ID)
		require.False(t, rec.Held, rec.ID)
		const about = time.Minute // the call that commits a transfer estimates the time
		require.WithinDuration(t, b.CommittedAt(rec.ID), rec.CommittedAt, about, rec.ID)
		stored, err := b.Get(t.Context(), rec.ID)
		require.NoError(t, err)
		require.Equal(t, b.CommittedAt(rec.ID).UTC(), stored.CommittedAt.UTC(), rec.ID)
	}
	b.MustHold("h", 10, time.Hour)
	voided, err := b.Void(t.Context(), "h")
	require.NoError(t, err)
	require.Nil(t, voided.Moved())
	require.Nil(t, voided.Posted)
	require.False(t, voided.Held)
	require.Zero(t, voided.CommittedAt)
	b.CheckBooks(bank.Balances(100, 0, 0))
}
