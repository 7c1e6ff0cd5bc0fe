package main

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/cmd/transferctl/internal/tutorial"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// oldAccount and oldTransaction are documents of the tutorial.
func oldAccount(id string, balance int64, marks ...any) bson.D {
	return bson.D{{Key: "_id", Value: id}, {Key: "balance", Value: balance}, {Key: "pendingTransactions", Value: append(bson.A{}, marks...)}}
}

func oldTransaction(id any, state string, value int64) bson.D {
	return bson.D{
		{Key: "_id", Value: id}, {Key: "source", Value: "A"}, {Key: "destination", Value: "B"},
		{Key: "value", Value: value}, {Key: "state", Value: state},
	}
}

// IDs that are documents, one of which has all fields of the other, are two: to unmark
// one leaves the mark of the other, whose money would move twice without it.
func TestConvertIDsThatAreDocuments(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t).WithIndexes()
	short, long := bson.D{{Key: "order", Value: 1}}, bson.D{{Key: "order", Value: 1}, {Key: "part", Value: 2}}
	accounts, transactions := b.DB.Collection("accounts"), b.DB.Collection("transactions")
	require.NoError(t, errorsOf(
		add(t, accounts, oldAccount("A", 1000-8-16, short, long)), add(t, accounts, oldAccount("B", 8+16, short, long)),
		add(t, transactions, oldTransaction(short, "applied", 8)), add(t, transactions, oldTransaction(long, "pending", 16)),
	))
	atDesk(t, b.DB).run("convert", "--yes").done()
	require.Equal(t, map[string]int64{"A": 1000 - 8 - 16, "B": 8 + 16}, b.Balances())
	require.Empty(t, b.MustAudit().Findings)
}

// However many transactions an account is in, it is one account.
func TestConvertPlansManyTransactions(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	accounts, transactions := b.DB.Collection("accounts"), b.DB.Collection("transactions")
	require.NoError(t, errorsOf(add(t, accounts, oldAccount("A", 5000)), add(t, accounts, oldAccount("B", 0))))
	var rows []bson.D
	for i := range 2500 {
		rows = append(rows, oldTransaction(i, []string{"pending", "initial"}[i%2], 1))
	}
	_, err := transactions.InsertMany(t.Context(), rows)
	require.NoError(t, err)
	plan, err := oldBooksOf(b.DB).Plan(t.Context(), false)
	require.NoError(t, err)
	require.Empty(t, plan.Problems)
	require.Len(t, plan.Steps, 2500)
}

// oldBooksOf returns the tutorial's collections of a database.
func oldBooksOf(db *mongo.Database) *tutorial.Books {
	return &tutorial.Books{
		Accounts: db.Collection("accounts"), Transactions: db.Collection("transactions"), Transfers: db.Collection("transfers"),
		Fields: fieldNames(transfer.Fields{}), Key: "_id", Prefix: "old:",
	}
}

// Where there is nothing, a name was mistyped: nothing is claimed to be converted, and
// nothing begins there.
func TestConvertWhereNothingIs(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	d := atDesk(t, b.DB)
	told := d.run("convert", "--yes").requires(exitFindings)
	require.Contains(t, told.out, "there is nothing in "+b.DB.Name()+".transactions")
	require.Contains(t, told.out, "there is nothing in "+b.DB.Name()+".accounts")
	oldBooks(t, b.DB)
	before := contents(t, b.DB)
	for _, flag := range []string{"--transactions", "--accounts"} {
		require.Contains(t, d.run("convert", "--yes", flag, "mistyped").requires(exitFindings).out, "See --database and "+flag)
	}
	require.Equal(t, before, contents(t, b.DB))
}

// A transfer of the ID that one would be taken over under is reported before anything is
// changed, and another prefix helps. So it does for one that was refused, and shall be
// tried again.
func TestConvertUnderAnIDThatIsTaken(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	_, err := b.Transfer(t.Context(), bank.Move("old:1", "b", "a", 40))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	transactions := b.DB.Collection("transactions")
	require.NoError(t, add(t, transactions, bson.D{
		{Key: "_id", Value: 1}, {Key: "source", Value: "a"}, {Key: "destination", Value: "b"}, {Key: "value", Value: 150},
		{Key: "state", Value: "initial"},
	}))
	d := atDesk(t, b.DB)
	before := contents(t, b.DB)
	require.Contains(t, d.run("convert", "--yes").requires(exitFindings).out, "there is a transfer old:1 already")
	require.Equal(t, before, contents(t, b.DB))
	require.Contains(t, d.run("convert", "--yes", "--prefix", "older:").done().out, "older:1: Fail: insufficientFunds")
	smaller := bson.D{{Key: "state", Value: "initial"}, {Key: "value", Value: 60}}
	_, err = transactions.UpdateByID(t.Context(), 1, bson.D{{Key: "$set", Value: smaller}})
	require.NoError(t, err)
	d.run("convert", "--yes", "--prefix", "older:").requires(exitFindings)
	require.Contains(t, d.run("convert", "--yes", "--prefix", "again:").done().out, "again:1: Success")
	b.CheckBooks(bank.Balances(100, 0))
}

// What the library can't take is reported, before anything is changed where that can be
// known, and keeps nothing else from being asked for.
func TestConvertWhatTheLibraryCantTake(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t).WithIndexes()
	accounts, transactions := b.DB.Collection("accounts"), b.DB.Collection("transactions")
	require.NoError(t, errorsOf(
		add(t, accounts, oldAccount("A", 1000)), add(t, accounts, oldAccount("B", 0)), add(t, accounts, oldAccount("", 7)),
		add(t, transactions, oldTransaction("bad\xff", "initial", 1)),
		add(t, transactions, bson.D{
			{Key: "_id", Value: "nameless"}, {Key: "source", Value: "A"}, {Key: "destination", Value: ""},
			{Key: "value", Value: 2}, {Key: "state", Value: "initial"},
		}),
	))
	d := atDesk(t, b.DB)
	told := d.run("convert", "--yes").requires(exitFindings)
	require.Contains(t, told.out, "is not valid UTF-8")
	require.Contains(t, told.out, "the ID is empty")
	_, err := transactions.DeleteMany(t.Context(), bson.D{})
	require.NoError(t, err)
	_, err = accounts.DeleteOne(t.Context(), bson.D{{Key: "_id", Value: ""}})
	require.NoError(t, err)

	require.NoError(t, errorsOf(
		add(t, transactions, oldTransaction(1, "initial", 1<<62)), add(t, transactions, oldTransaction(2, "initial", 3)),
	))
	require.Contains(t, d.run("convert", "--yes").requires(exitUsage).err, "beyond the limit")
	require.Equal(t, map[string]int64{"A": 1000 - 3, "B": 3}, b.Balances(), "the other one was asked for")
	require.Empty(t, b.MustAudit().Findings)
}

// besideTheOldWay is a desk at which a conversion meets a process that still works by the
// tutorial: right behind the first commit it moves the money once more, and begins more.
func besideTheOldWay(t *testing.T) *desk {
	t.Helper()
	b := bank.NewBare(t).WithIndexes()
	accounts, transactions := b.DB.Collection("accounts"), b.DB.Collection("transactions")
	require.NoError(t, errorsOf(
		add(t, accounts, oldAccount("A", 1000)), add(t, accounts, oldAccount("B", 0)), add(t, transactions, oldTransaction(1, "pending", 4)),
	))
	commits := 0
	late := &event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
		if e.CommandName != "commitTransaction" {
			return
		}
		if commits++; commits > 1 {
			return
		}
		for id, amount := range map[string]int64{"A": -4, "B": 4} { // as the tutorial does, once more
			_, err := accounts.UpdateOne(t.Context(),
				bson.D{{Key: "_id", Value: id}, {Key: "pendingTransactions", Value: bson.D{{Key: "$ne", Value: 1}}}},
				bson.D{
					{Key: "$inc", Value: bson.D{{Key: "balance", Value: amount}}},
					{Key: "$push", Value: bson.D{{Key: "pendingTransactions", Value: 1}}},
				})
			require.NoError(t, err)
		}
		require.NoError(t, add(t, transactions, oldTransaction(2, "initial", 8)))
	}}
	d := atDesk(t, b.DB)
	d.monitor = late
	return d
}

// A process that still works by the tutorial is noticed, though the sum is right: what it
// leaves is a problem, and nothing is claimed to be done.
func TestConvertBesideTheOldWay(t *testing.T) {
	t.Parallel()
	text := besideTheOldWay(t).run("convert", "--yes").requires(exitFindings).out
	require.Contains(t, text, "problem: transactions 2: somebody else works on the transactions: it is initial")
	require.Contains(t, text, "problems meanwhile: somebody else works on the transactions")

	d := besideTheOldWay(t)
	told := d.run("convert", "--yes", "--json").requires(exitFindings).document()
	problems := told["problems"].([]any)
	require.Len(t, problems, 3)
	require.Contains(t, problems[0].(map[string]any)["detail"], "somebody else works on the transactions: it is initial")
	require.Contains(t, problems[1].(map[string]any)["detail"], "a mark of 1, which is over")
	require.Empty(t, told["audit"].(map[string]any)["findings"], "nothing else shows it")
	d.monitor = nil
	require.Contains(t, d.run("convert", "--yes").requires(exitFindings).out, "nothing is converted before")
}

// A user converts with the rights that docs/transferctl.md names. Where one of them is
// missing, the command says so, and nothing is half done.
func TestConvertNeedsItsRights(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.names = []string{"--database", "till", "--accounts", "wallets", "--transfers", "moves"}
	require.NoError(t, g.till.RunCommand(t.Context(), bson.D{
		{Key: "createRole", Value: "converter"}, {Key: "roles", Value: bson.A{}},
		{Key: "privileges", Value: bson.A{bson.D{
			{Key: "resource", Value: bson.D{{Key: "db", Value: "till"}, {Key: "collection", Value: "transactions"}}},
			{Key: "actions", Value: bson.A{"find", "update"}},
		}}},
	}).Err())
	for name, roles := range map[string]bson.A{
		"whole": {"transferService", "transferMigration", "converter"}, "noService": {"transferMigration", "converter"},
		"noMigration": {"transferService", "converter"}, "noConverter": {"transferService", "transferMigration"},
	} {
		require.NoError(t, g.till.RunCommand(t.Context(), bson.D{
			{Key: "createUser", Value: name}, {Key: "pwd", Value: "secret"}, {Key: "roles", Value: roles},
		}).Err())
	}
	wallets, transactions := g.till.Collection("wallets"), g.till.Collection("transactions")
	marked := bson.D{{Key: "pendingTransactions", Value: bson.A{"half"}}}
	require.NoError(t, add(t, wallets, append(bson.D{{Key: "_id", Value: "A"}, {Key: "balance", Value: 90.0}}, marked...)))
	require.NoError(t, add(t, wallets, bson.D{
		{Key: "_id", Value: "B"}, {Key: "balance", Value: 20.0}, {Key: "pendingTransactions", Value: bson.A{}},
	}))
	for id, state := range map[string]string{"half": "pending", "nothing": "initial"} {
		require.NoError(t, add(t, transactions, bson.D{
			{Key: "_id", Value: id}, {Key: "source", Value: "A"}, {Key: "destination", Value: "B"},
			{Key: "value", Value: 10.0}, {Key: "state", Value: state},
		}))
	}
	for _, user := range []string{"noService", "noMigration", "noConverter"} {
		refused := g.as(user, "secret", "convert", "--yes").requires(exitFailed)
		require.Regexp(t, "unauthorized: .* not authorized on till|the user has no right to", refused.err, user)
	}
	require.Contains(t, g.as("whole", "secret", "convert", "--yes").done().out, "old:nothing: Success")
	for id, balance := range map[string]int64{"A": 80, "B": 40} {
		var account struct{ Balance any }
		require.NoError(t, wallets.FindOne(t.Context(), bson.D{{Key: "_id", Value: id}}).Decode(&account))
		require.Equal(t, balance, account.Balance, id)
	}
	require.Contains(t, g.as("whole", "secret", "audit").done().out, "no findings")
}

// The sums that are expected after a conversion are those of all ledgers by currency and
// kind, with what was in flight. One that can't be stored is an error.
func TestExpectedSums(t *testing.T) {
	t.Parallel()
	units := transfer.Units
	cents, err := transfer.ParseDecimal("0.05")
	require.NoError(t, err)
	before := transfer.AuditReport{Ledgers: []transfer.LedgerTotal{
		{Currency: "EUR", Total: units(70), InTransit: units(5)}, {Ledger: "eu", Currency: "EUR", Total: units(20)},
		{Currency: "EUR", Total: cents}, {Ledger: "us", Currency: "USD", Total: units(3)},
	}}
	all, err := expectedAfter(before, tutorial.Plan{InFlight: map[string]transfer.Amount{"EUR": units(4), "GBP": units(9)}})
	require.NoError(t, err)
	require.Equal(t, []transfer.ExpectedTotal{
		{Currency: "EUR", Sum: units(99)}, {Currency: "EUR", Sum: cents}, {Currency: "USD", Sum: units(3)},
	}, all)

	most := units(math.MaxInt64)
	for _, ledgers := range [][]transfer.LedgerTotal{
		{{Total: most, InTransit: units(1)}}, {{Total: most}, {Ledger: "eu", Total: units(1)}}, {{Total: most}},
	} {
		_, err = expectedAfter(transfer.AuditReport{Ledgers: ledgers}, tutorial.Plan{InFlight: map[string]transfer.Amount{"": units(1)}})
		require.ErrorIs(t, err, transfer.ErrOverflow)
	}
}
