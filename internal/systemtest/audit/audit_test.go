package audit

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// Money in transit counts for the ledger it was taken from until the commit, then for the
// ledger it goes to, and nowhere once it has arrived.
// Balances and money in transit add up to the same total at each step.
func TestAuditTotals(t *testing.T) {
	t.Parallel()
	for at, want := range map[bank.Step][2]int64{
		bank.Prepares: {100, 0}, bank.Decision: {40, 60}, bank.Settles: {40, 60}, bank.Clears: {100, 0}, bank.Finish: {100, 0},
	} {
		b := bank.New(t, 100, 0)
		b.StallAt("t", at, bank.Lost, 60)
		report := b.MustAudit()
		require.Empty(t, report.Findings)
		require.Equal(t, 2, report.Accounts)
		require.Equal(t, 1, report.Transfers)
		require.Equal(t, 1, report.Unfinished)
		require.Equal(t, transfer.Units(want[1]), report.InTransit)
		require.Equal(t, []transfer.LedgerTotal{
			{Accounts: 2, Total: transfer.Units(want[0]), InTransit: transfer.Units(want[1])},
		}, report.Ledgers, "dead before %s", at)
		b.RecoverAll()
		require.Equal(t, transfer.Units(0), b.MustAudit().InTransit)
		b.CheckBooks(bank.Balances(100, 0))
	}
}

// A hold that was posted in part brings the payee the posted part.
// The rest is on its way back to the payer.
func TestAuditTotalsOfPartlyPosted(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustHold("t", 60, time.Hour)
	b.Dying(bank.Settles, bank.Lost, func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Post(ctx, "t", transfer.PostAmount(transfer.Units(20)))
		return err
	})
	transit := func(want int64) {
		report := b.MustAudit()
		require.Empty(t, report.Findings)
		require.Equal(t, want, bank.Units(t, report.InTransit))
		require.Equal(t, 100-want, bank.Units(t, report.Ledgers[0].Total))
	}
	transit(60)
	b.Change("accounts", "b", bson.M{"$unset": bson.M{"pending.t": ""}, "$inc": bson.M{"balance": int64(20)}}) // as settling does it
	transit(40)
	b.RecoverAll()
	transit(0)
	b.CheckBooks(bank.Balances(100, 0))
}

// Money that a rolled back transfer has taken is in transit until it is given back.
func TestAuditTotalsOfRolledBack(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.StallHalf("t", 60)
	b.Dying(bank.Settles, bank.Lost, func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Cancel(ctx, "t", "no longer wanted")
		return err
	})
	rec, err := b.Get(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, transfer.StateRollback, rec.State)
	report := b.MustAudit()
	require.Empty(t, report.Findings)
	require.EqualValues(t, 60, bank.Units(t, report.InTransit))
	require.EqualValues(t, 40, bank.Units(t, report.Ledgers[0].Total))
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
}

// A leftover marker stands for no money in transit, on this server or another.
func TestAuditTotalsOfLeftovers(t *testing.T) {
	t.Parallel()
	b := bank.NewBranches(t, bank.SecondServer(t), 1000, 500)
	_, err := b.Both.Transfer(t.Context(), bank.Across("t", 60))
	require.NoError(t, err)
	b.ChangeThere(bson.M{"$set": bson.M{"pending.t": int64(60)}})
	_, err = b.OpenAccount(t.Context(), transfer.Account{ID: "b"})
	require.NoError(t, err)
	b.MustMove("u", 60)
	b.SetField("accounts", "b", "pending.u", int64(60))
	report, err := b.Both.Audit(t.Context())
	require.NoError(t, err)
	require.Equal(t, []audit.Code{audit.FinalMarker, audit.FinalMarker}, bank.CodesOf(report))
	require.True(t, report.InTransit.IsZero())
}

// Sums are reported by ledger and currency, exactly, whatever their size.
// An expectation that is not met is a finding that names the difference.
func TestAuditExpectations(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	c := b.NewCoordinator(b.DB, bank.Mirror(b.DB)...)
	l, err := c.Ledger("mirror")
	require.NoError(t, err)
	most := transfer.Units(1 << 62)
	for _, a := range []transfer.Account{
		{ID: "x", Balance: most, Currency: "EUR"}, {ID: "y", Balance: most, Currency: "EUR"},
		{ID: "z", Balance: bank.Decimal(t, "0.10"), Currency: "USD"}, {ID: "w", Balance: bank.Decimal(t, "0.05"), Currency: "USD"},
	} {
		_, err := l.Open(t.Context(), a)
		require.NoError(t, err)
	}
	huge := bank.Decimal(t, "9223372036854775808")
	report, err := c.AuditWith(t.Context(), transfer.AuditOptions{Expected: []transfer.ExpectedTotal{
		{Sum: transfer.Units(100)}, {Ledgers: []string{""}, Sum: transfer.Units(100)}, {Currency: "EUR", Sum: huge},
		{Ledgers: []string{"mirror"}, Currency: "USD", Sum: bank.Decimal(t, "0.15")}, {Ledgers: []string{"mirror"}, Sum: transfer.Units(0)},
	}})
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	require.Len(t, report.Ledgers, 3)
	require.Equal(t, transfer.LedgerTotal{Accounts: 2, Total: transfer.Units(100)}, report.Ledgers[0])
	require.Zero(t, report.Ledgers[1].Total.Cmp(huge))
	require.Equal(t, "EUR", report.Ledgers[1].Currency)
	require.Equal(t, "0.15", report.Ledgers[2].Total.String())

	report, err = c.AuditWith(t.Context(), transfer.AuditOptions{Expected: []transfer.ExpectedTotal{
		{Sum: transfer.Units(99)}, {Ledgers: []string{"mirror"}, Currency: "USD", Sum: bank.Decimal(t, "0.16")},
		{Ledgers: []string{"mirror"}, Sum: transfer.Units(1)},
	}})
	require.NoError(t, err)
	require.Equal(t, []audit.Code{audit.WrongTotal, audit.WrongTotal, audit.WrongTotal}, bank.CodesOf(report))
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

// A sum too long for an amount is reported as a finding, to the last digit.
func TestAuditLongTotal(t *testing.T) {
	t.Parallel()
	b := bank.New(t)
	for i := range 11 {
		_, err := b.OpenAccount(t.Context(), transfer.Account{
			ID: bank.AccountName(i), Balance: bank.Decimal(t, "999999999999999999999.999999999999"),
		})
		require.NoError(t, err)
	}
	report := b.MustAudit()
	require.Equal(t, []audit.Code{audit.LongTotal}, bank.CodesOf(report))
	require.Equal(t, `the balances of ledger "": 10999999999999999999999.999999999989`, report.Findings[0].Detail)
}

// Lost money is found by its sum, if the caller knows the expected sum, even though every
// document looks right.
func TestAuditFindsLostMoney(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustMove("t", 60)
	b.Change("accounts", "a", bson.M{"$inc": bson.M{"balance": int64(-7)}})
	require.Empty(t, b.MustAudit().Findings)
	report, err := b.AuditWith(t.Context(), transfer.AuditOptions{Expected: []transfer.ExpectedTotal{{Sum: transfer.Units(100)}}})
	require.NoError(t, err)
	require.Equal(t, []audit.Code{audit.WrongTotal}, bank.CodesOf(report))
	require.Contains(t, report.Findings[0].Detail, "-7 off")
}

// Units and decimals are never added up, in the sums of a ledger or of all money in
// transit.
// An expectation is compared with the sum of its own kind.
func TestAuditKeepsKindsApart(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	for id, balance := range map[string]string{"x": "5.50", "y": "0.00"} {
		_, err := b.OpenAccount(t.Context(), transfer.Account{ID: id, Balance: bank.Decimal(t, balance)})
		require.NoError(t, err)
	}
	b.Insert("accounts", bson.M{"_id": "double", "balance": 7.0})
	b.MustHold("units", 60, time.Hour)
	_, err := b.Hold(t.Context(), transfer.Request{ID: "decimals", From: "x", To: "y", Amount: bank.Decimal(t, "2.25")}, time.Hour)
	require.NoError(t, err)
	expect := func(sums ...transfer.Amount) (transfer.AuditReport, []audit.Code) {
		var o transfer.AuditOptions
		for _, sum := range sums {
			o.Expected = append(o.Expected, transfer.ExpectedTotal{Sum: sum})
		}
		report, err := b.AuditWith(t.Context(), o)
		require.NoError(t, err)
		return report, bank.CodesOf(report)
	}
	report, codes := expect(transfer.Units(100), bank.Decimal(t, "5.5"))
	require.Equal(t, []audit.Code{audit.WrongBalance}, codes)
	require.Equal(t, transfer.Units(60), report.InTransit)
	require.Equal(t, "2.25", report.DecimalsInTransit.String())
	require.Len(t, report.Ledgers, 2)
	require.Equal(t, transfer.LedgerTotal{Accounts: 3, Total: transfer.Units(40), InTransit: transfer.Units(60)}, report.Ledgers[0])
	require.Equal(t, 2, report.Ledgers[1].Accounts)
	require.Equal(t, "3.25 2.25", report.Ledgers[1].Total.String()+" "+report.Ledgers[1].InTransit.String())
	_, codes = expect(transfer.Units(105), bank.Decimal(t, "105.5"))
	require.Equal(t, []audit.Code{audit.WrongBalance, audit.WrongTotal, audit.WrongTotal}, codes)

	_, err = b.Void(t.Context(), "units")
	require.NoError(t, err)
	report, _ = expect()
	require.Equal(t, "2.25", report.InTransit.String(), "only decimals are in transit")
	require.True(t, report.DecimalsInTransit.IsZero())
	_, err = b.Void(t.Context(), "decimals")
	require.NoError(t, err)
	b.Remove("accounts", "double", "x", "y")
	b.Remove("transfers", "decimals")
	_, codes = expect(bank.Decimal(t, "100"))
	require.Empty(t, codes, "there are units only: the sum counts by value")
	b.CheckBooks(bank.Balances(100, 0))
}

// An audit only reads, in batches.
// It reads everything behind one client as of one moment.
func TestAuditOnlyReads(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1_000_000)
	_, err := b.OpenAccount(t.Context(), transfer.Account{ID: "b"})
	require.NoError(t, err)
	var (
		mu       sync.Mutex
		commands = map[string]int{}
		moments  = map[string]bool{}
	)
	monitor := options.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		mu.Lock()
		defer mu.Unlock()
		commands[e.CommandName]++
		if at := e.Command.Lookup("readConcern", "atClusterTime"); e.CommandName == "find" && at.Type != 0 {
			moments[at.String()] = true
		}
	}})
	c := b.NewCoordinator(b.Through(monitor), bank.Mirror(b.DB)...) // through another client: a cluster of its own
	for n := range 3 {
		b.StallAt(fmt.Sprint("stalled", n), bank.Decision+bank.Step(n%2), bank.Lost, 1)
	}
	report, err := c.Audit(t.Context())
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, moments, 1, "%v", commands)
	for name := range commands {
		require.Contains(t, []string{"hello", "find", "aggregate", "getMore", "killCursors", "endSessions", "listCollections", "create"}, name)
	}
	require.Zero(t, commands["create"]+commands["listCollections"])
	require.LessOrEqual(t, commands["find"], 7, "one of them is for LeftOut")
}

// Collections too large for one snapshot are audited range by range.
// Each document is read once, whatever the other ranges hold and whatever its _id is.
func TestAuditByRanges(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0, 10, 20, 30)
	for n := range 10 {
		b.MustMove(fmt.Sprint("t", n), 1)
	}
	b.StallAt("u", bank.Decision, bank.Lost, 5)
	b.SetField("accounts", "b", "pending.ghost", int64(5))
	b.SetField("accounts", "d", "balance", int64(-5))
	b.SetField("transfers", "t3", "state", "Frozen")
	b.SetField("transfers", "t7", "open", true)
	b.Remove("accounts", "e")
	b.Insert("orders", bson.M{"_id": "o-1", "pending": bson.M{"ghost": int64(0)}})
	b.Insert("accounts", bson.M{"_id": int64(5), "balance": int64(1)})
	b.Insert("transfers", bson.M{"_id": bson.NewObjectID(), "state": 5})
	b.Coordinator = b.NewCoordinator(b.DB, bank.Orders(b.DB)...)
	accounts := []transfer.IDRange{{To: "b"}, {From: "b", To: "c"}, {From: "c"}}
	transfers := []transfer.IDRange{{To: "t5"}, {From: "t5", To: "t9"}, {From: "t9"}}
	var found []audit.Code
	counts := [2]int{}
	transit := int64(0)
	for i := range accounts {
		report, err := b.AuditWith(t.Context(), transfer.AuditOptions{Accounts: accounts[i], Transfers: transfers[i]})
		require.NoError(t, err)
		found = append(found, bank.CodesOf(report)...)
		counts[0] += report.Accounts
		counts[1] += report.Transfers
		transit += bank.Units(t, report.InTransit)
	}
	require.ElementsMatch(t, []audit.Code{
		audit.OrphanMarker, audit.OrphanMarker, audit.BelowFloor, audit.WrongState, audit.WrongOpen, audit.WrongID,
		audit.Unreadable,
	}, found)
	require.Equal(t, [2]int{5, 12}, counts)
	require.EqualValues(t, 5, transit)
	require.ElementsMatch(t, found, bank.CodesOf(b.MustAudit()))
}

// The number of reported findings is limited, and the rest are counted.
func TestAuditOmits(t *testing.T) {
	t.Parallel()
	b := bank.New(t)
	documents := make([]any, 1500)
	for i := range documents {
		documents[i] = bson.M{"_id": fmt.Sprint(i), "balance": 1.5}
	}
	b.Insert("accounts", documents...)
	report := b.MustAudit()
	require.Len(t, report.Findings, 1000)
	require.Equal(t, 500, report.Omitted)
	require.Equal(t, 1500, report.Accounts)
}

// An audit that can't read everything says so. It ends with its context.
func TestAuditErrors(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Audit(ctx)
	require.ErrorIs(t, err, context.Canceled)
	c := b.NewCoordinator(b.DB)
	require.NoError(t, c.Close(t.Context()))
	_, err = c.Audit(t.Context())
	require.ErrorIs(t, err, transfer.ErrClosed)
	require.ErrorIs(t, c.RepairOpen(t.Context(), "t"), transfer.ErrClosed)
	require.ErrorIs(t, c.RepairPending(t.Context(), "", "a"), transfer.ErrClosed)
	require.ErrorIs(t, c.RepairMarker(t.Context(), transfer.MarkerRepair{
		Account: "a", TransferID: "t", Decision: transfer.KeepBalance,
	}), transfer.ErrClosed)
	b.CheckBooks(bank.Balances(100, 0))
}
