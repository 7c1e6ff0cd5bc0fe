package bank

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
)

// MustStatement collects the entries that a query selects, in order. It requires that
// each balance is what the entry before it left.
func (b *Bank) MustStatement(of *transfer.Ledger, id string, q transfer.StatementQuery) []transfer.Entry {
	b.T.Helper()
	var entries []transfer.Entry
	for e, err := range of.Statement(b.T.Context(), id, q) {
		require.NoError(b.T, err)
		entries = append(entries, e)
	}
	RequireChain(b.T, q, entries)
	return entries
}

// RequireChain requires that each entry follows from the one before it.
func RequireChain(t *testing.T, q transfer.StatementQuery, entries []transfer.Entry) {
	t.Helper()
	for i := range len(entries) - 1 {
		older, newer := entries[i], entries[i+1]
		if q.NewestFirst {
			older, newer = newer, older
		}
		order := older.At.Compare(newer.At)
		before := Units(t, newer.Balance) - Units(t, newer.Amount)
		if before != Units(t, older.Balance) || order > 0 || order == 0 && older.TransferID >= newer.TransferID {
			require.Failf(t, "entries don't follow each other", "%+v and %+v", older, newer)
		}
	}
}

// Lines returns entries in short: ID, amount and balance of each.
func (b *Bank) Lines(entries []transfer.Entry) []string {
	b.T.Helper()
	var lines []string
	for _, e := range entries {
		lines = append(lines, strings.Join([]string{e.TransferID, e.Amount.String(), e.Balance.String()}, " "))
	}
	return lines
}

// CommittedAt returns when a transfer was committed.
func (b *Bank) CommittedAt(id string) time.Time {
	b.T.Helper()
	var stored struct {
		At time.Time `bson:"committedAt"`
	}
	require.NoError(b.T, b.DB.Collection("transfers").FindOne(b.T.Context(), bson.M{"_id": id}).Decode(&stored))
	return stored.At
}

// RequireBalanceAt requires the balance that an account had at an instant.
func (b *Bank) RequireBalanceAt(id string, at time.Time, want int64) {
	b.T.Helper()
	got, err := b.BalanceAt(b.T.Context(), id, at)
	require.NoError(b.T, err)
	require.Equal(b.T, want, Units(b.T, got), "the balance of %s at %s", id, at)
}
