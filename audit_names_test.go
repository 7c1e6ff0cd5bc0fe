package transfer_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/audit"
)

// renaming returns a coordinator of another service, which knows the accounts and orders of a bank under names of its own.
func (b *bank) renaming() *transfer.Coordinator {
	b.t.Helper()
	return b.coordinator(b.db, transfer.WithAccounts(b.db.Collection("own")), transfer.WithLedger("main", b.db.Collection("accounts")),
		transfer.WithDocuments("bills", b.db.Collection("orders")))
}

// An audit by a service that has other names for the collections finds nothing where all is well, and counts what is in transit; it finds
// what is wrong there all the same.
func TestAuditUnderOtherNames(t *testing.T) {
	t.Parallel()
	b := newShop(t, 100, 0, 10)
	b.hold("h", 30, time.Hour)
	b.stallAt("t", 4, lost, 20)
	b.dying(5, lost, func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Transfer(ctx, payment("p", "o-1", 10))
		return err
	}, orders)
	other := b.renaming()
	report, err := other.Audit(t.Context())
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	require.EqualValues(t, 60, units(t, report.InTransit))
	require.Equal(t, []transfer.LedgerTotal{
		{Total: transfer.Units(0), InTransit: transfer.Units(0)},
		{Ledger: "main", Accounts: 3, Total: transfer.Units(50), InTransit: transfer.Units(60)},
	}, report.Ledgers)

	for account, amount := range map[string]int64{"b": 31, "c": 5} {
		b.set("accounts", account, "pending.h", amount)
	}
	b.set("orders", "o-2", "pending.p", int64(0))
	report, err = other.Audit(t.Context())
	require.NoError(t, err)
	require.Equal(t, []audit.Code{audit.ForeignMarker, audit.ForeignMarker, audit.WrongMarker}, codesOf(report))
	b.set("accounts", "b", "pending.h", int64(30))
	b.unset("accounts", "c", "pending.h")
	b.unset("orders", "o-2", "pending.p")

	_, err = b.Void(t.Context(), "h")
	require.NoError(t, err)
	b.recoverAll(orders(b.db)...)
	b.audit(initial(100, 0, 10))
}

// A collection of the same name on a cluster that is not registered here is another one: a leg there is not mistaken for the one that
// this document has.
func TestAuditTellsNamesakesApart(t *testing.T) {
	t.Parallel()
	b := newBranches(t, startServer(t), 1000, 6)
	here := []transfer.Option{transfer.WithAccounts(b.db.Collection("own")), transfer.WithLedger("this", b.db.Collection("accounts"))}
	both := b.coordinator(b.db, append(here, b.other())...)
	require.NoError(t, both.Setup(t.Context()))
	_, err := both.Hold(t.Context(), transfer.Request{ID: "t", Legs: []transfer.Leg{
		{Ledger: "other", Account: "a", Amount: transfer.Units(-5)}, {Ledger: "this", Account: "a", Amount: transfer.Units(5)},
	}}, time.Hour)
	require.NoError(t, err)
	c := b.coordinator(b.db, here...)
	for _, row := range []struct {
		marker int64
		want   []audit.Code
	}{{-5, []audit.Code{audit.WrongMarker}}, {5, []audit.Code{}}} {
		b.set("accounts", "a", "pending.t", row.marker)
		report, err := c.Audit(t.Context())
		require.NoError(t, err)
		require.Equal(t, row.want, codesOf(report))
	}

	_, err = b.OpenAccount(t.Context(), transfer.Account{ID: "z"})
	require.NoError(t, err)
	_, err = both.Hold(t.Context(), transfer.Request{ID: "u", Legs: []transfer.Leg{
		{Ledger: "other", Account: "a", Amount: transfer.Units(-1)}, {Ledger: "this", Account: "z", Amount: transfer.Units(1)},
	}}, time.Hour)
	require.NoError(t, err)
	b.set("accounts", "a", "pending.u", int64(-1))
	report, err := both.Audit(t.Context())
	require.NoError(t, err)
	require.Equal(t, []audit.Code{audit.ForeignMarker}, codesOf(report))
	b.unset("accounts", "a", "pending.u")
	for _, id := range []string{"t", "u"} {
		_, err = both.Void(t.Context(), id)
		require.NoError(t, err)
	}
	b.remove("accounts", "z")
	b.audit()
}
