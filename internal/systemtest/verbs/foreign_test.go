package verbs

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// oddIDs are texts that no account and no transfer has as its ID.
// The empty one can't be the place where a list goes on.
func oddIDs() []string { return []string{"", strings.Repeat("k", 300), strings.Repeat("z", 3000)} }

// A list of accounts goes on behind every document that it yields, page by page.
// One whose _id can't be an account's ID is yielded as no account, and the empty one is
// left out.
// The audit finds all of them.
func TestForeignAccountsInAList(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	for _, id := range oddIDs() {
		b.Insert("accounts", bson.M{"_id": id, "balance": int64(7)})
	}
	var seen []string
	for q := (transfer.AccountQuery{Limit: 1}); ; {
		page := seen
		for a, err := range b.Accounts(t.Context(), q) {
			if a.ID == "a" || a.ID == "b" {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, transfer.ErrAmountKind, "%q", a.ID)
				require.Zero(t, a.Balance)
			}
			page = append(page, a.ID)
		}
		if len(page) == len(seen) {
			break
		}
		seen = page
		q.Beyond = seen[len(seen)-1]
		require.LessOrEqual(t, len(seen), 4)
	}
	require.Equal(t, []string{"a", "b", oddIDs()[1], oddIDs()[2]}, seen)
	require.Equal(t, []audit.Code{audit.WrongID, audit.WrongID, audit.WrongID}, bank.CodesOf(b.MustAudit()))
	for _, id := range oddIDs() {
		b.Remove("accounts", id)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// A list of transfers goes on behind every document that it yields, page by page.
// One that is no transfer, by its _id or its state, is yielded and read as unreadable,
// and one with the empty _id is left out.
// The audit finds all of them.
func TestForeignTransfersInAList(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustMove("t", 60)
	later := time.Now().Add(time.Hour)
	for _, id := range oddIDs() {
		b.Insert("transfers", bson.M{"_id": id, "createdAt": later, "state": "Success"})
	}
	b.Insert("transfers", bson.M{"_id": "stateless", "createdAt": later}, bson.M{"_id": "frozen", "createdAt": later, "state": "Frozen"})
	var seen []string
	for q := (transfer.Query{Limit: 1}); ; {
		page := seen
		for rec, err := range b.List(t.Context(), q) {
			if rec.ID == "t" {
				require.NoError(t, err)
			} else {
				require.Error(t, err, "%q", rec.ID)
				require.Equal(t, transfer.InDoubt, transfer.OutcomeOf(err), "%q", rec.ID)
				require.Equal(t, transfer.Record{ID: rec.ID}, rec)
			}
			page = append(page, rec.ID)
		}
		if len(page) == len(seen) {
			break
		}
		seen = page
		q.Beyond = seen[len(seen)-1]
		require.LessOrEqual(t, len(seen), 5)
	}
	require.Equal(t, []string{oddIDs()[2], "stateless", oddIDs()[1], "frozen", "t"}, seen)
	for _, id := range []string{"stateless", "frozen"} {
		rec, err := b.Get(t.Context(), id)
		require.Error(t, err)
		require.Equal(t, transfer.InDoubt, transfer.OutcomeOf(err))
		require.Zero(t, rec)
	}
	found := map[string]bool{}
	for _, f := range b.MustAudit().Findings {
		found[f.ID] = true
	}
	require.Len(t, found, 5)
	for _, id := range append(oddIDs(), "stateless", "frozen") {
		b.Remove("transfers", id)
	}
	b.CheckBooks(bank.Balances(100, 0))
}
