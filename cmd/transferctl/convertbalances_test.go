package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// accountWith returns an account with 5 units, and some fields beside or instead.
func accountWith(id any, fields ...bson.E) bson.D {
	d := bson.D{{Key: "_id", Value: id}}
	if len(fields) == 0 || fields[0].Key != "balance" {
		d = append(d, bson.E{Key: "balance", Value: int64(5)})
	}
	return append(d, fields...)
}

// Accounts without the tutorial's transactions are converted when that is said, and a
// collection that happens to have the name of the transactions is left alone.
func TestConvertBalancesOnly(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	accounts, other := b.DB.Collection("accounts"), b.DB.Collection("transactions")
	require.NoError(t, errorsOf(
		add(t, accounts, accountWith("A", bson.E{Key: "balance", Value: 12.0}, bson.E{Key: "email", Value: "a@example.org"})),
		add(t, accounts, accountWith("B")),
	))
	d := atDesk(t, b.DB)
	require.Contains(t, d.run("convert", "--yes").requires(exitFindings).out, "or say --balances-only")
	before := contents(t, b.DB)
	require.Contains(t, d.run("convert", "--balances-only", "--dry-run").done().out, "to convert: doubles of 1 account,")
	require.Equal(t, before, contents(t, b.DB), "nothing was written")

	require.NoError(t, add(t, other, bson.D{{Key: "_id", Value: "of the shop"}, {Key: "value", Value: 7.0}}))
	d.seated, d.answer = true, "yes\n"
	told := d.run("convert", "--balances-only").requires(exitDone)
	require.Contains(t, told.err+told.out, "the balances of 1 account of "+b.DB.Name()+".accounts")
	require.Contains(t, told.out, "converted: 1 account\n")
	require.Contains(t, told.out, "no findings")
	require.Contains(t, d.run("convert", "--balances-only", "--yes").done().out, "converted: 0 accounts\n")
	require.Equal(t, []bson.M{{"_id": "of the shop", "value": 7.0}}, contents(t, b.DB)["transactions"])
	b.CheckBooks(map[string]int64{"A": 12, "B": 5})

	require.NoError(t, add(t, accounts, accountWith("C", bson.E{Key: "balance", Value: -3.0})))
	require.Contains(t, d.run("convert", "--balances-only", "--yes").requires(exitFindings).out, "belowFloor")
	require.Equal(t, []string{"12", "5", "-3"}, d.run("accounts", "--json").done().column("posted"))

	require.NoError(t, mark(t, accounts, "lost"))
	require.Contains(t, d.run("convert", "--balances-only", "--yes").requires(exitFindings).out, "it has a mark of lost")
}

// Whatever an audit finds wrong with an account by itself is reported before anything is
// converted.
func TestConvertTellsWhatTheAuditWouldFind(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t).WithIndexes()
	accounts := b.DB.Collection("accounts")
	of := func(name string, value any) bson.D { return accountWith("A", bson.E{Key: name, Value: value}) }
	for want, account := range map[string]bson.D{
		"accounts A: its balance is no whole number and no decimal: array": of("balance", bson.A{int64(5)}),
		`no decimal: double {"$numberDouble":"0.5"}`:                       of("balance", 0.5),
		"accounts A: the flag closed:":                                     of("closed", "no"),
		"accounts A: the flag frozen:":                                     of("frozen", 1),
		"accounts A: the map of markers:":                                  of("pending", bson.A{"order1"}),
		`name another one by --field. Otherwise: Store a string`:           of("currency", 978),
		"accounts A: the floor:":                                           of("floor", "none"),
		"accounts 17: the _id:":                                            accountWith(17),
	} {
		b.Clear()
		overdrawn := accountWith("B", bson.E{Key: "balance", Value: -1.0}, bson.E{Key: "floor", Value: bson.MinKey{}})
		require.NoError(t, errorsOf(add(t, accounts, account), add(t, accounts, overdrawn)))
		before := contents(t, b.DB)
		d := atDesk(t, b.DB)
		require.Contains(t, d.run("convert", "--balances-only", "--dry-run").requires(exitFindings).out, want)
		require.Contains(t, d.run("convert", "--balances-only", "--yes").requires(exitFindings).out, "1 problem: nothing is converted before")
		require.Equal(t, before, contents(t, b.DB), want)
		require.NotEmpty(t, b.MustAudit().Findings, want)
	}
}
