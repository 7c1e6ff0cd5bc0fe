package mongostore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// opened stores accounts with balances, and returns a prepare of a debit of 60 on each.
func (b *bank) opened(balance int64, accounts ...string) requests {
	b.T.Helper()
	var rs requests
	for _, name := range accounts {
		b.Put(storetest.Account(name, bson.M{"balance": balance}))
		a := b.Attempt("by "+name, b.Leg(name, -60))
		rs.add(a, b.Ready(a)...)
	}
	b.trial()
	return rs
}

// trial has the store find out that statements can be shared, so that the log has no
// commands for that.
func (b *bank) trial() {
	b.T.Helper()
	require.True(b.T, b.Store.Shares(b.T.Context(), b.Store.Ledgers[""]))
	b.Log.Take()
}

// debited requires that an account was debited so many times by 60.
func (b *bank) debited(balance int64, times int64, account string) {
	b.T.Helper()
	want := storetest.Account(account, bson.M{"balance": balance - 60*times})
	if times > 0 {
		want["pending"] = bson.M{"by " + account: int64(-60)}
	}
	b.Has("accounts", want)
}

func results(rs requests) map[string]protocol.Result {
	all := map[string]protocol.Result{}
	for _, call := range rs {
		all[call.Attempt.Participant(0).Leg().Account] = call.Answer.Result
	}
	return all
}

// sent returns, for each command since the last call, its name and, for an update, for
// how many accounts each statement is.
func (b *bank) sent() (names []string, accounts [][]int) {
	b.T.Helper()
	for _, c := range b.Log.Take() {
		names = append(names, c.Name)
		if c.Name != "update" {
			continue
		}
		statements, err := c.Body.Lookup("updates").Array().Values()
		require.NoError(b.T, err)
		var sizes []int
		for _, st := range statements {
			size := 1
			if list, shared := st.Document().Lookup("q", "_id", "$in").ArrayOK(); shared {
				ids, err := list.Values()
				require.NoError(b.T, err)
				size = len(ids)
			}
			sizes = append(sizes, size)
		}
		accounts = append(accounts, sizes)
	}
	return names, accounts
}

// A document that the server refuses to write ends the statement that it shares. The
// reply says that nothing was changed, although the accounts before it are. A deciding
// read shows which these are, and the others are written one by one.
func TestRefusalEndsASharedStatement(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	rs := b.opened(200, "a", "b", "c", "d", "e")
	b.keep("c")
	b.batch(rs)
	commands := b.Log.Take()
	require.Equal(t, []string{"update", "find", "update"}, storetest.Names(commands))
	first := commands[0].Reply
	assert.EqualValues(t, 0, first.Lookup("n").AsInt64(), "the server says that nothing matched")
	assert.EqualValues(t, 0, first.Lookup("nModified").AsInt64())
	assert.EqualValues(t, 121, first.Lookup("writeErrors", "0", "code").AsInt64())
	assert.Equal(t, "linearizable", commands[1].Text("readConcern", "level"), "no write is known to be stored")
	again, err := commands[2].Body.Lookup("updates").Array().Values()
	require.NoError(t, err)
	assert.Len(t, again, 3, "those that were not changed, each by itself")
	failed, applied := protocol.Failed, protocol.Applied
	assert.Equal(t, map[string]protocol.Result{"a": applied, "b": applied, "c": failed, "d": applied, "e": applied}, results(rs))
	for _, name := range []string{"a", "b", "d", "e"} {
		b.debited(200, 1, name)
	}
	b.debited(200, 0, "c")
	require.ErrorContains(t, rs[2].Cause, "121")
}

// Accounts in several currencies share a statement, and each is judged by the currency
// that its own leg names: for the legs of one exchange, and for those of many transfers.
func TestSharedStatementOfSeveralCurrencies(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	accounts := []struct {
		name          string
		has           any
		transfer, leg string
		result        protocol.Result
	}{
		{"a", "EUR", "EUR", "", protocol.Applied},
		{"b", "USD", "EUR", "USD", protocol.Applied},
		{"c", nil, "", "", protocol.Applied},
		{"d", "USD", "", "USD", protocol.Applied},
		{"e", "USD", "EUR", "", protocol.NotMatched},
		{"f", "EUR", "EUR", "USD", protocol.NotMatched},
		{"g", nil, "", "EUR", protocol.NotMatched},
	}
	var rs requests
	for _, account := range accounts {
		b.Put(storetest.Account(account.name, bson.M{"balance": int64(200), "currency": account.has}))
		leg := b.Leg(account.name, -60)
		leg.Currency = account.leg
		a := b.Attempt("by "+account.name, leg)
		a.Transfer.Currency = account.transfer
		rs.add(a, b.Ready(a)...)
	}
	b.trial()
	b.batch(rs)
	_, sizes := b.sent()
	assert.Equal(t, []int{len(accounts)}, sizes[0], "they share a statement")
	for _, account := range accounts {
		assert.Equal(t, account.result, results(rs)[account.name], account.name)
		want := storetest.Account(account.name, bson.M{"balance": int64(200), "currency": account.has})
		if account.result == protocol.Applied {
			want["balance"], want["pending"] = int64(140), bson.M{"by " + account.name: int64(-60)}
		}
		b.Has("accounts", want)
	}
}

// keep makes the server refuse each change of an account's balance of 200.
func (b *bank) keep(account string) {
	b.T.Helper()
	b.validate(bson.M{"$or": bson.A{bson.M{"_id": bson.M{"$ne": account}}, bson.M{"balance": 200}}})
}

// Where a refusal has ended a shared statement, and the deciding read fails, nothing is
// known of any of its accounts, and nothing is sent again.
func TestEndedStatementThatIsNotResolved(t *testing.T) {
	b := newBank(t)
	rs := b.opened(200, "a", "b", "c", "d")
	b.keep("c")
	stop := b.Failing(1, []string{"find"}, bson.M{"errorCode": 2})
	assert.Equal(t, all(4, protocol.Unknown), b.batch(rs))
	stop()
	names, _ := b.sent()
	assert.Equal(t, []string{"update", "find"}, names)
	for i, name := range []string{"a", "b", "c", "d"} {
		times := int64(1)
		if i >= 2 {
			times = 0
		}
		b.debited(200, times, name)
	}
}

// Nor is anything known where the collection may be another one by now.
func TestEndedStatementOfAnotherCollection(t *testing.T) {
	t.Parallel()
	for refused, sent := range [][]string{{"update"}, {"update", "find"}} { // before the read, or after it
		b := newBank(t)
		rs := b.opened(200, "a", "b", "c", "d")
		b.keep("c")
		asked := -1
		b.Store.Ledgers[""].Confirm = func(context.Context) error {
			if asked++; asked == refused {
				return errors.New("it is another one")
			}
			return nil
		}
		assert.Equal(t, all(4, protocol.Unknown), b.batch(rs))
		names, _ := b.sent()
		assert.Equal(t, sent, names)
	}
}

// If another statement of the command is known to be stored, a majority read in its
// session decides about the accounts of the one that was ended.
func TestEndedStatementBesideAStoredOne(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	rs := b.opened(200, "a", "b", "c", "d")
	for _, name := range []string{"x", "y", "z"} {
		b.Put(storetest.Account(name, bson.M{"balance": decimal("200.50")}))
		a := b.Attempt("by "+name, b.LegIn("", name, dec("-60")))
		rs.add(a, b.Ready(a)...)
	}
	b.keep("b")
	b.Log.Take()
	b.batch(rs)
	commands := b.Log.Take()
	require.Equal(t, []string{"update", "find", "update"}, storetest.Names(commands))
	read := commands[1]
	assert.Equal(t, "majority", read.Text("readConcern", "level"))
	assert.Equal(t, bson.TypeTimestamp, read.Body.Lookup("readConcern", "afterClusterTime").Type)
	assert.Equal(t, commands[0].Body.Lookup("lsid"), read.Body.Lookup("lsid"), "it is in the session of the write")
	failed, applied := protocol.Failed, protocol.Applied
	assert.Equal(t, map[string]protocol.Result{
		"a": applied, "b": failed, "c": applied, "d": applied, "x": applied, "y": applied, "z": applied,
	}, results(rs))
}

// Where it is not known that what a command has written is stored for good, or there is
// no answer, nothing is known of any account, although some are changed.
func TestSharedStatementWithoutAnAnswer(t *testing.T) {
	t.Run("a write concern error", func(t *testing.T) {
		b := newBank(t)
		rs := b.opened(200, "a", "b", "c")
		b.keep("b")
		b.Failing(1, []string{"update"}, bson.M{"writeConcernError": bson.M{"code": 64, "errmsg": "waiting for replication timed out"}})
		assert.Equal(t, all(3, protocol.Unknown), b.batch(rs))
		names, _ := b.sent()
		assert.Equal(t, []string{"update"}, names)
		b.debited(200, 1, "a")
		b.debited(200, 0, "b")
	})
	t.Run("no answer", func(t *testing.T) {
		b := newBank(t)
		rs := b.opened(200, "a", "b", "c")
		b.Failing(1, []string{"update"}, bson.M{"blockConnection": true, "blockTimeMS": 2000})
		b.performLimited(time.Second, rs)
		assert.Equal(t, map[string]protocol.Result{"a": protocol.Unknown, "b": protocol.Unknown, "c": protocol.Unknown}, results(rs))
		names, _ := b.sent()
		assert.Equal(t, []string{"update"}, names)
	})
	t.Run("an answer that says no", func(t *testing.T) {
		b := newBank(t)
		rs := b.opened(200, "a", "b", "c")
		b.Failing(1, []string{"update"}, bson.M{"errorCode": 11602})
		assert.Equal(t, all(3, protocol.Unknown), b.batch(rs))
		names, _ := b.sent()
		assert.Equal(t, []string{"update"}, names)
	})
}

// A server that can't evaluate the pipeline is given statements for one account each, at
// once and from then on.
func TestServerThatRefusesPipelines(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]bson.D{
		"an operator that it does not know": {{Key: "$noSuchOperator", Value: 1}},
		"an operand that it does not take":  {{Key: "$objectToArray", Value: "text"}},
		"what is no document":               {{Key: "$add", Value: bson.A{1, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBank(t)
			rs := b.opened(200, "a", "b", "c", "d")
			b.Store.SpoilBodies(encode(body))
			assert.Equal(t, all(4, protocol.Applied), b.batch(rs))
			_, accounts := b.sent()
			assert.Equal(t, [][]int{{4}, {1, 1, 1, 1}}, accounts)
			var undo requests
			for _, call := range rs {
				b.debited(200, 1, call.Attempt.Participant(0).Leg().Account)
				undo.add(call.Attempt, storetest.At(protocol.Undo, 0))
			}
			for _, next := range []requests{undo, rs, undo} {
				assert.Equal(t, all(4, protocol.Applied), b.batch(next))
				_, accounts = b.sent()
				assert.Equal(t, [][]int{{1, 1, 1, 1}}, accounts)
			}
		})
	}
}

// A server that evaluates the pipeline, and in another way, shows that in the trial. It
// is given statements for one account each from the beginning, and tried once.
func TestServerThatEvaluatesOtherwise(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Store.SpoilBodies(encode(bson.D{{Key: "$mergeObjects", Value: bson.A{"$$ROOT"}}}))
	var rs requests
	for _, name := range []string{"a", "b"} {
		b.Put(storetest.Account(name, bson.M{"balance": int64(200)}))
		a := b.Attempt("by "+name, b.Leg(name, -60))
		rs.add(a, b.Ready(a)...)
	}
	require.False(t, b.Store.Shares(t.Context(), b.Store.Ledgers[""]))
	b.Log.Take()
	assert.Equal(t, all(2, protocol.Applied), b.batch(rs))
	names, accounts := b.sent()
	assert.Equal(t, []string{"update"}, names)
	assert.Equal(t, [][]int{{1, 1}}, accounts)
	b.debited(200, 1, "a")
	b.debited(200, 1, "b")
}

// A statement is for 512 accounts at most.
func TestSharedStatementsAreBounded(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.trial()
	var rs requests
	for i := range 600 {
		a := b.Attempt("t", b.Leg(fmt.Sprint(i), -60))
		rs.add(a, storetest.PrepareWith(0, fence0()))
	}
	assert.Equal(t, all(600, protocol.NotMatched), b.batch(rs))
	_, accounts := b.sent()
	assert.Equal(t, [][]int{{512, 88}}, accounts)
}

// Sums at the limits stay exact, and keep their type.
func TestSharedSumsAtTheLimits(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	most, least := money.MaxBalance(money.Whole), money.Units(1)
	huge := money.MaxBalance(money.Decimal)
	tiny := dec("0.000000000001")
	up := func(a, by money.Amount) money.Amount { sum, err := a.Add(by); require.NoError(t, err); return sum }
	var rs requests
	wants := map[string]money.Amount{}
	add := func(name string, balance, amount, want money.Amount) {
		markers := bson.M{"by " + name: amount.Value()}
		b.Put(storetest.Account(name, bson.M{"balance": balance.Value(), "floor": bson.MinKey{}, "pending": markers}))
		rs.add(b.Attempt("by "+name, b.LegIn("", name, amount)), storetest.At(protocol.Settle, 0))
		wants[name] = want
	}
	add("a", most, least, up(most, least))
	add("b", up(money.MaxExact(money.Whole), least.Neg()), least, money.MaxExact(money.Whole))
	add("c", money.MaxExact(money.Whole), least, money.MaxExact(money.Whole)) // no room: asked for by itself
	add("d", most.Neg(), money.Max(money.Whole), up(most.Neg(), money.Max(money.Whole)))
	add("i", money.MaxExact(money.Whole).Neg(), least, up(money.MaxExact(money.Whole).Neg(), least)) // as another program may store it
	add("e", huge, tiny, up(huge, tiny))
	add("f", up(money.MaxExact(money.Decimal), tiny.Neg()), tiny, money.MaxExact(money.Decimal))
	add("g", huge.Neg(), money.Max(money.Decimal), up(huge.Neg(), money.Max(money.Decimal)))
	add("h", money.MaxExact(money.Decimal), tiny, money.MaxExact(money.Decimal)) // no room
	b.trial()
	b.batch(rs)
	_, accounts := b.sent()
	assert.ElementsMatch(t, []int{5, 4}, accounts[0])
	got := results(rs)
	for name, want := range wants {
		stored, err := money.FromBSON(b.Raw("accounts", name).Lookup("balance"))
		require.NoError(t, err, name)
		assert.Zero(t, stored.Cmp(want), "%s: %s, not %s", name, stored, want)
		if name != "c" && name != "h" {
			assert.Equal(t, protocol.Applied, got[name], name)
		}
	}
	assert.Equal(t, protocol.NotMatched, got["c"])
	assert.Equal(t, protocol.NotMatched, got["h"])
}
