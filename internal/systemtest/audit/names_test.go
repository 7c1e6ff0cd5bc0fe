package audit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// renaming returns a coordinator of another service, with other names for the accounts
// and orders of a bank.
func renaming(b *bank.Bank) *transfer.Coordinator {
	b.T.Helper()
	return b.NewCoordinator(b.DB, transfer.WithAccounts(b.DB.Collection("own")), transfer.WithLedger("main", b.DB.Collection("accounts")),
		transfer.WithDocuments("bills", b.DB.Collection("orders")))
}

// An audit by a service with other names for the collections finds nothing in sound
// books, and counts the money in transit.
// It finds damage all the same.
func TestAuditUnderOtherNames(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t, 100, 0, 10)
	b.MustHold("h", 30, time.Hour)
	b.LeaveRecorded("t", 20)
	b.LeavePayment("p", "o-1", 10, "Preparing", bank.Reserved)
	other := renaming(b)
	report, err := other.Audit(t.Context())
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	require.EqualValues(t, 60, bank.Units(t, report.InTransit))
	require.Equal(t, []transfer.LedgerTotal{
		{Total: transfer.Units(0), InTransit: transfer.Units(0)},
		{Ledger: "main", Accounts: 3, Total: transfer.Units(50), InTransit: transfer.Units(60)},
	}, report.Ledgers)

	for account, amount := range map[string]int64{"b": 31, "c": 5} {
		b.SetField("accounts", account, "pending.h", amount)
	}
	b.SetField("orders", "o-2", "pending.p", int64(0))
	report, err = other.Audit(t.Context())
	require.NoError(t, err)
	require.Equal(t, []audit.Code{audit.ForeignMarker, audit.ForeignMarker, audit.WrongMarker}, bank.CodesOf(report))
	b.SetField("accounts", "b", "pending.h", int64(30))
	unsetField(b, "accounts", "c", "pending.h")
	unsetField(b, "orders", "o-2", "pending.p")

	_, err = b.Void(t.Context(), "h")
	require.NoError(t, err)
	b.RecoverAll(bank.Orders(b.DB)...)
	b.CheckBooks(bank.Balances(100, 0, 10))
}

// A collection of the same name on an unregistered cluster is another collection.
// A leg there is not mistaken for the leg on this account.
func TestAuditTellsNamesakesApart(t *testing.T) {
	t.Parallel()
	b := bank.NewBranches(t, bank.SecondServer(t), 1000, 6)
	here := []transfer.Option{transfer.WithAccounts(b.DB.Collection("own")), transfer.WithLedger("this", b.DB.Collection("accounts"))}
	both := b.NewCoordinator(b.DB, append(here, b.Other())...)
	require.NoError(t, both.Setup(t.Context()))
	_, err := both.Hold(t.Context(), transfer.Request{ID: "t", Legs: []transfer.Leg{
		{Ledger: "other", Account: "a", Amount: transfer.Units(-5)}, {Ledger: "this", Account: "a", Amount: transfer.Units(5)},
	}}, time.Hour)
	require.NoError(t, err)
	c := b.NewCoordinator(b.DB, here...)
	for _, row := range []struct {
		marker int64
		want   []audit.Code
	}{{-5, []audit.Code{audit.WrongMarker}}, {5, []audit.Code{}}} {
		b.SetField("accounts", "a", "pending.t", row.marker)
		report, err := c.Audit(t.Context())
		require.NoError(t, err)
		require.Equal(t, row.want, bank.CodesOf(report))
	}

	_, err = b.OpenAccount(t.Context(), transfer.Account{ID: "z"})
	require.NoError(t, err)
	_, err = both.Hold(t.Context(), transfer.Request{ID: "u", Legs: []transfer.Leg{
		{Ledger: "other", Account: "a", Amount: transfer.Units(-1)}, {Ledger: "this", Account: "z", Amount: transfer.Units(1)},
	}}, time.Hour)
	require.NoError(t, err)
	b.SetField("accounts", "a", "pending.u", int64(-1))
	report, err := both.Audit(t.Context())
	require.NoError(t, err)
	require.Equal(t, []audit.Code{audit.ForeignMarker}, bank.CodesOf(report))
	unsetField(b.Bank, "accounts", "a", "pending.u")
	for _, id := range []string{"t", "u"} {
		_, err = both.Void(t.Context(), id)
		require.NoError(t, err)
	}
	b.Remove("accounts", "z")
	b.CheckBooks()
}
