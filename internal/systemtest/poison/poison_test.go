package poison

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
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

// poison spoils one account of a stalled transfer of 60 from a, which had 100, to b.
// It returns the function that repairs it.
type poison struct {
	account string
	spoil   func(b *bank.Bank) (repair func())
}

// set changes a field of an account behind the library's back, and returns the function
// that restores it.
// The field must not change meanwhile.
func set(account, field string, value any) func(b *bank.Bank) func() {
	return func(b *bank.Bank) func() {
		accounts := b.DB.Collection("accounts")
		var before bson.M
		update := func(value any) bson.D { return bson.D{{Key: "$set", Value: bson.D{{Key: field, Value: value}}}} }
		require.NoError(b.T, accounts.FindOneAndUpdate(b.T.Context(), bson.D{{Key: "_id", Value: account}}, update(value)).Decode(&before))
		return func() {
			_, err := accounts.UpdateByID(b.T.Context(), account, update(before[field]))
			require.NoError(b.T, err)
		}
	}
}

// recorded leaves a transfer behind whose process died when the commit was recorded, and
// nothing was paid.
func recorded(b *bank.Bank) { b.T.Helper(); b.StallAt("t", bank.Settles, bank.Lost, 60) }

// prepared leaves a transfer behind that is committed by fact.
func prepared(b *bank.Bank) { b.T.Helper(); b.StallAt("t", bank.Decision, bank.Lost, 60) }

// half leaves a transfer behind that is prepared at the payer.
func half(b *bank.Bank) { b.T.Helper(); b.StallHalf("t", 60) }

// A transfer that can't be finished, committed or rolled back, stays as it is, with its
// reason.
// The reason is returned, listed and logged.
// Once the cause is repaired a worker finishes the transfer, to the unit.
func TestPoison(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		died   func(b *bank.Bank)
		policy transfer.StallPolicy
		state  transfer.State // in which it is stuck
		poison poison
		code   string
	}{
		"recorded, credit deleted": {recorded, transfer.Resume, transfer.StateCommitted, poison{"b", bank.Deleted("b")}, "accountNotFound"},
		"recorded, debit deleted":  {recorded, transfer.Resume, transfer.StateCommitted, poison{"a", bank.Deleted("a")}, "accountNotFound"},
		"recorded, balance a text": {recorded, transfer.Resume, transfer.StateCommitted, poison{"b", set("b", "balance", "x")}, "unwritable"},
		"recorded, balance null":   {recorded, transfer.Resume, transfer.StateCommitted, poison{"b", set("b", "balance", nil)}, "unwritable"},
		"recorded, balance [1]": {recorded, transfer.Resume, transfer.StateCommitted,
			poison{"b", set("b", "balance", bson.A{1})}, "unwritable"},
		"recorded, validated":      {recorded, transfer.Resume, transfer.StateCommitted, poison{"b", bank.Forbidden("b")}, "unwritable"},
		"prepared, balance a text": {prepared, transfer.RollBack, transfer.StateCommitted, poison{"b", set("b", "balance", "x")}, "unwritable"},
		"prepared, validated":      {prepared, transfer.RollBack, transfer.StateCommitted, poison{"b", bank.Forbidden("b")}, "unwritable"},
		"half prepared, balance a text": {half, transfer.RollBack, transfer.StateRollback,
			poison{"a", set("a", "balance", "x")}, "unwritable"},
		"half prepared, debit validated": {half, transfer.RollBack, transfer.StateRollback, poison{"a", bank.Forbidden("a")}, "unwritable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			c.died(b)
			repair := c.poison.spoil(b)
			var log bank.Logged
			atOnce := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0), transfer.WithStallPolicy(c.policy), transfer.WithLogger(slog.New(&log)))
			for attempt := 1; attempt <= 2; attempt++ {
				report, err := atOnce.Recover(t.Context())
				require.NoError(t, err)
				require.Equal(t, transfer.RecoveryReport{Found: 1, Stuck: 1}, report)
				require.Equal(t, attempt, log.Count("a transfer is stuck"))
				b.RequireStuck("t", c.state, c.poison.account, c.code, attempt)
			}
			rec, err := atOnce.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
			requireStuckAnswer(t, c.state, c.poison.account, rec, err)
			rec, err = b.Transfer(t.Context(), bank.Move("t", "a", "b", 60)) // it is too early for another try
			requireStuckAnswer(t, c.state, c.poison.account, rec, err)
			rec, err = b.Cancel(t.Context(), "t", "too late")
			if c.state == transfer.StateRollback {
				requireStuckAnswer(t, c.state, c.poison.account, rec, err)
			} else {
				require.ErrorIs(t, err, transfer.ErrAlreadyCommitted)
			}

			repair()
			end := bank.InBackground(t, b.NewCoordinator(b.DB, transfer.WithStallThreshold(20*time.Millisecond)))
			rec, err = b.Wait(t.Context(), "t")
			end()
			if c.state == transfer.StateCommitted {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, transfer.ErrCancelled)
			}
			require.Nil(t, rec.Stuck)
			require.Empty(t, b.IDs(transfer.Query{Stuck: true}))
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// requireStuckAnswer requires that a call for a stuck transfer returns what is known of
// its outcome, and the cause, at once.
func requireStuckAnswer(t *testing.T, state transfer.State, account string, rec transfer.Record, err error) {
	t.Helper()
	want, outcome := transfer.ErrUnsettled, transfer.Moved
	switch state {
	case transfer.StateRollback:
		want, outcome = transfer.ErrCancelled, transfer.Failed
	case transfer.StatePreparing:
		want, outcome = transfer.ErrInDoubt, transfer.InDoubt
	}
	require.ErrorIs(t, err, want)
	require.Equal(t, outcome, transfer.OutcomeOf(err))
	require.ErrorContains(t, err, fmt.Sprintf("account %q", account))
	require.Equal(t, state, rec.State)
	require.NotNil(t, rec.Stuck)
	require.Equal(t, account, rec.Stuck.Account)
}

// A transfer can't be rolled back as long as the only account without a trace takes no
// fence: it is stuck before any decision, and nobody hears that it has failed.
// It is rolled back once there is a fence.
func TestPoisonedFence(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	half(b)
	repair := bank.Forbidden("b")(b)
	c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0), transfer.WithStallPolicy(transfer.RollBack))
	report, err := c.Recover(t.Context())
	require.NoError(t, err)
	require.Equal(t, transfer.RecoveryReport{Found: 1, Stuck: 1}, report)
	b.RequireStuck("t", transfer.StatePreparing, "b", "unwritable", 1)
	rec, err := c.Cancel(t.Context(), "t", "no longer wanted")
	requireStuckAnswer(t, transfer.StatePreparing, "b", rec, err)
	rec, err = c.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	requireStuckAnswer(t, transfer.StatePreparing, "b", rec, err)
	require.Empty(t, b.MustAudit().Findings)
	repair()
	report, err = c.Recover(t.Context())
	require.NoError(t, err)
	require.Equal(t, transfer.RecoveryReport{Found: 1, Failed: 1}, report)
	b.CheckBooks(bank.Balances(100, 0))
}

// A trace was removed by hand from one account while the other one was paid already. That
// looks as if nothing had been prepared, and the transfer is rolled back; but what was
// paid is not taken back. It is stuck, and says so, until someone has set that right.
func TestDoneMarkOfWhatIsRolledBack(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.LeaveTraces("t", 60, "Preparing", bank.Unprepared, bank.Done)
	c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0), transfer.WithStallPolicy(transfer.RollBack))
	report, err := c.Recover(t.Context())
	require.NoError(t, err)
	require.Equal(t, transfer.RecoveryReport{Found: 1, Stuck: 1}, report)
	b.RequireStuck("t", transfer.StateRollback, "b", "unwritable", 1)
	rec, err := c.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	requireStuckAnswer(t, transfer.StateRollback, "b", rec, err)
	require.Contains(t, rec.Stuck.Message, "done mark")
	require.Equal(t, []audit.Code{audit.WrongDone}, bank.CodesOf(b.MustAudit()))
	b.Change("accounts", "b", bson.M{"$unset": bson.M{"pending.t%": ""}, "$inc": bson.M{"balance": -60}})
	report, err = c.Recover(t.Context())
	require.NoError(t, err)
	require.Equal(t, transfer.RecoveryReport{Found: 1, Failed: 1}, report)
	b.CheckBooks(bank.Balances(100, 0))
}

// The transfer ends although its account looks poisoned.
func TestNoPoison(t *testing.T) {
	t.Parallel()
	claimed := func(b *bank.Bank) { b.T.Helper(); b.StallAt("t", bank.Prepares, bank.Lost, 60) }
	for name, c := range map[string]struct {
		died   func(b *bank.Bank)
		policy transfer.StallPolicy
		poison poison
		ends   transfer.State
		repair bool
	}{
		"recorded, credit closed":     {recorded, transfer.Resume, poison{"b", set("b", "closed", true)}, transfer.StateSuccess, false},
		"prepared, credit closed":     {prepared, transfer.RollBack, poison{"b", set("b", "closed", true)}, transfer.StateSuccess, false},
		"prepared, debit closed":      {prepared, transfer.RollBack, poison{"a", set("a", "closed", true)}, transfer.StateSuccess, false},
		"half prepared, debit closed": {half, transfer.RollBack, poison{"a", set("a", "closed", true)}, transfer.StateFail, false},
		"half prepared, credit closed": {half, transfer.RollBack,
			poison{"b", set("b", "closed", true)}, transfer.StateFail, false},
		"recorded, credit frozen":     {recorded, transfer.Resume, poison{"b", set("b", "frozen", true)}, transfer.StateSuccess, false},
		"prepared, credit frozen":     {prepared, transfer.RollBack, poison{"b", set("b", "frozen", true)}, transfer.StateSuccess, false},
		"half prepared, debit frozen": {half, transfer.RollBack, poison{"a", set("a", "frozen", true)}, transfer.StateFail, false},
		"half prepared, credit frozen": {half, transfer.RollBack,
			poison{"b", set("b", "frozen", true)}, transfer.StateFail, false},
		"resumed, and refused for a frozen one": {claimed, transfer.Resume, poison{"b", set("b", "frozen", true)}, transfer.StateFail, false},
		"recorded, other currency": {recorded, transfer.Resume,
			poison{"b", set("b", "currency", "USD")}, transfer.StateSuccess, false},
		"recorded, debited balance a text": {recorded, transfer.Resume,
			poison{"a", set("a", "balance", "none")}, transfer.StateSuccess, true},
		"half prepared, credited balance a text": {half, transfer.RollBack,
			poison{"b", set("b", "balance", "none")}, transfer.StateFail, true},
		"resumed, and refused for a closed one": {claimed, transfer.Resume, poison{"b", set("b", "closed", true)}, transfer.StateFail, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			c.died(b)
			repair := c.poison.spoil(b)
			report, err := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0), transfer.WithStallPolicy(c.policy)).Recover(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, report.Succeeded+report.Failed, "%+v", report)
			rec, err := b.Get(t.Context(), "t")
			require.NoError(t, err)
			require.Equal(t, c.ends, rec.State)
			require.Nil(t, rec.Stuck)
			if c.repair {
				repair()
			}
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// A rolled back transfer counts a deleted document as done, since it owes nothing to it.
func TestRollBackWithADeletedAccount(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.StallHalf("t", 60)
	b.Remove("accounts", "b")
	report := b.RecoverAll(transfer.WithStallPolicy(transfer.RollBack))
	require.Equal(t, 1, report.Failed)
	require.Empty(t, b.IDs(transfer.Query{Stuck: true}))
	b.CheckBooks(bank.Balances(100))
}

// A committed payment whose order was deleted is stuck at the order, with the money on
// its way.
// It ends once the order is back.
func TestPoisonedEffect(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t, 100, 0)
	b.LeavePayment("p", "o-1", 60, "Committed", bank.Reserved)
	var order bson.Raw
	require.NoError(t, b.DB.Collection("orders").FindOneAndDelete(t.Context(), bson.D{{Key: "_id", Value: "o-1"}}).Decode(&order))
	c := b.NewCoordinator(b.DB, append(bank.Orders(b.DB), transfer.WithStallThreshold(0))...)
	report, err := c.Recover(t.Context())
	require.NoError(t, err)
	require.Equal(t, transfer.RecoveryReport{Found: 1, Stuck: 1}, report)
	rec, err := b.Get(t.Context(), "p")
	require.NoError(t, err)
	require.Equal(t, &transfer.Failure{
		Code: "requirementFailed", Ledger: "orders", Account: "o-1", Message: `document "o-1" of "orders" is gone`,
	}, rec.Stuck)
	b.Insert("orders", order)
	require.Equal(t, 1, b.RecoverAll(bank.Orders(b.DB)...).Succeeded)
	b.RequireOrder("o-1", "paid", false)
	b.CheckBooks(bank.Balances(100, 0))
}

// A process tries to finish a transfer that can't be finished, and may die at each
// message, even at the one that stores the reason.
// Once the cause is repaired, the transfer is finished, and messages that arrive later
// change nothing.
func TestEveryMessageOfPoisonMayFail(t *testing.T) {
	t.Parallel()
	for _, what := range []bank.Fault{bank.Lost, bank.AnswerLost, bank.Held} {
		t.Run(string(what), func(t *testing.T) {
			t.Parallel()
			noted, b := 0, bank.NewBare(t)
			for point, struck := 0, true; struck; point++ {
				b.Renew(t, 100, 0)
				b.StallAt("t", bank.Settles, bank.Lost, 60)
				repair := bank.Deleted("b")(b)
				w := &bank.Wire{At: point, What: what, Die: true}
				c := b.NewCoordinator(b.Through(w.Client()), transfer.WithStallThreshold(0))
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				w.OnDeath = cancel
				_, _ = c.Recover(ctx)
				cancel()
				bank.Kill(c)
				struck = w.HasStruck()
				noted += len(b.IDs(transfer.Query{Stuck: true}))
				repair()
				b.RecoverAll()
				final := b.Raw("transfers")
				w.Deliver(t)
				require.Equal(t, final, b.Raw("transfers"), "message %d of %v arrives late", point, w.Commands)
				require.NotContains(t, final[0], "stuck")
				b.CheckBooks(bank.Balances(100, 0))
			}
			require.Equal(t, what == bank.AnswerLost, noted == 2, "of all messages the last one says why")
		})
	}
}

// The execution that committed a transfer stores why it can't be finished, even if its
// caller got an outcome long ago.
func TestPoisonIsNotedInTheBackground(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	var log bank.Logged
	restore := forbidSettling(b)
	c := b.NewCoordinator(b.DB, transfer.WithReturnAt(transfer.AtCommit), transfer.WithLogger(slog.New(&log)))
	rec, err := c.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.NoError(t, err)
	require.Equal(t, transfer.StateCommitted, rec.State)
	require.NoError(t, c.Close(t.Context()), "which waits for what is done in the background")
	b.RequireStuck("t", transfer.StateCommitted, "b", "unwritable", 0)
	require.Equal(t, 1, log.Count("a transfer is stuck"))
	restore()
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
}

// forbidSettling makes b accept markers and refuse money.
func forbidSettling(b *bank.Bank) func() {
	validate := func(condition bson.M) {
		command := bson.D{{Key: "collMod", Value: "accounts"}, {Key: "validator", Value: condition}}
		require.NoError(b.T, b.DB.RunCommand(b.T.Context(), command).Err())
	}
	validate(bson.M{"$or": bson.A{bson.M{"_id": bson.M{"$ne": "b"}}, bson.M{"balance": 0}}})
	return func() { validate(bson.M{}) }
}

// A transfer that can't be finished is tried ever more rarely, by sweeps and by repeated
// calls.
// The calls return the reason when their time is up.
func TestPoisonIsTriedEverMoreRarely(t *testing.T) {
	t.Parallel()
	const (
		threshold = 10 * time.Minute
		margin    = 5 * time.Minute // however busy the machine is
	)
	b := bank.New(t, 100, 0)
	b.StallAt("t", bank.Settles, bank.Lost, 60)
	repair := bank.Deleted("b")(b)
	c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(threshold))
	for attempts := range 9 {
		for _, due := range []bool{false, true} {
			silence := threshold<<min(attempts, 6) - margin
			if due {
				silence += 2 * margin
			}
			b.Silence("t", silence)
			report, err := c.Recover(t.Context())
			require.NoError(t, err)
			require.Equal(t, due, report == transfer.RecoveryReport{Found: 1, Stuck: 1}, "attempt %d, after %s: %+v", attempts, silence, report)
		}
	}
	b.Silence("t", 63*threshold)
	waitInVain(b, transfer.WithStallThreshold(threshold))
	b.RequireStuck("t", transfer.StateCommitted, "b", "accountNotFound", 9)
	repair()
	b.Silence("t", 64*threshold)
	_, err := c.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.NoError(t, err, "a caller who waits takes it over when its time has come")
	b.CheckBooks(bank.Balances(100, 0))
}

// A call that waits for a stuck transfer returns the reason, even if the end of its
// context cuts a read short.
func TestPoisonIsToldWhenALookIsCutShort(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.StallAt("t", bank.Settles, bank.Lost, 60)
	repair := bank.Deleted("b")(b)
	_, err := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0)).Recover(t.Context())
	require.NoError(t, err)
	waitInVain(b)
	repair()
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
}

// waitInVain waits for a transfer of 60 that is stuck at account b and too young for
// another try.
// It gives up, and requires the reason. A call of Transfer doesn't wait, because its
// outcome is known.
func waitInVain(b *bank.Bank, opts ...transfer.Option) {
	b.T.Helper()
	ctx, cancel := context.WithCancel(b.T.Context())
	defer cancel()
	const seen = 2 // whole transfers, or glances
	var looks atomic.Int32
	monitor := &event.CommandMonitor{
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			if id, _ := e.Reply.Lookup("cursor", "firstBatch", "0", "_id").StringValueOK(); id == "t" {
				looks.Add(1)
			}
		},
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if from, _ := e.Command.Lookup("find").StringValueOK(); from == "transfers" && looks.Load() >= seen {
				cancel()
			}
		},
	}
	c := b.NewCoordinator(b.Through(options.Client().SetMonitor(monitor)), opts...)
	rec, err := c.Wait(ctx, "t")
	require.ErrorIs(b.T, err, context.Canceled)
	requireStuckAnswer(b.T, transfer.StateCommitted, "b", rec, err)
	rec, err = c.Transfer(b.T.Context(), bank.Move("t", "a", "b", 60))
	require.NotErrorIs(b.T, err, context.Canceled)
	requireStuckAnswer(b.T, transfer.StateCommitted, "b", rec, err)
}
