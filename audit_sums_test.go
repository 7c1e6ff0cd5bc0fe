package transfer_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/audit"
)

// Money in transit counts where it was taken from until the commit, then where it goes to, then nowhere: balances and what is in transit
// add up at each step.
func TestAuditTotals(t *testing.T) {
	t.Parallel()
	for n, want := range map[int][2]int64{2: {100, 0}, 3: {40, 60}, 4: {40, 60}, 5: {100, 0}} {
		b := newBank(t, 100, 0)
		b.stallAt("t", n, lost, 60)
		report := b.mustAudit()
		require.Empty(t, report.Findings)
		require.Equal(t, 2, report.Accounts)
		require.Equal(t, 1, report.Transfers)
		require.Equal(t, 1, report.Unfinished)
		require.Equal(t, transfer.Units(want[1]), report.InTransit)
		require.Equal(t, []transfer.LedgerTotal{
			{Accounts: 2, Total: transfer.Units(want[0]), InTransit: transfer.Units(want[1])},
		}, report.Ledgers, "dead before command %d", n)
		b.recoverAll()
		require.Equal(t, transfer.Units(0), b.mustAudit().InTransit)
		b.audit(initial(100, 0))
	}
}

// A hold that was posted in part brings the payee what was posted; the rest is on its way back to the payer.
func TestAuditTotalsOfPartlyPosted(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	b.hold("t", 60, time.Hour)
	b.dying(2, lost, func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Post(ctx, "t", transfer.PostAmount(transfer.Units(20)))
		return err
	})
	transit := func(want int64) {
		report := b.mustAudit()
		require.Empty(t, report.Findings)
		require.Equal(t, want, units(t, report.InTransit))
		require.Equal(t, 100-want, units(t, report.Ledgers[0].Total))
	}
	transit(60)
	b.change("accounts", "b", bson.M{"$unset": bson.M{"pending.t": ""}, "$inc": bson.M{"balance": int64(20)}}) // as settling does it
	transit(40)
	b.recoverAll()
	transit(0)
	b.audit(initial(100, 0))
}

// What a transfer that is rolled back has taken is in transit until it is given back.
func TestAuditTotalsOfRolledBack(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	b.stallAt("t", 3, lost, 60)
	b.dying(3, lost, func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Cancel(ctx, "t", "no longer wanted")
		return err
	})
	rec, err := b.Get(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, transfer.StateRollback, rec.State)
	report := b.mustAudit()
	require.Empty(t, report.Findings)
	require.EqualValues(t, 60, units(t, report.InTransit))
	require.EqualValues(t, 40, units(t, report.Ledgers[0].Total))
	b.recoverAll()
	b.audit(initial(100, 0))
}

// A marker that is left over stands for no money in transit, neither here nor on another server.
func TestAuditTotalsOfLeftovers(t *testing.T) {
	t.Parallel()
	b := newBranches(t, startServer(t), 1000, 500)
	_, err := b.both.Transfer(t.Context(), across("t", 60))
	require.NoError(t, err)
	b.changeThere(bson.M{"$set": bson.M{"pending.t": int64(60)}})
	_, err = b.OpenAccount(t.Context(), transfer.Account{ID: "b"})
	require.NoError(t, err)
	b.mustMove("u", 60)
	b.set("accounts", "b", "pending.u", int64(60))
	report, err := b.both.Audit(t.Context())
	require.NoError(t, err)
	require.Equal(t, []audit.Code{audit.FinalMarker, audit.FinalMarker}, codesOf(report))
	require.True(t, report.InTransit.IsZero())
}

// Sums are told by ledger and currency, exactly, whatever their size, and an expectation that is not met is a finding with the difference.
func TestAuditExpectations(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	c := b.coordinator(b.db, mirror(b.db)...)
	l, err := c.Ledger("mirror")
	require.NoError(t, err)
	most := transfer.Units(1 << 62)
	for _, a := range []transfer.Account{
		{ID: "x", Balance: most, Currency: "EUR"}, {ID: "y", Balance: most, Currency: "EUR"},
		{ID: "z", Balance: decimal(t, "0.10"), Currency: "USD"}, {ID: "w", Balance: decimal(t, "0.05"), Currency: "USD"},
	} {
		_, err := l.Open(t.Context(), a)
		require.NoError(t, err)
	}
	huge := decimal(t, "9223372036854775808")
	report, err := c.AuditWith(t.Context(), transfer.AuditOptions{Expected: []transfer.ExpectedTotal{
		{Sum: transfer.Units(100)}, {Ledgers: []string{""}, Sum: transfer.Units(100)}, {Currency: "EUR", Sum: huge},
		{Ledgers: []string{"mirror"}, Currency: "USD", Sum: decimal(t, "0.15")}, {Ledgers: []string{"mirror"}, Sum: transfer.Units(0)},
	}})
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	require.Len(t, report.Ledgers, 3)
	require.Equal(t, transfer.LedgerTotal{Accounts: 2, Total: transfer.Units(100)}, report.Ledgers[0])
	require.Zero(t, report.Ledgers[1].Total.Cmp(huge))
	require.Equal(t, "EUR", report.Ledgers[1].Currency)
	require.Equal(t, "0.15", report.Ledgers[2].Total.String())

	report, err = c.AuditWith(t.Context(), transfer.AuditOptions{Expected: []transfer.ExpectedTotal{
		{Sum: transfer.Units(99)}, {Ledgers: []string{"mirror"}, Currency: "USD", Sum: decimal(t, "0.16")},
		{Ledgers: []string{"mirror"}, Sum: transfer.Units(1)},
	}})
	require.NoError(t, err)
	require.Equal(t, []audit.Code{audit.WrongTotal, audit.WrongTotal, audit.WrongTotal}, codesOf(report))
	require.Contains(t, report.Findings[0].Detail, "sum to 100, and 0 are in transit: that is 1 off what was expected, 99")
	require.Contains(t, report.Findings[1].Detail, "-0.01 off")

	for name, options := range map[string]transfer.AuditOptions{
		"a ledger that is not registered":  {Expected: []transfer.ExpectedTotal{{Ledgers: []string{"nowhere"}}}},
		"the sum of a range":               {Expected: []transfer.ExpectedTotal{{}}, Accounts: transfer.IDRange{From: "a"}},
		"a bound that is no ID":            {Accounts: transfer.IDRange{From: "\xff"}},
		"a bound that is no transfer's":    {Transfers: transfer.IDRange{To: "\xff"}},
		"a range of accounts from its end": {Accounts: transfer.IDRange{From: "b", To: "a"}},
		"a range of nothing":               {Transfers: transfer.IDRange{From: "a", To: "a"}},
	} {
		_, err = c.AuditWith(t.Context(), options)
		require.ErrorIs(t, err, transfer.ErrInvalidRequest, name)
	}
}

// A sum that no amount holds is told as a finding, to the last digit.
func TestAuditLongTotal(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for i := range 11 {
		_, err := b.OpenAccount(t.Context(), transfer.Account{ID: name(i), Balance: decimal(t, "999999999999999999999.999999999999")})
		require.NoError(t, err)
	}
	report := b.mustAudit()
	require.Equal(t, []audit.Code{audit.LongTotal}, codesOf(report))
	require.Contains(t, report.Findings[0].Detail, "10999999999999999999999.999999999989")
}

// Money that goes astray is found by its sum, where a caller knows what that should be, even if no document looks wrong.
func TestAuditFindsLostMoney(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	b.mustMove("t", 60)
	b.change("accounts", "a", bson.M{"$inc": bson.M{"balance": int64(-7)}})
	require.Empty(t, b.mustAudit().Findings)
	report, err := b.AuditWith(t.Context(), transfer.AuditOptions{Expected: []transfer.ExpectedTotal{{Sum: transfer.Units(100)}}})
	require.NoError(t, err)
	require.Equal(t, []audit.Code{audit.WrongTotal}, codesOf(report))
	require.Contains(t, report.Findings[0].Detail, "-7 off")
}

// Units and decimals are never added up, neither in a ledger's sums nor in those of all
// that is in transit; and an expectation is held against those of its own kind.
func TestAuditKeepsKindsApart(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	for id, balance := range map[string]string{"x": "5.50", "y": "0.00"} {
		_, err := b.OpenAccount(t.Context(), transfer.Account{ID: id, Balance: decimal(t, balance)})
		require.NoError(t, err)
	}
	b.insert("accounts", bson.M{"_id": "double", "balance": 7.0})
	b.hold("units", 60, time.Hour)
	_, err := b.Hold(t.Context(), transfer.Request{ID: "decimals", From: "x", To: "y", Amount: decimal(t, "2.25")}, time.Hour)
	require.NoError(t, err)
	expect := func(sums ...transfer.Amount) (transfer.AuditReport, []audit.Code) {
		var o transfer.AuditOptions
		for _, sum := range sums {
			o.Expected = append(o.Expected, transfer.ExpectedTotal{Sum: sum})
		}
		report, err := b.AuditWith(t.Context(), o)
		require.NoError(t, err)
		return report, codesOf(report)
	}
	report, codes := expect(transfer.Units(100), decimal(t, "5.5"))
	require.Equal(t, []audit.Code{audit.WrongBalance}, codes)
	require.Equal(t, transfer.Units(60), report.InTransit)
	require.Equal(t, "2.25", report.DecimalsInTransit.String())
	require.Len(t, report.Ledgers, 2)
	require.Equal(t, transfer.LedgerTotal{Accounts: 3, Total: transfer.Units(40), InTransit: transfer.Units(60)}, report.Ledgers[0])
	require.Equal(t, 2, report.Ledgers[1].Accounts)
	require.Equal(t, "3.25 2.25", report.Ledgers[1].Total.String()+" "+report.Ledgers[1].InTransit.String())
	_, codes = expect(transfer.Units(105), decimal(t, "105.5"))
	require.Equal(t, []audit.Code{audit.WrongBalance, audit.WrongTotal, audit.WrongTotal}, codes)

	_, err = b.Void(t.Context(), "units")
	require.NoError(t, err)
	report, _ = expect()
	require.Equal(t, "2.25", report.InTransit.String(), "only decimals are in transit")
	require.True(t, report.DecimalsInTransit.IsZero())
	_, err = b.Void(t.Context(), "decimals")
	require.NoError(t, err)
	b.remove("accounts", "double", "x", "y")
	b.remove("transfers", "decimals")
	_, codes = expect(decimal(t, "100"))
	require.Empty(t, codes, "there are units only: the sum counts by value")
	b.audit(initial(100, 0))
}
