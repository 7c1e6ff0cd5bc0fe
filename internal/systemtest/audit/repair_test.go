package audit

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// lose leaves the markers of a transfer of 60 from a to b whose document is lost.
func lose(b *bank.Bank, id string) {
	b.T.Helper()
	b.LeaveRecorded(id, 60)
	b.Remove("transfers", id)
}

// repairOf returns the repair for a finding about a marker.
func repairOf(f transfer.Finding, decision transfer.MarkerDecision) transfer.MarkerRepair {
	return transfer.MarkerRepair{
		Ledger: f.Ledger, Account: f.Account, TransferID: f.TransferID, Amount: f.Amount, Decision: decision, Reason: "a test",
	}
}

// A marker whose transfer is lost is removed as the operator decides: to the unit, once
// and for good.
// The ID can't be used from then on.
func TestRepairOrphans(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		debit, credit transfer.MarkerDecision
		a, b          int64
	}{
		"it has happened":                    {transfer.KeepBalance, transfer.PayIn, 40, 60},
		"it has not happened":                {transfer.PayIn, transfer.KeepBalance, 100, 0},
		"the credit was paid in already":     {transfer.KeepBalance, transfer.KeepBalance, 40, 0},
		"only the credit can be vouched for": {transfer.PayIn, transfer.PayIn, 100, 60},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			lose(b, "t")
			report := b.MustAudit()
			require.Equal(t, []audit.Code{audit.OrphanMarker, audit.OrphanMarker}, bank.CodesOf(report))
			for _, f := range report.Findings {
				decision := row.credit
				if f.Account == "a" {
					decision = row.debit
				}
				require.NoError(t, b.RepairMarker(t.Context(), repairOf(f, decision)))
				require.ErrorIs(t, b.RepairMarker(t.Context(), repairOf(f, decision)), transfer.ErrNotRepairable, "there is nothing left to repair")
			}
			require.Empty(t, b.MustAudit().Findings)
			require.Equal(t, bank.Balances(row.a, row.b), b.Balances())
			rec, err := b.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
			require.ErrorIs(t, err, transfer.ErrIDConflict)
			require.Equal(t, "repaired", rec.Failure.Code)
			require.Contains(t, rec.Failure.Message, "a test")
			require.Equal(t, bank.Balances(row.a, row.b), b.Balances())
		})
	}
}

// Markers of final transfers are removed, and markers where the transfer has no leg.
// The transfer's document stays as it is.
func TestRepairOtherMarkers(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0, 5)
	b.MustMove("done", 10)
	mustFail(b, "failed")
	b.LeavePrepared("live", 20)
	b.SetField("accounts", "b", "pending.done", int64(10))
	b.SetField("accounts", "a", "pending.failed", int64(-7))
	b.SetField("accounts", "c", "pending.live", int64(3))
	report := b.MustAudit()
	require.Equal(t, []audit.Code{audit.FinalMarker, audit.FinalMarker, audit.ForeignMarker}, bank.CodesOf(report))
	for _, f := range report.Findings {
		require.NoError(t, b.RepairMarker(t.Context(), repairOf(f, transfer.PayIn)))
	}
	require.Empty(t, b.MustAudit().Findings)
	b.RecoverAll()
	require.Equal(t, map[string]int64{"a": 77, "b": 40, "c": 8}, b.Balances())
	rec, err := b.Get(t.Context(), "done")
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
}

// A marker that has changed since the audit is left alone, and the error says so.
func TestRepairRefuses(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.LeavePrepared("live", 60)
	b.SetField("accounts", "a", "pending.ghost", int64(-5))
	repair := func(account, id string, amount int64) transfer.MarkerRepair {
		return transfer.MarkerRepair{Account: account, TransferID: id, Amount: transfer.Units(amount), Decision: transfer.PayIn}
	}
	undecided := repair("a", "ghost", -5)
	undecided.Decision = 0
	elsewhere := repair("a", "ghost", -5)
	elsewhere.Ledger = "nowhere"
	for name, row := range map[string]struct {
		repair transfer.MarkerRepair
		want   error
	}{
		"its transfer is under way":   {repair("a", "live", -60), transfer.ErrNotRepairable},
		"another amount":              {repair("a", "ghost", -6), transfer.ErrNotRepairable},
		"the other sign":              {repair("a", "ghost", 5), transfer.ErrNotRepairable},
		"no such marker":              {repair("b", "ghost", -5), transfer.ErrNotRepairable},
		"no such account":             {repair("z", "ghost", -5), transfer.ErrAccountNotFound},
		"no decision":                 {undecided, transfer.ErrInvalidRequest},
		"no such ledger":              {elsewhere, transfer.ErrInvalidRequest},
		"no ID":                       {repair("a", "", -5), transfer.ErrInvalidRequest},
		"no amount that can be moved": {repair("a", "ghost", 1<<60), transfer.ErrInvalidRequest},
	} {
		require.ErrorIs(t, b.RepairMarker(t.Context(), row.repair), row.want, name)
	}
	b.SetField("accounts", "a", "balance", int64(math.MaxInt64))
	require.ErrorIs(t, b.RepairMarker(t.Context(), repair("a", "ghost", -5)), transfer.ErrOverflow)
	b.SetField("accounts", "a", "balance", 40.0)
	require.ErrorIs(t, b.RepairMarker(t.Context(), repair("a", "ghost", -5)), transfer.ErrAmountKind)
	b.SetField("accounts", "a", "balance", int64(1)<<62)
	require.NoError(t, b.RepairMarker(t.Context(), repair("a", "ghost", -5)))
	b.RequireBalance("a", 1<<62+5)
	b.SetField("accounts", "a", "balance", int64(45))
	b.RecoverAll()
	require.Equal(t, bank.Balances(45, 60), b.Balances())
}

// A marker that changes after the repair's last read stays.
func TestRepairIsGuardedByTheAmount(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.SetField("accounts", "a", "pending.ghost", int64(-5))
	w := &bank.Wire{Is: bank.Settles.Selector(), OnStrike: func() { b.SetField("accounts", "a", "pending.ghost", int64(-6)) }} // the removal
	err := b.NewCoordinator(b.Through(w.Client())).RepairMarker(t.Context(), transfer.MarkerRepair{
		Account: "a", TransferID: "ghost", Amount: transfer.Units(-5), Decision: transfer.PayIn,
	})
	require.True(t, w.HasStruck())
	require.ErrorIs(t, err, transfer.ErrNotRepairable)
	require.EqualValues(t, 100, balanceOf(b, "a"))
}

// If the answer to the removal is lost, and its fence is gone at the next read, nothing
// shows which process has removed the marker.
func TestRepairInDoubt(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.SetField("accounts", "a", "pending.ghost", int64(-5))
	w := &bank.Wire{Is: bank.Settles.Selector(), What: bank.AnswerLost}
	fenced := event.CommandMonitor{Failed: func(_ context.Context, e *event.CommandFailedEvent) {
		if e.CommandName == "update" {
			b.SetField("accounts", "a", "fence", bson.NewObjectID())
		}
	}}
	err := b.NewCoordinator(b.Through(w.Client().SetMonitor(&fenced))).RepairMarker(t.Context(), transfer.MarkerRepair{
		Account: "a", TransferID: "ghost", Amount: transfer.Units(-5), Decision: transfer.PayIn,
	})
	require.ErrorIs(t, err, transfer.ErrInDoubt)
	require.EqualValues(t, 105, balanceOf(b, "a"))
	require.Empty(t, b.MustAudit().Findings)
}

// A prepare of a lost transfer that arrives after the repair doesn't match, because the
// fence has changed.
func TestRepairRefusesLatePrepares(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	w := &bank.Wire{
		Is: bank.Decision.Selector(), What: bank.Lost, Die: true, OnDeath: cancel,
		AlsoAt: map[bank.Step]bank.Fault{bank.Prepares: bank.Held},
	}
	c := b.NewCoordinator(b.Through(w.Client()))
	_, err := c.Transfer(ctx, bank.Move("t", "a", "b", 60))
	bank.RequireUnended(t, err)
	bank.Kill(c)
	b.Remove("transfers", "t")
	report := b.MustAudit()
	require.Len(t, report.Findings, 2)
	for _, f := range report.Findings {
		decision := transfer.KeepBalance
		if f.Account == "a" {
			decision = transfer.PayIn
		}
		require.NoError(t, b.RepairMarker(t.Context(), repairOf(f, decision)))
	}
	w.Deliver(t)
	require.Empty(t, b.MustAudit().Findings)
	require.Equal(t, bank.Balances(100, 0), b.Balances())
}

// A request with the ID of a lost transfer races with the repair of its marker.
// Either the request takes the marker over and the transfer happens, or the marker is
// repaired and the request is refused.
// Both together would duplicate the money.
// Each runs as a whole before each command of the other.
func TestRepairRacesWithTheRequest(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	request := func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Transfer(ctx, bank.Move("t", "a", "b", 60))
		if err == nil {
			b.UntilSuccess(c, "t")
		}
		return err
	}
	repair := func(ctx context.Context, c *transfer.Coordinator) error {
		return c.RepairMarker(ctx, transfer.MarkerRepair{
			Account: "a", TransferID: "t", Amount: transfer.Units(-60), Decision: transfer.PayIn,
		})
	}
	happened := map[bool]int{}
	for _, repairFirst := range []bool{false, true} {
		outer, inner := repair, request
		if repairFirst {
			outer, inner = request, repair
		}
		for at, struck := 0, true; struck; at++ {
			require.Less(t, at, 20)
			b.Renew(t, 40, 0)
			b.SetField("accounts", "a", "pending.t", int64(-60)) // as a prepare has left it
			var innerErr error
			w := &bank.Wire{At: at, OnStrike: func() { innerErr = inner(t.Context(), b.Coordinator) }}
			outerErr := outer(t.Context(), b.NewCoordinator(b.Through(w.Client())))
			if struck = w.HasStruck(); !struck {
				break
			}
			moved, repaired := innerErr, outerErr
			if repairFirst {
				moved, repaired = outerErr, innerErr
			}
			happened[moved == nil]++
			if moved == nil {
				require.ErrorIs(t, repaired, transfer.ErrNotRepairable)
				require.Equal(t, bank.Balances(40, 60), b.Balances())
			} else {
				require.ErrorIs(t, moved, transfer.ErrIDConflict)
				require.NoError(t, repaired)
				require.Equal(t, bank.Balances(100, 0), b.Balances())
			}
			require.Empty(t, b.MustAudit().Findings)
		}
	}
	require.GreaterOrEqual(t, happened[true], 4, "the request was first")
	require.GreaterOrEqual(t, happened[false], 4, "the repair was first")
}

// If several operators decide differently, one decision is carried out.
func TestRacingRepairs(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	for n := range 20 {
		id := fmt.Sprint("ghost", n)
		b.SetField("accounts", "a", "pending."+id, int64(-1))
		before := balanceOf(b, "a")
		errs := make([]error, 4)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() {
				errs[i] = b.RepairMarker(t.Context(), transfer.MarkerRepair{
					Account: "a", TransferID: id, Amount: transfer.Units(-1), Decision: transfer.MarkerDecision(1 + i%2),
				})
			})
		}
		all.Wait()
		paid, won := int64(0), 0
		for i, err := range errs {
			if err == nil {
				won++
				paid = int64(i % 2)
				continue
			}
			require.ErrorIs(t, err, transfer.ErrNotRepairable)
		}
		require.Equal(t, 1, won)
		require.Equal(t, before+paid, balanceOf(b, "a"))
	}
	require.Empty(t, b.MustAudit().Findings)
}

func balanceOf(b *bank.Bank, id string) int64 {
	b.T.Helper()
	account, err := b.GetAccount(b.T.Context(), id)
	require.NoError(b.T, err)
	return bank.Units(b.T, account.Balance)
}

// A repair is made once, whatever happens to its messages.
// Its caller gets the true outcome or is left in doubt.
func TestEveryMessageOfARepairMayFail(t *testing.T) {
	t.Parallel()
	for _, what := range []bank.Fault{bank.Lost, bank.AnswerLost, bank.Held} {
		for _, die := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, died %t", what, die), func(t *testing.T) {
				t.Parallel()
				at, b := 0, bank.NewBare(t)
				for strikeRepair(t, b, &bank.Wire{At: at, What: what, Die: die}) {
					at++
					require.Less(t, at, 20)
				}
				require.GreaterOrEqual(t, at, 4, "the two looks at the transfer, the insert, and the removal")
			})
		}
	}
}

// strikeRepair repairs a marker over a wire, and again if its process has died.
// It reports whether the fault has struck.
func strikeRepair(t *testing.T, b *bank.Bank, w *bank.Wire) bool {
	t.Helper()
	b.Renew(t, 100, 0)
	story := fmt.Sprintf("%s, at command %d, died %t", w.What, w.At, w.Die)
	b.SetField("accounts", "a", "pending.ghost", int64(-5))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	w.OnDeath = cancel
	repair := transfer.MarkerRepair{Account: "a", TransferID: "ghost", Amount: transfer.Units(-5), Decision: transfer.PayIn}
	err := b.NewCoordinator(b.Through(w.Client())).RepairMarker(ctx, repair)
	if w.Die && w.HasStruck() {
		require.Error(t, err, story)
		if again := b.RepairMarker(t.Context(), repair); again != nil {
			require.ErrorIs(t, again, transfer.ErrNotRepairable, story)
			require.ErrorIs(t, err, transfer.ErrInDoubt, story)
		}
	} else {
		require.NoError(t, err, story)
	}
	require.Equal(t, bank.Balances(105, 0), b.Balances(), story)
	w.Deliver(t)
	require.Equal(t, bank.Balances(105, 0), b.Balances(), story)
	require.Empty(t, b.MustAudit().Findings, story)
	return w.HasStruck()
}

// Recovery finds a transfer without its flag once the flag is repaired.
// The repair takes the flag from a final transfer.
func TestRepairOpen(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.LeaveRecorded("t", 60)
	b.MustMove("done", 10)
	b.MustSubmit("waiting")
	unsetField(b, "transfers", "t", "open")
	unsetField(b, "transfers", "waiting", "open")
	b.SetField("transfers", "done", "open", true)
	c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0))
	report, err := c.Recover(t.Context())
	require.NoError(t, err)
	require.Zero(t, report.Succeeded)
	for _, id := range []string{"t", "waiting", "done", "t"} {
		require.NoError(t, b.RepairOpen(t.Context(), id))
	}
	require.Empty(t, b.MustAudit().Findings)
	b.RecoverAll()
	b.CancelWaiting()
	require.ErrorIs(t, b.RepairOpen(t.Context(), "nothing"), transfer.ErrTransferNotFound)
	require.ErrorIs(t, b.RepairOpen(t.Context(), ""), transfer.ErrInvalidRequest)
	b.Insert("transfers", bson.M{"_id": "odd", "state": "Frozen", "open": true})
	require.ErrorIs(t, b.RepairOpen(t.Context(), "odd"), transfer.ErrNotRepairable)
	b.Remove("transfers", "odd")
	b.CheckBooks(bank.Balances(100, 0))
}

// A final transfer whose state was set back by hand moves nothing again.
// Recovery leaves it alone. The flag that would make recovery find it is not repaired
// until the state is.
// The same holds for the flag of an unfinished transfer that was made final by hand.
func TestRepairOpenTrustsNoStateThatWasChanged(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.LeavePrepared("under way", 60)
	for _, state := range []string{"Success", "Fail"} {
		b.SetField("transfers", "under way", "state", state)
		require.ErrorIs(t, b.RepairOpen(t.Context(), "under way"), transfer.ErrNotRepairable, state)
	}
	b.SetField("transfers", "under way", "state", "Preparing")
	b.RecoverAll()

	_, err := b.Transfer(t.Context(), bank.Move("fail", "a", "b", 60))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	b.SetField("accounts", "a", "balance", int64(200))
	b.MustMove("success", 60)
	for id, states := range map[string][]string{
		"success": {"Initiated", "Preparing", "Rollback", "Fail"}, "fail": {"Initiated", "Preparing", "Committed", "Success"},
	} {
		final, err := b.Get(t.Context(), id)
		require.NoError(t, err)
		for _, state := range states {
			b.SetField("transfers", id, "state", state)
			require.ErrorIs(t, b.RepairOpen(t.Context(), id), transfer.ErrNotRepairable, "%s as %s", id, state)
			b.SetField("transfers", id, "open", true)
			_, err := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0)).Recover(t.Context())
			require.NoError(t, err)
			rec, err := b.Get(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, state, string(rec.State), "recovery leaves it alone")
			unsetField(b, "transfers", id, "open")
		}
		b.SetField("transfers", id, "state", string(final.State))
		require.NoError(t, b.RepairOpen(t.Context(), id))
	}
	require.Equal(t, bank.Balances(140, 120), b.Balances())
	require.Empty(t, b.MustAudit().Findings)
}

// A refused repair changes nothing: a misspelt ID is not used up, and no record is made
// of a transfer that never existed.
func TestRefusedRepairTakesNoID(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.SetField("accounts", "a", "pending.ghost", int64(-5))
	repair := transfer.MarkerRepair{
		Account: "a", TransferID: "ghost", Amount: transfer.Units(-5), Decision: transfer.KeepBalance, Reason: "a test",
	}
	misspelt, other, elsewhere, nowhere := repair, repair, repair, repair
	misspelt.TransferID, other.Amount, elsewhere.Account, nowhere.Account = "host", transfer.Units(-6), "b", "z"
	for _, r := range []transfer.MarkerRepair{misspelt, other, elsewhere} {
		require.ErrorIs(t, b.RepairMarker(t.Context(), r), transfer.ErrNotRepairable)
	}
	require.ErrorIs(t, b.RepairMarker(t.Context(), nowhere), transfer.ErrAccountNotFound)
	for _, id := range []string{"ghost", "host"} {
		_, err := b.Get(t.Context(), id)
		require.ErrorIs(t, err, transfer.ErrTransferNotFound, id)
	}
	require.NoError(t, b.RepairMarker(t.Context(), repair))
	b.MustMove("host", 60)
	b.CheckBooks(bank.Balances(100, 0))
}

// An account that was stored with an empty array of markers, or with null, can be used
// once that is repaired.
// An array with elements stays.
func TestRepairPending(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.SetField("accounts", "a", "pending", bson.A{})
	_, err := b.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.ErrorIs(t, err, transfer.ErrAmountKind)
	for range 2 {
		require.NoError(t, b.RepairPending(t.Context(), "", "a"))
	}
	b.MustMove("u", 60)
	b.SetField("accounts", "a", "pending", nil)
	_, err = b.Transfer(t.Context(), bank.Move("v", "b", "a", 20))
	require.ErrorIs(t, err, transfer.ErrUnwritable)
	for range 2 {
		require.NoError(t, b.RepairPending(t.Context(), "", "a"))
	}
	require.Empty(t, b.MustAudit().Findings)
	b.MustMove("w", 20)
	for _, value := range []any{bson.A{int64(-5)}, bson.A{bson.A{}}, bson.A{nil}, "t"} {
		b.SetField("accounts", "a", "pending", value)
		require.ErrorIs(t, b.RepairPending(t.Context(), "", "a"), transfer.ErrNotRepairable)
	}
	require.ErrorIs(t, b.RepairPending(t.Context(), "", "z"), transfer.ErrAccountNotFound)
	require.ErrorIs(t, b.RepairPending(t.Context(), "nowhere", "a"), transfer.ErrInvalidRequest)
	b.SetField("accounts", "a", "pending", bson.M{})
	require.ErrorIs(t, b.RepairPending(t.Context(), "", ""), transfer.ErrInvalidRequest)
	b.CheckBooks(bank.Balances(100, 0))
}

// A live transfer's marker is never removed: not by a service with another name for the
// ledger, and not while the stored legs differ from the requested ones.
func TestRepairSparesTheLiving(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0, 0)
	b.MustHold("h", 60, time.Hour)
	marker := transfer.MarkerRepair{Account: "a", TransferID: "h", Amount: transfer.Units(-60), Decision: transfer.PayIn}

	other := b.NewCoordinator(b.DB, transfer.WithAccounts(b.DB.Collection("own")), transfer.WithLedger("main", b.DB.Collection("accounts")))
	named := marker
	named.Ledger = "main"
	require.ErrorIs(t, other.RepairMarker(t.Context(), named), transfer.ErrNotRepairable)

	b.SetField("transfers", "h", "legs.0.account", "c")
	require.ErrorIs(t, b.RepairMarker(t.Context(), marker), transfer.ErrNotRepairable)
	b.SetField("transfers", "h", "legs.0.account", "a")
	require.ErrorIs(t, b.RepairMarker(t.Context(), marker), transfer.ErrNotRepairable)

	_, err := b.Post(t.Context(), "h")
	require.NoError(t, err)
	b.UntilSuccess(b.Coordinator, "h")
	require.Equal(t, bank.Balances(40, 60, 0), b.Balances())
	b.CheckBooks(bank.Balances(100, 0, 0))
}
