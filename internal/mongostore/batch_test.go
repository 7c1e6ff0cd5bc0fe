package mongostore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
	"github.com/mongotransfer/transfer/internal/wire"
)

// requests are the calls of several attempts at the same time.
type requests []*mongostore.Call

func (rs *requests) add(a *mongostore.Attempt, operations ...protocol.Operation) {
	for _, op := range operations {
		*rs = append(*rs, &mongostore.Call{Attempt: a, Op: op})
	}
}

// batch performs requests of one lane, and returns their results.
func (b *bank) batch(rs requests) []protocol.Result {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(b.T.Context(), 20*time.Second)
	defer cancel()
	lane := mongostore.LaneOf(rs[0].Attempt, rs[0].Op)
	results := make([]protocol.Result, len(rs))
	for _, call := range rs {
		require.Equal(b.T, lane, mongostore.LaneOf(call.Attempt, call.Op))
	}
	b.Store.Perform(ctx, lane, rs)
	for i, call := range rs {
		results[i] = call.Answer.Result
	}
	return results
}

func all(n int, result protocol.Result) []protocol.Result {
	results := make([]protocol.Result, n)
	for i := range results {
		results[i] = result
	}
	return results
}

// crowd returns n attempts at transfers of units each, from alice to others.
func (b *bank) crowd(n int, units int64) []*mongostore.Attempt {
	b.T.Helper()
	attempts := make([]*mongostore.Attempt, n)
	var rs requests
	for i := range attempts {
		attempts[i] = b.Attempt(fmt.Sprint("t", i), b.Leg("alice", -units), b.Leg(fmt.Sprint("to ", i), units))
		rs.add(attempts[i], storetest.Claim(protocol.Insert))
	}
	require.Equal(b.T, all(n, protocol.Applied), b.batch(rs))
	return attempts
}

// prepares reads the fences of all participants of the attempts, and returns the prepares
// of each attempt's n-th.
func prepares(b *bank, n int, attempts ...*mongostore.Attempt) requests {
	b.T.Helper()
	var rs requests
	for _, a := range attempts {
		rs.add(a, b.Ready(a)[n])
	}
	return rs
}

func of(op protocol.Operation, attempts ...*mongostore.Attempt) requests {
	var rs requests
	for _, a := range attempts {
		rs.add(a, op)
	}
	return rs
}

// The prepares of many transfers on one account are one statement, and so are their
// settles, and the settles of some with the prepares of others.
// Debits add up, and credits wait in their markers.
func TestStatementsOnOneAccountCoalesce(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", bson.M{"balance": int64(1000)}))
	attempts := b.crowd(10, 30)
	rs := prepares(b, 0, attempts[:6]...)
	b.Log.Take()
	assert.Equal(t, all(6, protocol.Applied), b.batch(rs))
	assert.Equal(t, []int{1}, b.statements())
	markers := bson.M{}
	for i := range 6 {
		markers[fmt.Sprint("t", i)] = int64(-30)
	}
	b.Has("accounts", storetest.Account("alice", bson.M{"balance": int64(820), "pending": markers}))

	rs = append(of(storetest.At(protocol.Undo, 0), attempts[0], attempts[1]), of(storetest.At(protocol.Settle, 0), attempts[2:6]...)...)
	rs = append(rs, prepares(b, 0, attempts[6:]...)...)
	b.Log.Take()
	assert.Equal(t, all(10, protocol.Applied), b.batch(rs))
	assert.Equal(t, []int{1}, b.statements())
	markers = bson.M{}
	for i := 6; i < 10; i++ {
		markers[fmt.Sprint("t", i)] = int64(-30)
	}
	b.Has("accounts", storetest.Account("alice", bson.M{"balance": int64(760), "pending": markers}))
}

// statements returns the number of statements in each update since the last call.
func (b *bank) statements() []int {
	b.T.Helper()
	var counts []int
	for _, c := range b.Log.Take() {
		if c.Name == "update" {
			list, err := c.Body.Lookup("updates").Array().Values()
			require.NoError(b.T, err)
			counts = append(counts, len(list))
		}
	}
	return counts
}

// If the money doesn't cover all prepares that come together, it goes to the first ones,
// and each of them has an answer of its own.
func TestSplitIsFair(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", bson.M{"balance": int64(100)}))
	attempts := b.crowd(5, 30)
	applied, not := protocol.Applied, protocol.NotMatched
	assert.Equal(t, []protocol.Result{applied, applied, applied, not, not}, b.batch(prepares(b, 0, attempts...)))
	b.Has("accounts", storetest.Account("alice", bson.M{
		"balance": int64(10), "pending": bson.M{"t0": int64(-30), "t1": int64(-30), "t2": int64(-30)},
	}))
}

// A prepare can spend what a settle or undo pays in by the same statement.
// If that fails, the payment is made all the same.
func TestPaidInIsSpent(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", bson.M{"balance": int64(50)}))
	attempts := b.crowd(4, 50)
	require.Equal(t, all(1, protocol.Applied), b.batch(prepares(b, 0, attempts[0])))
	rs := append(of(storetest.At(protocol.Undo, 0), attempts[0]), prepares(b, 0, attempts[1])...)
	assert.Equal(t, all(2, protocol.Applied), b.batch(rs))
	b.Has("accounts", storetest.Account("alice", bson.M{"balance": int64(0), "pending": bson.M{"t1": int64(-50)}}))
	rs = append(of(storetest.At(protocol.Undo, 0), attempts[1]), prepares(b, 0, attempts[2], attempts[3])...)
	assert.Equal(t, []protocol.Result{protocol.Applied, protocol.Applied, protocol.NotMatched}, b.batch(rs))
	b.Has("accounts", storetest.Account("alice", bson.M{"balance": int64(0), "pending": bson.M{"t2": int64(-50)}}))
}

// Some calls never share a statement: prepares with different fences, currencies or
// floors, a settle that replaces the fence and a prepare, two executions of one transfer,
// and a fence-only and any other call.
func TestWhatDoesNotCoalesce(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	first, second := b.Attempt("first", b.Leg("alice", -60)), b.Attempt("second", b.Leg("alice", -60))
	prepare, settle := storetest.PrepareWith(0, "f"), storetest.At(protocol.Settle, 0)
	for name, change := range map[string]func(*mongostore.Attempt, *protocol.Operation){
		"another fence":    func(_ *mongostore.Attempt, op *protocol.Operation) { op.Fence = "g" },
		"another currency": func(a *mongostore.Attempt, _ *protocol.Operation) { a.Transfer.Currency = "EUR" },
		"a leg of another currency": func(a *mongostore.Attempt, _ *protocol.Operation) {
			a.Participant(0).Leg().Currency = "EUR"
		},
		"another floor": func(a *mongostore.Attempt, _ *protocol.Operation) {
			a.Participant(0).Floor().Stored = wire.RawValue(int64(-5))
		},
		"the same transfer": func(a *mongostore.Attempt, _ *protocol.Operation) {
			a.Transfer.ID = "first"
		},
		"another kind":        func(a *mongostore.Attempt, _ *protocol.Operation) { a.Participant(0).Leg().Amount = dec("-60.00") },
		"a fence-only":        func(_ *mongostore.Attempt, op *protocol.Operation) { *op = storetest.At(protocol.FenceOnly, 0) },
		"a replacing settle":  func(_ *mongostore.Attempt, op *protocol.Operation) { *op = storetest.Replacing(settle) },
		"a different account": func(a *mongostore.Attempt, _ *protocol.Operation) { a.Participant(0).Subject().ID = "bob" },
	} {
		a, op := b.Attempt("second", b.Leg("alice", -60)), prepare
		change(a, &op)
		var rs requests
		rs.add(first, prepare)
		rs.add(a, op)
		assert.Len(t, b.Store.Merge(rs), 2, name)
		rs[0], rs[1] = rs[1], rs[0]
		assert.Len(t, b.Store.Merge(rs), 2, name)
	}
	var rs requests
	rs.add(first, storetest.Replacing(settle))
	rs.add(second, storetest.Replacing(storetest.At(protocol.Undo, 0)))
	rs.add(b.Attempt("third", b.Leg("alice", -60)), settle)
	require.Len(t, b.Store.Merge(rs), 1, "one new fence serves all that replace it")
}

// A command that is too large for a server is split, and its answers are put together
// again.
func TestCommandsAreBounded(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	var rs requests
	large := encode(bson.M{"x": strings.Repeat("x", wire.MaxCommandBytes/2)})
	for i := range 3 {
		a := b.Attempt(fmt.Sprint("t", i), b.Leg("alice", -1))
		a.Transfer.Metadata = large
		rs.add(a, storetest.Claim(protocol.Insert))
	}
	b.Claimed("t1", b.Leg("alice", -1))
	b.Log.Take()
	assert.Equal(t, []protocol.Result{protocol.Applied, protocol.NotMatched, protocol.Applied}, b.batch(rs))
	assert.Equal(t, []string{"insert", "insert", "insert"}, storetest.Names(b.Log.Take()))

	long := make([]wire.Encoded, 5)
	for i := range long {
		set := bson.D{{Key: "$set", Value: bson.D{{Key: fmt.Sprint("x", i), Value: strings.Repeat("x", wire.MaxCommandBytes/3)}}}}
		var err error
		long[i], err = wire.EncodeUpdate(bson.D{{Key: "_id", Value: fmt.Sprint("other", i%4)}}, set)
		require.NoError(t, err)
	}
	b.Put(storetest.Account("other0", nil), storetest.Account("other1", nil), storetest.Account("other3", nil))
	done := wire.UpdateAll(t.Context(), b.Store.Ledgers[""].Commands, long)
	assert.Equal(t, []string{"update", "update", "update"}, storetest.Names(b.Log.Take()))
	assert.True(t, done.Matched)
	assert.True(t, done.Short)
	var results []protocol.Result
	for _, v := range done.Verdicts {
		results = append(results, v.Result)
	}
	not := protocol.NotMatched
	assert.Equal(t, []protocol.Result{protocol.Applied, protocol.Applied, not, not, protocol.Applied}, results)
}

// A statement for several transfers is not repeated one by one as long as it may be
// stored.
// Only a read that was answered shows that it is not.
func TestNothingIsSplitUnknowingly(t *testing.T) {
	b := newBank(t)
	b.Put(storetest.Account("alice", bson.M{"balance": int64(100)}), storetest.Account("bob", bson.M{"balance": int64(0)}))
	attempts := []*mongostore.Attempt{
		b.Attempt("t0", b.Leg("alice", -10), b.Leg("bob", -1)), b.Attempt("t1", b.Leg("alice", -10), b.Leg("bob", -1)),
	}
	rs := prepares(b, 0, attempts...)
	rs = append(rs, prepares(b, 1, attempts[0])...)
	b.Log.Take()
	stop := b.Failing(1, []string{"find"}, bson.M{"errorCode": 2})
	assert.Equal(t, all(3, protocol.NotMatched), b.batch(rs))
	stop()
	assert.Equal(t, []int{2}, b.statements())
	b.Has("accounts", storetest.Account("alice", bson.M{"balance": int64(80), "pending": bson.M{"t0": int64(-10), "t1": int64(-10)}}))
}

// Through a mongos, a linearizable read shows which statements have matched, since the
// write that they share may concern another shard.
func TestShortCountIsResolvedThroughMongos(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", bson.M{"balance": int64(15)}), storetest.Account("bob", nil))
	attempts := []*mongostore.Attempt{
		b.Attempt("t0", b.Leg("alice", -10), b.Leg("bob", 10)),
		b.Attempt("t1", b.Leg("alice", -10), b.Leg("bob", 10)),
	}
	rs := append(prepares(b, 0, attempts...), prepares(b, 1, attempts...)...)
	b.Store.CheckedClients.Store(b.Store.Transfers.Database().Client(), true)
	b.Log.Take()
	applied := protocol.Applied
	assert.Equal(t, []protocol.Result{applied, protocol.NotMatched, applied, applied}, b.batch(rs))
	for _, c := range b.Log.Take() {
		if c.Name == "find" {
			assert.Equal(t, "linearizable", c.Text("readConcern", "level"))
		}
	}
}

// The statement of one account that the server certainly refuses is always repeated one
// by one, so that one transfer's fault doesn't affect the others.
func TestRefusedStatementIsSplit(t *testing.T) {
	b := newBank(t)
	b.Put(storetest.Account("alice", bson.M{"balance": int64(100)}), storetest.Account("bob", bson.M{"balance": int64(0)}))
	require.NoError(t, b.DB.RunCommand(t.Context(), bson.D{
		{Key: "collMod", Value: "accounts"}, {Key: "validator", Value: bson.M{"pending.bad": bson.M{"$exists": false}}},
	}).Err())
	good, bad := b.Attempt("good", b.Leg("alice", -10)), b.Attempt("bad", b.Leg("alice", -10))
	rs := prepares(b, 0, good, bad, b.Attempt("not", b.Leg("bob", -1)))
	stop := b.Failing(1, []string{"find"}, bson.M{"errorCode": 2})
	results := b.batch(rs)
	stop()
	assert.Equal(t, []protocol.Result{protocol.Applied, protocol.Failed, protocol.NotMatched}, results)
}

// Each ledger is checked for a mongos by itself. The replica set of the transfers says
// nothing about that.
func TestRoutedLedgerOfAnotherCluster(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", bson.M{"balance": int64(15)}), storetest.Account("bob", nil))
	elsewhere := b.reconnected(t, 1)
	b.Store.Ledgers[""] = elsewhere.Store.Ledgers[""]
	b.Store.Ledgers[""].SameClient = false
	b.Store.CheckedClients.Store(elsewhere.Store.Transfers.Database().Client(), true)
	attempts := []*mongostore.Attempt{
		b.Attempt("t0", b.Leg("alice", -10), b.Leg("bob", 10)),
		b.Attempt("t1", b.Leg("alice", -10), b.Leg("bob", 10)),
	}
	rs := append(prepares(b, 0, attempts...), prepares(b, 1, attempts...)...)
	elsewhere.Log.Take()
	b.batch(rs)
	for _, c := range elsewhere.Log.Take() {
		if c.Name == "find" {
			assert.Equal(t, "linearizable", c.Text("readConcern", "level"))
		}
	}
}

// Amounts far beyond the limits, as only another program could have stored them, share no
// statement, because their sum would not be exact.
func TestInexactSumsAreNotMade(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	huge, err := money.FromBSON(wire.RawValue(decimal("1E+40")))
	require.NoError(t, err)
	for _, kind := range []protocol.Kind{protocol.Prepare, protocol.Settle, protocol.Undo} {
		for _, of := range []money.Amount{huge, huge.Neg()} {
			one, other := b.Attempt("t", b.LegIn("", "alice", of)), b.Attempt("u", b.LegIn("", "alice", dec("-0.01")))
			if of.Sign() > 0 {
				other = b.Attempt("u", b.LegIn("", "alice", dec("0.01")))
			}
			var rs requests
			rs.add(one, storetest.At(kind, 0))
			rs.add(other, storetest.At(kind, 0))
			sums := kind == protocol.Prepare && of.Sign() < 0 || kind == protocol.Settle && of.Sign() > 0 || kind == protocol.Undo && of.Sign() < 0
			assert.Equal(t, sums, len(b.Store.Merge(rs)) == 2)
		}
	}
}

// A server that hangs delays neither the use nor the check of other servers.
func TestHangingServerKeepsNobodyFromTheOthers(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	hanging := mongotest.Client(t)
	full := collections.NewSharedCheck()
	for range collections.MaxAsking {
		full.Turns <- struct{}{}
	}
	b.Store.ServerChecks.Store(hanging, full)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, b.Store.Connect(ctx, document.Address{}))
	b.Store.Ledgers["eu"].Commands = hanging.Database(b.DB.Name()).Collection("accounts_eu")
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, b.Store.Connect(ctx, document.Address{Name: "eu"}), context.DeadlineExceeded)
}

// If the server refuses a command of several requests as a whole, each may be the cause,
// and asks to be performed alone from then on.
// A request that was alone already doesn't, nor does one whose command was merely lost.
func TestRefusedCommandsAreTriedAlone(t *testing.T) {
	b := newBank(t)
	b.Put(storetest.Account("alice", bson.M{"balance": int64(100)}))
	attempts := b.crowd(3, 10)
	rs := prepares(b, 0, attempts...)
	for _, row := range []struct {
		code  int
		rs    requests
		alone bool
	}{{66, rs[:2], true}, {66, rs[2:], false}, {91, rs[:2], false}} {
		stop := b.Failing(1, []string{"update"}, bson.M{"errorCode": row.code})
		assert.Equal(t, all(len(row.rs), protocol.Unknown), b.batch(row.rs))
		stop()
		for _, call := range row.rs {
			assert.Equal(t, row.alone, call.Alone, row.code)
		}
	}
}
