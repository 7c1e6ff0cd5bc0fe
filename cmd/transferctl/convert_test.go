package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// oldBooks stores accounts and transactions as the tutorial leaves them, with numbers as
// its shell stores them. A and B had 10,000 each before. Each transaction moves another
// power of two, so that the balances show which of them have happened.
func oldBooks(t *testing.T, db *mongo.Database) {
	t.Helper()
	rows := []bson.D{}
	for _, row := range []struct {
		id    any
		state string
		value float64
	}{
		{"nothing", "initial", 1}, {"neither", "pending", 2}, {"debited", "pending", 4}, {"credited", "pending", 8},
		{"both", "pending", 16}, {17.0, "committed", 32}, {"halfMarked", "applied", 64}, {"unmarked", "applied", 128},
		{"undoing", "canceling", 256}, {"halfUndone", "canceling", 512}, {"allUndone", "canceling", 1024},
		{"over", "done", 2048}, {"undone", "canceled", 4096}, {"newlyUndone", "cancelled", 8192},
	} {
		rows = append(rows, bson.D{
			{Key: "_id", Value: row.id}, {Key: "source", Value: "A"}, {Key: "destination", Value: "B"},
			{Key: "value", Value: row.value}, {Key: "state", Value: row.state},
		})
	}
	_, err := db.Collection("transactions").InsertMany(t.Context(), rows)
	require.NoError(t, err)
	account := func(id string, balance float64, marks ...any) bson.D {
		return bson.D{{Key: "_id", Value: id}, {Key: "balance", Value: balance}, {Key: "pendingTransactions", Value: bson.A(marks)}}
	}
	_, err = db.Collection("accounts").InsertMany(t.Context(), []bson.D{
		account("A", 10_000-4-16-32-64-128-256-512-2048, "debited", "both", 17.0, "halfMarked", "undoing", "halfUndone"),
		account("B", 10_000+8+16+32+64+128+256+2048, "credited", "both", 17.0, "undoing"),
		{{Key: "_id", Value: "C"}, {Key: "balance", Value: int64(5)}},
	})
	require.NoError(t, err)
}

// converted is what the transactions of oldBooks move in the end.
const converted = 1 + 2 + 4 + 8 + 16 + 32 + 64 + 128 + 2048

// requireConverted requires that each transaction has happened once or not at all, and
// that no trace of the old way is left.
func requireConverted(t *testing.T, b *bank.Bank) {
	t.Helper()
	require.Equal(t, map[string]int64{"A": 10_000 - converted, "B": 10_000 + converted, "C": 5}, b.Balances())
	require.Equal(t, []string{"old:nothing"}, b.IDs(transfer.Query{States: []transfer.State{transfer.StateSuccess}}))
	require.Equal(t, []string{"old:nothing"}, b.IDs(transfer.Query{}))
	rows, err := b.DB.Collection("transactions").Find(t.Context(), bson.D{})
	require.NoError(t, err)
	var all []struct {
		ID        any `bson:"_id"`
		State     string
		TakenOver bson.M `bson:"takenOver"`
	}
	require.NoError(t, rows.All(t.Context(), &all))
	states := map[string]string{}
	for _, row := range all {
		states[fmt.Sprint(row.ID)] = row.State
		if row.ID == "nothing" {
			require.Equal(t, bson.M{"as": "old:nothing", "settled": true, "outcome": "Success"}, row.TakenOver)
		} else {
			require.Nil(t, row.TakenOver)
		}
	}
	require.Equal(t, map[string]string{
		"nothing": "canceled", "neither": "done", "debited": "done", "credited": "done", "both": "done", "17": "done",
		"halfMarked": "done", "unmarked": "done", "undoing": "canceled", "halfUndone": "canceled", "allUndone": "canceled",
		"over": "done", "undone": "canceled", "newlyUndone": "cancelled",
	}, states)
	marked, err := b.DB.Collection("accounts").CountDocuments(t.Context(),
		bson.D{{Key: "pendingTransactions", Value: bson.D{{Key: "$exists", Value: true}}}})
	require.NoError(t, err)
	require.Zero(t, marked)
	report, err := b.AuditWith(t.Context(), transfer.AuditOptions{Expected: []transfer.ExpectedTotal{{Sum: transfer.Units(20_005)}}})
	require.NoError(t, err)
	require.Empty(t, report.Findings)
}

// Every transaction of the tutorial comes to its end, from each state and half-done step
// that it may be in. A dry run changes nothing; a second run finds nothing.
func TestConvert(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	oldBooks(t, b.DB)
	d := atDesk(t, b.DB)
	before := contents(t, b.DB)
	plan := d.run("convert", "--dry-run", "--json").done().document()
	actions := map[string]string{}
	for _, row := range plan["transactions"].([]any) {
		step := row.(map[string]any)
		actions[step["id"].(string)] = step["action"].(string)
	}
	require.Equal(t, map[string]string{
		"nothing": "ask", "neither": "finish", "debited": "finish", "credited": "finish", "both": "finish", "17": "unmark",
		"halfMarked": "unmark", "unmarked": "unmark", "undoing": "undo", "halfUndone": "undo", "allUndone": "undo",
	}, actions)
	require.EqualValues(t, 2, plan["wholeAccounts"])
	require.EqualValues(t, 11, plan["wholeTransactions"])
	require.EqualValues(t, 2, plan["arrays"])
	require.Empty(t, plan["problems"])
	require.Contains(t, d.run("convert", "--dry-run").done().rows(), "nothing initial A B 1 ask as old:nothing")
	require.Contains(t, d.run("convert").requires(exitUsage).err, "say --yes")
	require.Equal(t, before, contents(t, b.DB), "nothing was written")

	d.seated, d.answer = true, "yes\n"
	told := d.run("convert").requires(exitDone)
	require.Contains(t, told.out, "old:nothing: Success")
	require.Contains(t, told.out, "no findings")
	requireConverted(t, b)
	again := d.run("convert", "--yes", "--json").done().document()
	require.Empty(t, again["transactions"])
	require.EqualValues(t, 0, again["wholeAccounts"])
	requireConverted(t, b)
}

// contents returns all documents of the old collections, and the names of all.
func contents(t *testing.T, db *mongo.Database) map[string][]bson.M {
	t.Helper()
	names, err := db.ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	found := map[string][]bson.M{}
	for _, name := range names {
		rows, err := db.Collection(name).Find(t.Context(), bson.D{})
		require.NoError(t, err)
		var all []bson.M
		require.NoError(t, rows.All(t.Context(), &all))
		found[name] = all
	}
	return found
}

// stopper stops a run at one of its writes: before it is sent, or once it is answered.
type stopper struct {
	at       int
	answered bool
	stop     context.CancelFunc

	mu      sync.Mutex
	writes  int
	stopped bool
}

func (s *stopper) monitor() *event.CommandMonitor {
	count := func(name string) {
		switch name {
		case "insert", "update", "delete", "findAndModify", "commitTransaction", "createIndexes", "create", "bulkWrite":
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.writes++; s.writes == s.at {
				s.stopped = true
				s.stop()
			}
		}
	}
	if s.answered {
		return &event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) { count(e.CommandName) }}
	}
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) { count(e.CommandName) }}
}

// A run that ends at any of its writes, before or after the server has it, leaves nothing
// that the next run does not finish, to the unit.
func TestConvertIsStoppedAnywhere(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		t.Run(fmt.Sprint("answered ", answered), func(t *testing.T) {
			t.Parallel()
			b := bank.NewBare(t).WithIndexes()
			writes := 1
			for stopped := true; stopped; writes++ {
				b.Clear()
				oldBooks(t, b.DB)
				stopped = convertUntil(t, b, &stopper{at: writes, answered: answered})
				atDesk(t, b.DB).run("convert", "--yes", "--stall-threshold", "0s").done()
				requireConverted(t, b)
			}
			require.Greater(t, writes, 30, "each transaction takes some writes")
		})
	}
}

// convertUntil runs a conversion until it is stopped, and reports whether it was.
func convertUntil(t *testing.T, b *bank.Bank, s *stopper) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.stop = cancel
	d := atDesk(t, b.DB)
	var told strings.Builder
	code := run(ctx, []string{"--database", b.DB.Name(), "convert", "--yes"}, surroundings{
		in: strings.NewReader(""), out: &told, err: &told,
		lookup: d.variable, now: time.Now, monitor: s.monitor(),
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		require.Equal(t, exitDone, code, told.String())
	}
	return s.stopped
}

// What nobody but its owner can decide is a problem, and nothing at all is converted.
func TestConvertProblems(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t).WithIndexes()
	transactions, accounts := b.DB.Collection("transactions"), b.DB.Collection("accounts")
	old := func(id any, change ...bson.E) bson.D {
		row := bson.M{"_id": id, "source": "A", "destination": "B", "value": int64(3), "state": "pending"}
		for _, e := range change {
			row[e.Key] = e.Value
		}
		var d bson.D
		for _, k := range []string{"_id", "source", "destination", "value", "state"} {
			d = append(d, bson.E{Key: k, Value: row[k]})
		}
		return d
	}
	decimal, err := bson.ParseDecimal128("1.50")
	require.NoError(t, err)
	for want, write := range map[string]func() error{
		`its state is "odd"`:             func() error { return add(t, transactions, old("x", bson.E{Key: "state", Value: "odd"})) },
		"its value is no positive":       func() error { return add(t, transactions, old("x", bson.E{Key: "value", Value: 1.5})) },
		"its value is no positive whole": func() error { return add(t, transactions, old("x", bson.E{Key: "value", Value: -1.0})) },
		"there is no account gone":       func() error { return add(t, transactions, old("x", bson.E{Key: "source", Value: "gone"})) },
		"it has no two accounts":         func() error { return add(t, transactions, old("x", bson.E{Key: "source", Value: "B"})) },
		"are of two kinds":               func() error { return add(t, transactions, old("x", bson.E{Key: "value", Value: decimal})) },
		"its balance is no whole number": func() error {
			return add(t, accounts, bson.D{{Key: "_id", Value: "D"}, {Key: "balance", Value: 0.5}})
		},
		"a mark of lost, which is over": func() error { return mark(t, accounts, "lost") },
		"a mark of begun, which is initial": func() error {
			return marked(t, transactions, accounts, old("begun", bson.E{Key: "state", Value: "initial"}))
		},
		"a mark of other, which is between": func() error {
			return marked(t, transactions, accounts, old("other", bson.E{Key: "source", Value: "C"}, bson.E{Key: "destination", Value: "B"}))
		},
		"its pendingTransactions is no array": func() error {
			return add(t, accounts, bson.D{{Key: "_id", Value: "D"}, {Key: "balance", Value: 1}, {Key: "pendingTransactions", Value: "x"}})
		},
		"has its mark twice": func() error { return errorsOf(marked(t, transactions, accounts, old("x")), mark(t, accounts, "x")) },
		"the same ID as that of": func() error {
			state := bson.E{Key: "state", Value: "initial"}
			return errorsOf(add(t, transactions, old("1", state)), add(t, transactions, old(1, state)))
		},
		"its _id makes no text": func() error {
			return add(t, transactions, old(bson.D{{Key: "n", Value: 1}}, bson.E{Key: "state", Value: "initial"}))
		},
	} {
		b.Clear()
		require.NoError(t, add(t, transactions, old("good")))
		for _, id := range []string{"A", "B", "C"} {
			require.NoError(t, add(t, accounts, bson.D{{Key: "_id", Value: id}, {Key: "balance", Value: 100.0}}))
		}
		require.NoError(t, write())
		before := contents(t, b.DB)
		told := atDesk(t, b.DB).run("convert", "--yes").requires(exitFindings)
		require.Contains(t, told.out, want)
		require.Contains(t, told.out, "nothing is converted")
		require.Equal(t, before, contents(t, b.DB), want)
	}
}

func add(t *testing.T, c *mongo.Collection, d bson.D) error {
	_, err := c.InsertOne(t.Context(), d)
	return err
}

func mark(t *testing.T, accounts *mongo.Collection, id any) error {
	_, err := accounts.UpdateByID(t.Context(), "A", bson.D{{Key: "$push", Value: bson.D{{Key: "pendingTransactions", Value: id}}}})
	return err
}

func marked(t *testing.T, transactions, accounts *mongo.Collection, row bson.D) error {
	return errorsOf(add(t, transactions, row), mark(t, accounts, row[0].Value))
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// The first edition of the tutorial names accounts by a field name. Transfers name them
// by their _id.
func TestConvertAccountsByName(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	accounts, transactions := b.DB.Collection("accounts"), b.DB.Collection("transactions")
	for i, id := range []string{"a", "b"} {
		require.NoError(t, add(t, accounts, bson.D{
			{Key: "_id", Value: id}, {Key: "name", Value: strings.ToUpper(id)}, {Key: "balance", Value: 100.0},
			{Key: "pendingTransactions", Value: bson.A{2}[:1-i]},
		}))
	}
	for i, state := range []string{"initial", "pending", "pending", "committed"} {
		require.NoError(t, add(t, transactions, bson.D{
			{Key: "_id", Value: i}, {Key: "source", Value: "A"}, {Key: "destination", Value: "B"},
			{Key: "value", Value: float64(int(1) << i)}, {Key: "state", Value: state},
		}))
	}
	d := atDesk(t, b.DB)
	require.Contains(t, d.run("convert", "--yes").requires(exitFindings).out, "there is no account A")
	require.NoError(t, add(t, accounts, bson.D{{Key: "_id", Value: "c"}, {Key: "name", Value: "B"}, {Key: "balance", Value: 0.0}}))
	require.Contains(t, d.run("convert", "--yes", "--account-key", "name").requires(exitFindings).out, "two accounts are named B")
	_, err := accounts.DeleteOne(t.Context(), bson.D{{Key: "_id", Value: "c"}})
	require.NoError(t, err)
	for range 2 {
		require.Contains(t, d.run("convert", "--yes", "--account-key", "name").done().out, "no findings")
		require.Equal(t, map[string]int64{"a": 100 - 1 - 2, "b": 100 + 1 + 2 + 4}, b.Balances(), "a was debited 4 before")
	}
}

// Decimals, currencies and ObjectIds are taken over as they are; what the library refuses
// is reported, and stays refused; and what had not begun can be cancelled.
func TestConvertOtherForms(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t, transfer.WithAccountIDs(transfer.ObjectIDs))
	ids := []bson.ObjectID{bson.NewObjectID(), bson.NewObjectID()}
	ten, err := bson.ParseDecimal128("10.25")
	require.NoError(t, err)
	for _, id := range ids {
		require.NoError(t, add(t, b.DB.Collection("accounts"), bson.D{
			{Key: "_id", Value: id}, {Key: "balance", Value: ten}, {Key: "currency", Value: "EUR"}, {Key: "pendingTransactions", Value: bson.A{}},
		}))
	}
	for i, state := range []string{"initial", "pending", "initial"} {
		require.NoError(t, add(t, b.DB.Collection("transactions"), bson.D{
			{Key: "_id", Value: i}, {Key: "source", Value: ids[0]}, {Key: "destination", Value: ids[1]},
			{Key: "value", Value: ten}, {Key: "state", Value: state},
		}))
	}
	d := atDesk(t, b.DB)
	require.Contains(t, d.run("convert", "--yes").requires(exitFindings).out, "Say --ids objectid")
	told := d.run("convert", "--yes", "--ids", "objectid").done()
	require.Contains(t, told.out, "old:0: Fail: insufficientFunds")
	require.Contains(t, told.out, "no findings")
	for i, want := range []string{"0.00", "20.50"} {
		a, err := b.GetAccount(t.Context(), ids[i].Hex())
		require.NoError(t, err)
		require.Equal(t, want, a.Balance.String())
	}
	require.NoError(t, add(t, b.DB.Collection("transactions"), bson.D{
		{Key: "_id", Value: "late"}, {Key: "source", Value: ids[1]}, {Key: "destination", Value: ids[0]},
		{Key: "value", Value: ten}, {Key: "state", Value: "initial"},
	}))
	d.run("convert", "--yes", "--initial", "cancel").done()
	d.run("convert", "--yes", "--initial", "perhaps").requires(exitUsage)
	require.Equal(t, []string{"old:2", "old:0"}, b.IDs(transfer.Query{}))
	d.run("audit", "--expect", "EUR=20.50").done()
}
