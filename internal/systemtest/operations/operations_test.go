package operations

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// world is the account that pays the opening money, so that each balance is the sum of
// its transfers.
const world = "world"

// newFundedBank returns a bank in which a and b have each been paid units.
func newFundedBank(t *testing.T, units int64) *bank.Bank {
	t.Helper()
	b := bank.New(t, 0, 0).WithIndexes()
	_, err := b.OpenAccount(t.Context(), transfer.Account{ID: world, NoFloor: true})
	require.NoError(t, err)
	for _, to := range []string{"a", "b"} {
		_, err := b.Transfer(t.Context(), bank.Move("deposit-"+to, world, to, units))
		require.NoError(t, err)
	}
	return b
}

// dump copies all documents of collections as of one moment.
func dump(t *testing.T, db *mongo.Database, collections ...string) map[string][]bson.Raw {
	t.Helper()
	copied := map[string][]bson.Raw{}
	for _, name := range collections {
		cursor, err := db.Collection(name).Find(t.Context(), bson.D{})
		require.NoError(t, err)
		var documents []bson.Raw
		require.NoError(t, cursor.All(t.Context(), &documents))
		copied[name] = documents
	}
	return copied
}

// putBack restores the collections.
func putBack(t *testing.T, db *mongo.Database, copied map[string][]bson.Raw) {
	t.Helper()
	for name, documents := range copied {
		_, err := db.Collection(name).DeleteMany(t.Context(), bson.D{})
		require.NoError(t, err)
		_, err = db.Collection(name).InsertMany(t.Context(), documents)
		require.NoError(t, err)
	}
}

// moved returns the balance that the successful transfers give an account opened with
// zero.
func moved(t *testing.T, c *transfer.Coordinator, ledger, account string) (sum int64) {
	t.Helper()
	query := transfer.Query{Ledger: ledger, Account: account, States: []transfer.State{transfer.StateSuccess}}
	for rec, err := range c.List(t.Context(), query) {
		require.NoError(t, err)
		for _, leg := range rec.Legs {
			if leg.Ledger == ledger && leg.Account == account {
				sum += bank.Units(t, leg.Amount)
			}
		}
	}
	return sum
}

// cleanAudit requires that an audit finds nothing, and that all money adds up to zero.
func cleanAudit(t *testing.T, c *transfer.Coordinator) {
	t.Helper()
	report, err := c.AuditWith(t.Context(), transfer.AuditOptions{
		Expected: []transfer.ExpectedTotal{{Sum: transfer.Units(0)}},
	})
	require.NoError(t, err)
	require.Empty(t, report.Findings)
}

// Runbook "money is frozen": the account's document names the transfers that hold the
// money.
// Each transfer shows why: it is a hold, or it can't be finished.
func TestFrozenMoneyIsFound(t *testing.T) {
	t.Parallel()
	b := newFundedBank(t, 1000)
	b.MustHold("room-1", 300, time.Hour)
	b.StallAt("order-17", bank.Settles, bank.Lost, 60)
	b.Remove("accounts", "b")
	c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0))
	_, err := c.Recover(t.Context())
	require.NoError(t, err)

	a, err := b.GetAccount(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, int64(640), bank.Units(t, a.Available))
	require.Equal(t, int64(940), bank.Units(t, a.Posted), "the debit of order-17 is settled: b has not got it")
	var document struct{ Pending map[string]int64 }
	byID := bson.D{{Key: "_id", Value: "a"}}
	require.NoError(t, b.DB.Collection("accounts").FindOne(t.Context(), byID).Decode(&document))
	require.Equal(t, map[string]int64{"room-1": -300}, document.Pending)
	var unfinished []string
	for rec, err := range b.List(t.Context(), transfer.Query{
		Account: "a", States: []transfer.State{transfer.StatePreparing, transfer.StateCommitted, transfer.StateRollback},
	}) {
		require.NoError(t, err)
		unfinished = append(unfinished, rec.ID)
		require.Equal(t, rec.ID == "room-1", rec.Hold)
		require.Equal(t, rec.ID == "order-17", rec.Stuck != nil)
	}
	require.Equal(t, []string{"order-17", "room-1"}, unfinished)
}

// Runbook "an account was deleted": its document is written anew by hand.
// The balance comes from what the transfers have moved, and each transfer that waits for
// the account gets its marker.
// Then recovery goes on.
func TestDeletedAccountIsRestoredByHand(t *testing.T) {
	t.Parallel()
	for account, marker := range map[string]int64{"a": -60, "b": 60} {
		t.Run(account, func(t *testing.T) {
			t.Parallel()
			b := newFundedBank(t, 1000)
			_, err := b.Transfer(t.Context(), bank.Move("t1", "a", "b", 25))
			require.NoError(t, err)
			b.StallAt("t2", bank.Settles, bank.Lost, 60)
			b.Remove("accounts", account)
			eager := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0))
			_, err = eager.Recover(t.Context())
			require.NoError(t, err)
			var waiting []string
			for rec, err := range b.List(t.Context(), transfer.Query{Stuck: true}) {
				require.NoError(t, err)
				require.Equal(t, account, rec.Stuck.Account)
				require.Equal(t, transfer.StateCommitted, rec.State)
				waiting = append(waiting, rec.ID)
			}
			require.Equal(t, []string{"t2"}, waiting)

			balance := moved(t, b.Coordinator, "", account)
			if marker < 0 { // the debit is off the balance already
				balance += marker
			}
			b.Insert("accounts", bson.D{
				{Key: "_id", Value: account}, {Key: "balance", Value: balance},
				{Key: "pending", Value: bson.D{{Key: "t2", Value: marker}}}, {Key: "fence", Value: bson.NewObjectID()},
			})
			_, err = eager.Recover(t.Context(), transfer.UntilFinished())
			require.NoError(t, err)
			require.Equal(t, map[string]int64{world: -2000, "a": 915, "b": 1085}, bare(b, "accounts"))
			cleanAudit(t, b.Coordinator)
		})
	}
}

// Runbook "everything is restored to one moment": one Recover finishes the transfers in
// progress at that moment.
// Later transfers are as if they had never been requested.
func TestEverythingIsRestored(t *testing.T) {
	t.Parallel()
	b := newFundedBank(t, 1000)
	b.StallAt("prepared", bank.Decision, bank.Lost, 60)
	b.StallAt("committed", bank.Settles, bank.Lost, 7)
	b.MustHold("held", 30, time.Hour)
	then := dump(t, b.DB, "accounts", "transfers")
	_, err := b.Transfer(t.Context(), bank.Move("later", "a", "b", 500))
	require.NoError(t, err)
	_, err = b.Post(t.Context(), "held")
	require.NoError(t, err)
	b.RecoverAll()
	bank.Kill(b.Coordinator) // every process is stopped before the restore

	putBack(t, b.DB, then)
	b.Coordinator = b.NewCoordinator(b.DB, transfer.WithStallThreshold(0))
	report, err := b.Recover(t.Context(), transfer.UntilFinished())
	require.NoError(t, err)
	require.Equal(t, transfer.RecoveryReport{Found: 2, Succeeded: 2}, report)
	cleanAudit(t, b.Coordinator)
	_, err = b.Get(t.Context(), "later")
	require.ErrorIs(t, err, transfer.ErrTransferNotFound)
	_, err = b.Transfer(t.Context(), bank.Move("later", "a", "b", 500)) // its client repeats the request
	require.NoError(t, err)
	_, err = b.Post(t.Context(), "held")
	require.NoError(t, err)
	require.Equal(t, map[string]int64{world: -2000, "a": 403, "b": 1597}, unmarked(b))
	cleanAudit(t, b.Coordinator)
}

// unmarked is bare, and requires that no marker is left.
func unmarked(b *bank.Bank) map[string]int64 {
	b.T.Helper()
	marked := bson.D{{Key: "pending", Value: bson.D{{Key: "$nin", Value: bson.A{nil, bson.D{}}}}}}
	n, err := b.DB.Collection("accounts").CountDocuments(b.T.Context(), marked)
	require.NoError(b.T, err)
	require.Zero(b.T, n, "markers are left")
	return bare(b, "accounts")
}

// Runbook "one of two clusters is restored", one with accounts: the audit reports the
// damage.
// Markers of final transfers are removed, and each balance is set to what the transfers
// have moved.
func TestOneOfTwoClustersIsRestored(t *testing.T) {
	t.Parallel()
	server := bank.StartServer(t)
	for name, row := range map[string]struct {
		backedUp bank.Trace // of a transfer that was under way
		balance  int64
	}{"with a marker": {bank.Reserved, 1000}, "with a done mark": {bank.Done, 1060}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			restoreOne(bank.NewBranches(t, server, 0, 0), row.backedUp, row.balance)
		})
	}
}

func restoreOne(b *bank.Branches, backedUp bank.Trace, balance int64) {
	t, ctx := b.T, b.T.Context()
	t.Helper()
	_, err := b.OpenAccount(ctx, transfer.Account{ID: world, NoFloor: true})
	require.NoError(t, err)
	pay := func(id, ledger string, units int64) {
		_, err := b.Both.Transfer(ctx, transfer.Request{ID: id, Legs: []transfer.Leg{
			{Account: world, Amount: transfer.Units(-units)}, {Ledger: ledger, Account: "a", Amount: transfer.Units(units)},
		}})
		require.NoError(t, err)
	}
	pay("deposit-here", "", 1000)
	pay("deposit-there", "other", 1000)
	b.LeaveAcross("caught", "Preparing", bank.Reserved, backedUp) // committed, and not recorded
	there := mongotest.Client(t, options.Client().ApplyURI(b.Server.URI())).Database(b.DB.Name())
	then := dump(t, there, "accounts")
	eager := b.NewCoordinator(b.DB, b.Other(), transfer.WithStallThreshold(0))
	_, err = eager.Recover(ctx, transfer.UntilFinished())
	require.NoError(t, err)
	_, err = b.Both.Transfer(ctx, bank.Across("later", 100))
	require.NoError(t, err)
	cleanAudit(t, b.Both)
	bank.Kill(b.Both) // every process is stopped

	putBack(t, there, then)
	zero := transfer.AuditOptions{Expected: []transfer.ExpectedTotal{{Sum: transfer.Units(0)}}}
	found, err := eager.AuditWith(ctx, zero)
	require.NoError(t, err)
	require.Equal(t, []audit.Code{"finalMarker", "wrongTotal"}, bank.CodesOf(found))

	_, err = eager.Recover(ctx, transfer.UntilFinished())
	require.NoError(t, err)
	require.NoError(t, eager.RepairMarker(ctx, transfer.MarkerRepair{
		Ledger: "other", Account: "a", TransferID: "caught", Amount: transfer.Units(60),
		Decision: transfer.KeepBalance, Reason: "the cluster was restored",
	}))
	require.Equal(t, balance, bareIn(b.Bank, there)["a"])
	set := bson.D{{Key: "$set", Value: bson.D{{Key: "balance", Value: moved(t, eager, "other", "a")}}}}
	asItIs := bson.D{{Key: "_id", Value: "a"}, {Key: "balance", Value: balance}, {Key: "pending", Value: bson.D{}}}
	result, err := there.Collection("accounts").UpdateOne(ctx, asItIs, set)
	require.NoError(t, err)
	require.EqualValues(t, 1, result.ModifiedCount)
	require.Equal(t, map[string]int64{"a": 1160}, bareIn(b.Bank, there))
	cleanAudit(t, eager)
}

// bareIn is bare for the accounts of another database.
func bareIn(b *bank.Bank, db *mongo.Database) map[string]int64 {
	b.T.Helper()
	return bare(bank.Over(b.T, db), "accounts")
}

// An idle process costs nothing without Run, and with Run no more than docs/operations.md
// says.
func TestIdleCost(t *testing.T) {
	t.Parallel()
	const span, most = 4 * time.Second, 4
	b := bank.New(t, 100, 0).WithIndexes()
	var commands atomic.Int64
	counting := &event.CommandMonitor{Started: func(context.Context, *event.CommandStartedEvent) { commands.Add(1) }}
	c := b.NewCoordinator(b.Through(options.Client().SetMonitor(counting)))
	_, err := c.Transfer(t.Context(), bank.Move("warm", "a", "b", 1))
	require.NoError(t, err)
	count := func() float64 {
		before := commands.Load()
		timer := time.NewTimer(span)
		<-timer.C
		return float64(commands.Load()-before) / span.Seconds()
	}
	require.LessOrEqual(t, count(), 1.0)
	end := bank.InBackground(t, c)
	defer end()
	count() // it sweeps when it begins
	perSecond := count()
	t.Logf("%.1f commands a second with Run", perSecond)
	require.LessOrEqual(t, perSecond, float64(most))
	require.Positive(t, perSecond)
}
