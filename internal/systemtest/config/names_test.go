package config

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A name that leaves no room for the note is refused at once.
// It doesn't look like a server that can't be reached.
func TestNameWithoutRoomForTheNote(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	longest := strings.Repeat("x", 255-len(b.DB.Name())-len("."))
	for name, c := range map[string]*transfer.Coordinator{
		"long": b.NewCoordinator(b.DB, transfer.WithAccounts(b.DB.Collection(longest))),
		"odd":  b.NewCoordinator(b.DB.Client().Database("$" + b.DB.Name())),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		require.ErrorIs(t, c.Setup(ctx), transfer.ErrUnsupportedDeployment, name)
		_, err := c.OpenAccount(ctx, transfer.Account{ID: "a"})
		cancel()
		require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, name)
		require.ErrorContains(t, err, "name")
	}
}

// A ledger that gets another name keeps its transfers under the old one.
// A list under the old name finds them.
// They can't be reversed, and a request under the new name is another one.
func TestLedgerGetsAnotherName(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100)
	eu := b.DB.Collection("eu")
	before := b.NewCoordinator(b.DB, transfer.WithLedger("eu", eu))
	b.Insert("eu", bson.M{"_id": "x", "balance": int64(0)})
	req := toEU("t", 10)
	_, err := before.Transfer(t.Context(), req)
	require.NoError(t, err)

	after := b.NewCoordinator(b.DB, transfer.WithLedger("europe", eu))
	require.NoError(t, after.Setup(t.Context()))
	for ledger, want := range map[string][]string{"eu": {"t"}, "europe": nil} {
		var ids []string
		for rec, err := range after.List(t.Context(), transfer.Query{Ledger: ledger}) {
			require.NoError(t, err)
			ids = append(ids, rec.ID)
		}
		require.Equal(t, want, ids, ledger)
		n, err := after.Count(t.Context(), transfer.Query{Ledger: ledger, Account: "x"})
		require.NoError(t, err)
		require.EqualValues(t, len(want), n, ledger)
	}
	require.ErrorIs(t, bank.FirstError(after.List(t.Context(), transfer.Query{Ledger: "us"})), transfer.ErrInvalidRequest)
	_, err = after.Count(t.Context(), transfer.Query{Ledger: "us"})
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)

	_, err = after.Reverse(t.Context(), transfer.Reversal{ID: "back", Of: "t", All: true})
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	require.ErrorContains(t, err, "not registered here under that name")
	renamed := toEU("t", 10)
	renamed.Legs[1].Ledger = "europe"
	_, err = after.Transfer(t.Context(), renamed)
	require.ErrorIs(t, err, transfer.ErrIDConflict)
	rec, err := before.Reverse(t.Context(), transfer.Reversal{ID: "back", Of: "t", All: true})
	require.NoError(t, err, "a process that has the old name")
	require.True(t, rec.State.Decided())
	b.CheckBooks(bank.Balances(100))
	b.Coordinator = after
	require.Empty(t, b.MustAudit().Findings)
}
