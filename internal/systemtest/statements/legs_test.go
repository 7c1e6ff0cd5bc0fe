package statements

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// An entry has all legs of its transfer and the transfer's metadata, whichever account
// the statement is of, and in either order.
// Of a hold that was posted in part it has what was posted.
func TestEntriesHaveLegsAndMetadata(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0, 0).WithIndexes()
	split := transfer.Request{
		ID: "split", Metadata: map[string]any{"order": "A7", "items": []any{"hat", "scarf"}},
		Legs: []transfer.Leg{
			{Account: "a", Amount: transfer.Units(-10)}, {Account: "b", Amount: transfer.Units(9)}, {Account: "c", Amount: transfer.Units(1)},
		},
	}
	_, err := b.Transfer(t.Context(), split)
	require.NoError(t, err)
	b.MustHold("hold", 60, time.Hour)
	_, err = b.Post(t.Context(), "hold", transfer.PostAmount(transfer.Units(25)))
	require.NoError(t, err)
	posted := []transfer.Leg{{Account: "a", Amount: transfer.Units(-25)}, {Account: "b", Amount: transfer.Units(25)}}
	for account, amounts := range map[string][]int64{"a": {-10, -25}, "b": {9, 25}, "c": {1}} {
		for _, newestFirst := range []bool{false, true} {
			query := transfer.StatementQuery{NewestFirst: newestFirst}
			entries := b.MustStatement(b.MustLedger(""), account, query)
			require.Len(t, entries, len(amounts))
			for i, e := range entries {
				if newestFirst {
					i = len(amounts) - 1 - i
				}
				require.Equal(t, transfer.Units(amounts[i]), e.Amount)
				switch e.TransferID {
				case "split":
					require.Equal(t, split.Legs, e.Legs)
					require.Equal(t, map[string]any{"order": "A7", "items": bson.A{"hat", "scarf"}}, e.Metadata)
				default:
					require.Equal(t, posted, e.Legs)
					require.Nil(t, e.Metadata)
				}
			}
		}
	}
	b.CheckBooks(bank.Balances(100, 0, 0))
}

// A statement ends with an error where what a transfer has moved can't be read, on
// whichever account that is.
// A balance needs no more than the account's own legs.
func TestStatementOfUnreadableLegs(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.MustMove("t", 60)
	intact := b.Raw("transfers")
	b.SetField("transfers", "t", "legs.1.amount", 60.0)
	err := bank.FirstError(b.Statement(t.Context(), "a", transfer.StatementQuery{}))
	require.ErrorContains(t, err, `transfer "t"`)
	require.NotContains(t, err.Error(), "60")
	b.RequireBalanceAt("a", time.Now(), 40)
	b.SetField("transfers", "t", "legs.1.amount", int64(60))
	require.Equal(t, intact, b.Raw("transfers"))
	b.CheckBooks(bank.Balances(100, 0))
}
