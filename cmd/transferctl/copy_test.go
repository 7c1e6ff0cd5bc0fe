package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A command on a copy of a deployment, on the same server, does nothing to the accounts
// of the original, which the copy's records name: the original would lose the money of
// its holds. It works with the accounts of the copy if flags name these.
func TestCopyLeavesTheOriginalAlone(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	eu := b.DB.Collection("eu")
	c := b.NewCoordinator(b.DB, transfer.WithLedger("eu", eu))
	b.Coordinator = c
	b.OpenAccounts([]int64{100, 0})
	ledger, err := c.Ledger("eu")
	require.NoError(t, err)
	_, err = ledger.Open(t.Context(), transfer.Account{ID: "shop"})
	require.NoError(t, err)
	b.MustHold("held", 20, time.Hour)
	_, err = c.Hold(t.Context(), transfer.Request{ID: "held in eu", Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-30)}, {Ledger: "eu", Account: "shop", Amount: transfer.Units(30)},
	}}, time.Hour)
	require.NoError(t, err)
	d := atDesk(t, bank.Copied(t, b.DB))
	own, ours := "transfers collection "+b.DB.Name()+".transfers", "this is another one, "+d.db.Name()+".transfers"
	place := b.DB.Name() + "/eu"
	for _, wrong := range []struct {
		collection string
		flags      []string
	}{
		{"accounts", nil},
		{"eu", []string{"--accounts", "accounts"}},
		{"eu", []string{"--accounts", "accounts", "--with-ledger", "eu=" + place}},
		{"eu", []string{"--accounts", "accounts", "--with-documents", "orders=" + place, "--with-ledger", "eu=eu"}},
	} {
		for _, command := range [][]string{
			{"cancel", "held", "--yes"}, {"cancel", "held in eu", "--yes"}, {"recover"}, {"audit"}, {"check"}, {"setup"},
			{"adopt", "--yes"},
		} {
			a := d.run(append(append([]string{}, wrong.flags...), command...)...).requires(exitFailed)
			require.Contains(t, a.err, b.DB.Name()+"."+wrong.collection+" belongs to the "+own)
			require.Contains(t, a.err, ours)
			require.Contains(t, a.err, "name the collections of the copy by --accounts, --with-ledger")
		}
	}
	right := []string{"--accounts", "accounts", "--with-ledger", "eu=eu"}
	d.run(append(right, "cancel", "held", "--yes")...)
	require.Equal(t, []string{"50"}, d.run(append(right, "accounts", "a", "--json")...).done().column("available"))

	for _, id := range []string{"held", "held in eu"} {
		rec, err := c.Post(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, transfer.StateSuccess, rec.State)
	}
	b.RequireStanding("a", 50, 50, 0)
	b.RequireStanding("b", 20, 20, 0)
	require.Empty(t, b.MustAudit().Findings)
	shop, err := ledger.Get(t.Context(), "shop")
	require.NoError(t, err)
	require.Equal(t, transfer.Units(30), shop.Balance)
}

// Accounts in another database than the transfers belong to these by their note, and need
// no flag.
func TestAccountsInAnotherDatabase(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	elsewhere := mongotest.Database(t)
	c := b.NewCoordinator(b.DB,
		transfer.WithAccounts(elsewhere.Collection("wallets")), transfer.WithLedger("eu", elsewhere.Collection("eu")))
	_, err := c.OpenAccount(t.Context(), transfer.Account{ID: "a"})
	require.NoError(t, err)
	ledger, err := c.Ledger("eu")
	require.NoError(t, err)
	_, err = ledger.Open(t.Context(), transfer.Account{ID: "shop"})
	require.NoError(t, err)
	d := atDesk(t, b.DB)
	require.Equal(t, []string{"a"}, d.run("accounts", "--json").done().column("id"))
	require.Equal(t, []string{"shop"}, d.run("accounts", "--ledger", "eu", "--json").done().column("id"))
	d.run("audit").done()
}
