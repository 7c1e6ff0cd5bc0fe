package transfer_test

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
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
)

// poison spoils one account of a stalled transfer of 60 from a, which had 100, to b, and tells how it is repaired.
type poison struct {
	account string
	spoil   func(b *bank) (repair func())
}

// set changes a field of an account behind the library's back, and returns how that is undone. The field must not change meanwhile.
func set(account, field string, value any) func(b *bank) func() {
	return func(b *bank) func() {
		accounts := b.db.Collection("accounts")
		var before bson.M
		update := func(value any) bson.D { return bson.D{{Key: "$set", Value: bson.D{{Key: field, Value: value}}}} }
		require.NoError(b.t, accounts.FindOneAndUpdate(b.t.Context(), bson.D{{Key: "_id", Value: account}}, update(value)).Decode(&before))
		return func() {
			_, err := accounts.UpdateByID(b.t.Context(), account, update(before[field]))
			require.NoError(b.t, err)
		}
	}
}

// deleted removes an account behind the library's back, and returns how it comes back as it was.
func deleted(account string) func(b *bank) func() {
	return func(b *bank) func() {
		accounts := b.db.Collection("accounts")
		var document bson.Raw
		require.NoError(b.t, accounts.FindOneAndDelete(b.t.Context(), bson.D{{Key: "_id", Value: account}}).Decode(&document))
		return func() { b.insert("accounts", document) }
	}
}

// forbidden lets a validator refuse every change of an account.
func forbidden(account string) func(b *bank) func() {
	return func(b *bank) func() {
		validate := func(condition bson.M) {
			command := bson.D{{Key: "collMod", Value: "accounts"}, {Key: "validator", Value: condition}}
			require.NoError(b.t, b.db.RunCommand(b.t.Context(), command).Err())
		}
		validate(bson.M{"_id": bson.M{"$ne": account}})
		return func() { validate(bson.M{}) }
	}
}

// A transfer that can't be finished, committed or rolled back, stays as it is with its reason, which is told, listed and logged, and is
// finished by a worker, by itself, once the cause is repaired: to the unit.
func TestPoison(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy transfer.StallPolicy // of what died before it was committed
		at     int                  // the command that it died at
		state  transfer.State       // that it is stuck in
		poison poison
		code   string
	}{
		"committed, credit deleted":   {transfer.Resume, 4, transfer.StateCommitted, poison{"b", deleted("b")}, "accountNotFound"},
		"committed, debit deleted":    {transfer.Resume, 4, transfer.StateCommitted, poison{"a", deleted("a")}, "accountNotFound"},
		"committed, balance a text":   {transfer.Resume, 4, transfer.StateCommitted, poison{"b", set("b", "balance", "x")}, "unwritable"},
		"committed, balance null":     {transfer.Resume, 4, transfer.StateCommitted, poison{"b", set("b", "balance", nil)}, "unwritable"},
		"committed, balance [1]":      {transfer.Resume, 4, transfer.StateCommitted, poison{"b", set("b", "balance", bson.A{1})}, "unwritable"},
		"committed, validated":        {transfer.Resume, 4, transfer.StateCommitted, poison{"b", forbidden("b")}, "unwritable"},
		"rolled back, balance a text": {transfer.RollBack, 3, transfer.StateRollback, poison{"a", set("a", "balance", "x")}, "unwritable"},
		"rolled back, validated": {transfer.RollBack, 3, transfer.StateRollback,
			poison{"b", forbidden("b")}, "unwritable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, 100, 0)
			b.stallAt("t", c.at, lost, 60)
			repair := c.poison.spoil(b)
			var log logged
			atOnce := b.coordinator(b.db, transfer.WithStallThreshold(0), transfer.WithStallPolicy(c.policy), transfer.WithLogger(slog.New(&log)))
			for attempt := 1; attempt <= 2; attempt++ {
				report, err := atOnce.Recover(t.Context())
				require.NoError(t, err)
				require.Equal(t, transfer.RecoveryReport{Found: 1, Stuck: 1}, report)
				require.Equal(t, attempt, log.count("a transfer is stuck"))
				b.requireStuck("t", c.state, c.poison.account, c.code, attempt)
			}
			rec, err := atOnce.Transfer(t.Context(), move("t", "a", "b", 60))
			requireStuckAnswer(t, c.state, c.poison.account, rec, err)
			rec, err = b.Transfer(t.Context(), move("t", "a", "b", 60)) // it is not due to be tried again
			requireStuckAnswer(t, c.state, c.poison.account, rec, err)
			rec, err = b.Cancel(t.Context(), "t", "too late")
			if c.state == transfer.StateRollback {
				requireStuckAnswer(t, c.state, c.poison.account, rec, err)
			} else {
				require.ErrorIs(t, err, transfer.ErrAlreadyCommitted)
			}

			repair()
			end := inBackground(t, b.coordinator(b.db, transfer.WithStallThreshold(20*time.Millisecond)))
			rec, err = b.Wait(t.Context(), "t")
			end()
			if c.state == transfer.StateCommitted {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, transfer.ErrCancelled)
			}
			require.Nil(t, rec.Stuck)
			require.Empty(t, b.ids(transfer.Query{Stuck: true}))
			b.audit(initial(100, 0))
		})
	}
}

// requireStuckAnswer requires that one who asks for what is stuck is told its outcome,
// which is known, and what is in the way, at once.
func requireStuckAnswer(t *testing.T, state transfer.State, account string, rec transfer.Record, err error) {
	t.Helper()
	want, outcome := transfer.ErrUnsettled, transfer.Moved
	if state == transfer.StateRollback {
		want, outcome = transfer.ErrCancelled, transfer.Failed
	}
	require.ErrorIs(t, err, want)
	require.NotErrorIs(t, err, transfer.ErrInDoubt)
	require.Equal(t, outcome, transfer.OutcomeOf(err))
	require.ErrorContains(t, err, fmt.Sprintf("account %q", account))
	require.Equal(t, state, rec.State)
	require.NotNil(t, rec.Stuck)
	require.Equal(t, account, rec.Stuck.Account)
}

func (b *bank) requireStuck(id string, state transfer.State, account, code string, attempts int) {
	b.t.Helper()
	rec, err := b.Get(b.t.Context(), id)
	require.NoError(b.t, err)
	require.Equal(b.t, state, rec.State)
	require.Equal(b.t, attempts, rec.Attempts)
	require.NotNil(b.t, rec.Stuck)
	require.Equal(b.t, code, rec.Stuck.Code)
	require.Equal(b.t, account, rec.Stuck.Account)
	require.NotEmpty(b.t, rec.Stuck.Message)
	for listed, err := range b.List(b.t.Context(), transfer.Query{Stuck: true}) {
		require.NoError(b.t, err)
		require.Equal(b.t, rec, listed)
	}
	require.Equal(b.t, []string{id}, b.ids(transfer.Query{Stuck: true}))
}

// What looks like poison and is none: the transfer ends.
func TestNoPoison(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy transfer.StallPolicy
		at     int
		poison poison
		ends   transfer.State
		repair bool
	}{
		"committed, credit closed":              {transfer.Resume, 4, poison{"b", set("b", "closed", true)}, transfer.StateSuccess, false},
		"rolled back, debit closed":             {transfer.RollBack, 3, poison{"a", set("a", "closed", true)}, transfer.StateFail, false},
		"committed, other currency":             {transfer.Resume, 4, poison{"b", set("b", "currency", "USD")}, transfer.StateSuccess, false},
		"committed, debited balance a text":     {transfer.Resume, 4, poison{"a", set("a", "balance", "none")}, transfer.StateSuccess, true},
		"rolled back, credited balance a text":  {transfer.RollBack, 3, poison{"b", set("b", "balance", "none")}, transfer.StateFail, true},
		"resumed, and refused for a closed one": {transfer.Resume, 2, poison{"b", set("b", "closed", true)}, transfer.StateFail, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, 100, 0)
			b.stallAt("t", c.at, lost, 60)
			repair := c.poison.spoil(b)
			report, err := b.coordinator(b.db, transfer.WithStallThreshold(0), transfer.WithStallPolicy(c.policy)).Recover(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, report.Succeeded+report.Failed, "%+v", report)
			rec, err := b.Get(t.Context(), "t")
			require.NoError(t, err)
			require.Equal(t, c.ends, rec.State)
			require.Nil(t, rec.Stuck)
			if c.repair {
				repair()
			}
			b.audit(initial(100, 0))
		})
	}
}

// A rolled-back transfer takes a document that is gone for done: nothing is due to it.
func TestRollBackWithADeletedAccount(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	b.stallAt("t", 3, lost, 60)
	b.remove("accounts", "b")
	report := b.recoverAll(transfer.WithStallPolicy(transfer.RollBack))
	require.Equal(t, 1, report.Failed)
	require.Empty(t, b.ids(transfer.Query{Stuck: true}))
	b.audit(initial(100))
}

// A committed payment whose order was deleted is stuck at the order, with the money on its way, and ends once the order is back.
func TestPoisonedEffect(t *testing.T) {
	t.Parallel()
	b := newShop(t, 100, 0)
	b.dying(6, lost, func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Transfer(ctx, payment("p", "o-1", 60))
		return err
	}, orders)
	var order bson.Raw
	require.NoError(t, b.db.Collection("orders").FindOneAndDelete(t.Context(), bson.D{{Key: "_id", Value: "o-1"}}).Decode(&order))
	c := b.coordinator(b.db, append(orders(b.db), transfer.WithStallThreshold(0))...)
	report, err := c.Recover(t.Context())
	require.NoError(t, err)
	require.Equal(t, transfer.RecoveryReport{Found: 1, Stuck: 1}, report)
	rec, err := b.Get(t.Context(), "p")
	require.NoError(t, err)
	require.Equal(t, &transfer.Failure{
		Code: "requirementFailed", Ledger: "orders", Account: "o-1", Message: `document "o-1" of "orders" is gone`,
	}, rec.Stuck)
	b.insert("orders", order)
	require.Equal(t, 1, b.recoverAll(orders(b.db)...).Succeeded)
	b.order("o-1", "paid", false)
	b.audit(initial(100, 0))
}

// A process may die at each message of its attempt to finish what can't be finished, the one that says why among them: once the cause is
// repaired the transfer is finished, and what arrives after that changes nothing.
func TestEveryMessageOfPoisonMayFail(t *testing.T) {
	t.Parallel()
	for _, what := range []fault{lost, answerLost, held} {
		t.Run(string(what), func(t *testing.T) {
			t.Parallel()
			noted := 0
			for point, struck := 0, true; struck; point++ {
				b := newBank(t, 100, 0)
				b.stallAt("t", 4, lost, 60)
				repair := deleted("b")(b)
				w := &wire{at: point, what: what, die: true}
				c := b.coordinator(b.through(w.client()), transfer.WithStallThreshold(0))
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				w.onDeath = cancel
				_, _ = c.Recover(ctx)
				cancel()
				kill(c)
				struck = w.hasStruck()
				noted += len(b.ids(transfer.Query{Stuck: true}))
				repair()
				b.recoverAll()
				final := b.raw("transfers")
				w.deliver(t)
				require.Equal(t, final, b.raw("transfers"), "message %d of %v arrives late", point, w.commands)
				require.NotContains(t, final[0], "stuck")
				b.audit(initial(100, 0))
			}
			require.Equal(t, what == answerLost, noted == 2, "of all messages the last one says why")
		})
	}
}

// The execution that committed a transfer stores why it can't be finished, also where its caller was answered long ago.
func TestPoisonIsNotedInTheBackground(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	var log logged
	restore := forbidSettling(b)
	c := b.coordinator(b.db, transfer.WithReturnAt(transfer.StateCommitted), transfer.WithLogger(slog.New(&log)))
	rec, err := c.Transfer(t.Context(), move("t", "a", "b", 60))
	require.NoError(t, err)
	require.Equal(t, transfer.StateCommitted, rec.State)
	require.NoError(t, c.Close(t.Context()), "which waits for what is done in the background")
	b.requireStuck("t", transfer.StateCommitted, "b", "unwritable", 0)
	require.Equal(t, 1, log.count("a transfer is stuck"))
	restore()
	b.recoverAll()
	b.audit(initial(100, 0))
}

// forbidSettling lets b take markers, and no money.
func forbidSettling(b *bank) func() {
	validate := func(condition bson.M) {
		command := bson.D{{Key: "collMod", Value: "accounts"}, {Key: "validator", Value: condition}}
		require.NoError(b.t, b.db.RunCommand(b.t.Context(), command).Err())
	}
	validate(bson.M{"$or": bson.A{bson.M{"_id": bson.M{"$ne": "b"}}, bson.M{"balance": 0}}})
	return func() { validate(bson.M{}) }
}

// What can't be finished is tried ever more rarely, by sweeps and by callers who ask for it again; those are told why when their time is
// up.
func TestPoisonIsTriedEverMoreRarely(t *testing.T) {
	t.Parallel()
	const threshold = 10 * time.Second
	b := newBank(t, 100, 0)
	b.stallAt("t", 4, lost, 60)
	repair := deleted("b")(b)
	c := b.coordinator(b.db, transfer.WithStallThreshold(threshold))
	for attempts := range 9 {
		for _, due := range []bool{false, true} {
			silence := threshold<<min(attempts, 6) - time.Second
			if due {
				silence += 2 * time.Second
			}
			b.silence("t", silence)
			report, err := c.Recover(t.Context())
			require.NoError(t, err)
			require.Equal(t, due, report == transfer.RecoveryReport{Found: 1, Stuck: 1}, "attempt %d, after %s: %+v", attempts, silence, report)
		}
	}
	b.silence("t", 63*threshold)
	b.waitInVain(transfer.WithStallThreshold(threshold))
	b.requireStuck("t", transfer.StateCommitted, "b", "accountNotFound", 9)
	repair()
	b.silence("t", 64*threshold)
	_, err := c.Transfer(t.Context(), move("t", "a", "b", 60))
	require.NoError(t, err, "a caller who waits takes it over when its time has come")
	b.audit(initial(100, 0))
}

// Who waits for what is stuck is told why, also when it is a look that the end of the wait cuts short.
func TestPoisonIsToldWhenALookIsCutShort(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	b.stallAt("t", 4, lost, 60)
	repair := deleted("b")(b)
	_, err := b.coordinator(b.db, transfer.WithStallThreshold(0)).Recover(t.Context())
	require.NoError(t, err)
	b.waitInVain()
	repair()
	b.recoverAll()
	b.audit(initial(100, 0))
}

// waitInVain waits for the end of a transfer of 60 that is stuck at account b and whose
// time has not come, gives up, and requires to be told why it is stuck. One who asks for
// the transfer doesn't wait: its outcome is known.
func (b *bank) waitInVain(opts ...transfer.Option) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
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
	c := b.coordinator(b.through(options.Client().SetMonitor(monitor)), opts...)
	rec, err := c.Wait(ctx, "t")
	require.ErrorIs(b.t, err, context.Canceled)
	requireStuckAnswer(b.t, transfer.StateCommitted, "b", rec, err)
	rec, err = c.Transfer(b.t.Context(), move("t", "a", "b", 60))
	require.NotErrorIs(b.t, err, context.Canceled)
	requireStuckAnswer(b.t, transfer.StateCommitted, "b", rec, err)
}

// silence lets a transfer have shown no sign of life for so long.
func (b *bank) silence(id string, d time.Duration) {
	b.t.Helper()
	ago := bson.D{{Key: "$subtract", Value: bson.A{"$$NOW", d.Milliseconds()}}}
	update := mongo.Pipeline{{{Key: "$set", Value: bson.D{{Key: "lastModified", Value: ago}}}}}
	result, err := b.db.Collection("transfers").UpdateByID(b.t.Context(), id, update)
	require.NoError(b.t, err)
	require.EqualValues(b.t, 1, result.MatchedCount)
}
