package mongostore_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// An account that the server has refused to write has a statement of its own, until the
// server takes it.
func TestRefusedAccountIsApart(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	rs := b.opened(200, "a", "b", "c", "d", "e")
	b.keep("c")
	b.batch(rs)
	b.Log.Take()
	failed, applied := protocol.Failed, protocol.Applied
	var undo requests
	for _, call := range rs {
		undo.add(call.Attempt, storetest.At(protocol.Undo, 0))
	}
	undo[2].Op = rs[2].Op
	b.batch(undo)
	_, accounts := b.sent()
	assert.Equal(t, [][]int{{1, 1, 1, 1, 1}}, accounts, "those that were not changed are apart once, and two are too few")
	assert.Equal(t, map[string]protocol.Result{"a": applied, "b": applied, "c": failed, "d": applied, "e": applied}, results(undo))
	b.batch(rs)
	_, accounts = b.sent()
	assert.Equal(t, [][]int{{4, 1}}, accounts)
	b.batch(undo)
	var wrong requests
	wrong.add(rs[2].Attempt, storetest.PrepareWith(0, ""))
	require.Equal(t, all(1, protocol.NotMatched), b.batch(wrong))
	b.Log.Take()
	b.batch(rs)
	_, accounts = b.sent()
	assert.Equal(t, [][]int{{4, 1}}, accounts, "what did not match shows nothing")
	b.batch(undo)
	b.validate(bson.M{})
	b.Log.Take()
	assert.Equal(t, all(5, applied), b.batch(rs))
	undo[2].Op = storetest.At(protocol.Undo, 0)
	assert.Equal(t, all(5, applied), b.batch(undo))
	_, accounts = b.sent()
	assert.Equal(t, [][]int{{4, 1}, {5}}, accounts, "the server has taken it since")
}

// An account that a shared statement leaves as it is, because it is not quite as the
// library writes it, has a statement of its own the next time.
func TestUnusualAccountIsApartNext(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	rs := b.opened(200, "a", "b", "c", "d")
	b.Change("accounts", "c", bson.M{"$set": bson.M{"closed": int32(0)}})
	applied := protocol.Applied
	assert.Equal(t, []protocol.Result{applied, applied, protocol.NotMatched, applied}, b.batch(rs))
	names, accounts := b.sent()
	assert.Equal(t, []string{"update", "find"}, names)
	assert.Equal(t, [][]int{{4}}, accounts)
	var next requests
	for _, call := range rs {
		next.add(call.Attempt, storetest.At(protocol.Settle, 0))
	}
	next[2].Op = rs[2].Op
	assert.Equal(t, all(4, applied), b.batch(next))
	_, accounts = b.sent()
	assert.Equal(t, [][]int{{3, 1}}, sortedSizes(accounts))
	b.Has("accounts", storetest.Account("c", bson.M{"balance": int64(140), "pending": bson.M{"by c": int64(-60)}, "closed": int32(0)}))
	next = of(storetest.At(protocol.Settle, 0), rs[2].Attempt)
	assert.Equal(t, all(1, applied), b.batch(next))
}

// So has one that another transfer writes to in the same update.
func TestUnusualAccountIsApartForAll(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	rs := b.opened(200, "a", "b", "c")
	b.Change("accounts", "c", bson.M{"$set": bson.M{"closed": int32(0)}})
	applied := protocol.Applied
	require.Equal(t, []protocol.Result{applied, applied, protocol.NotMatched}, b.batch(rs))
	var next requests
	for _, name := range []string{"a", "b", "c"} {
		another := b.Attempt("another by "+name, b.Leg(name, -60))
		next.add(another, b.Ready(another)...)
	}
	next = append(next, rs[2])
	b.PutIn("accounts", storetest.Account("d", nil))
	third := b.Attempt("by d", b.Leg("d", -60))
	next.add(third, b.Ready(third)...)
	b.Log.Take()
	assert.Equal(t, all(5, applied), b.batch(next))
	_, accounts := b.sent()
	assert.Equal(t, [][]int{{3, 1}}, accounts)
}

// What a statement for one account does not match says nothing about the account.
func TestMissedPrepareIsNotApartNext(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	rs := b.opened(200, "a", "b", "c")
	var wrong requests
	wrong.add(rs[0].Attempt, storetest.PrepareWith(0, ""))
	require.Equal(t, all(1, protocol.NotMatched), b.batch(wrong))
	b.Log.Take()
	assert.Equal(t, all(3, protocol.Applied), b.batch(rs))
	_, accounts := b.sent()
	assert.Equal(t, [][]int{{3}}, accounts)
}

// sortedSizes orders the statements of each command by their sizes, the largest first:
// those of different shapes stand in no order.
func sortedSizes(accounts [][]int) [][]int {
	for _, sizes := range accounts {
		for i := range sizes {
			for j := i; j > 0 && sizes[j] > sizes[j-1]; j-- {
				sizes[j], sizes[j-1] = sizes[j-1], sizes[j]
			}
		}
	}
	return accounts
}

// Statements are for one account each on a mongos, for documents, for effects, where a
// fence is set, and where an account has several updates in one command, which keep their
// order.
func TestWhatIsApart(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	rs := b.opened(200, "a", "b", "c")
	debit := func() requests {
		var next requests
		for _, call := range rs {
			a := b.Attempt("later "+call.Attempt.Transfer.ID, *call.Attempt.Participant(0).Leg())
			next.add(a, b.Ready(a)...)
		}
		b.Log.Take()
		return next
	}
	require.Equal(t, all(3, protocol.Applied), b.batch(rs))
	_, accounts := b.sent()
	require.Equal(t, [][]int{{3}}, accounts)

	var replaced requests
	for _, call := range rs {
		replaced.add(call.Attempt, storetest.Replacing(storetest.At(protocol.Settle, 0)))
	}
	require.Equal(t, all(3, protocol.Applied), b.batch(replaced))
	_, accounts = b.sent()
	assert.Equal(t, [][]int{{1, 1, 1}}, accounts, "they set a fence")

	rs = debit()
	for i := range rs {
		rs[i].Op = storetest.At(protocol.FenceOnly, 0)
	}
	require.Equal(t, all(3, protocol.Applied), b.batch(rs))
	_, accounts = b.sent()
	assert.Equal(t, [][]int{{1, 1, 1}}, accounts, "they draw a fence")

	rs = debit()
	b.Store.CheckedClients.Store(b.Store.Transfers.Database().Client(), true)
	require.Equal(t, all(3, protocol.Applied), b.batch(rs))
	_, accounts = b.sent()
	assert.Equal(t, [][]int{{1, 1, 1}}, accounts, "through a mongos")
	b.Store.CheckedClients.Store(b.Store.Transfers.Database().Client(), false)
}

// Updates of one account that can't be merged keep their order, in statements of their
// own, beside one that others share.
func TestUpdatesOfOneAccountKeepTheirOrder(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	rs := b.opened(200, "a", "b", "c", "d")
	require.Equal(t, all(1, protocol.Applied), b.batch(rs[:1]))
	again := b.Attempt("again", b.Leg("a", -60))
	prepare := b.Ready(again)[0]
	b.Log.Take()
	var mixed requests
	mixed.add(rs[0].Attempt, storetest.Replacing(storetest.At(protocol.Undo, 0)))
	mixed.add(again, prepare)
	mixed = append(mixed, rs[1:]...)
	applied := protocol.Applied
	not := protocol.NotMatched
	assert.Equal(t, []protocol.Result{not, not, applied, applied, applied}, b.batch(mixed), "who sets a fence has to know that it was itself")
	_, accounts := b.sent()
	assert.Equal(t, [][]int{{3, 1, 1}}, accounts)
	b.debited(200, 1, "b")
	fence := b.Raw("accounts", "a").Lookup("fence").ObjectID()
	assert.NotEqual(t, storetest.Fence0(), fence)
	b.Has("accounts", storetest.Account("a", bson.M{"balance": int64(200), "fence": fence}))

	mixed = nil
	mixed.add(again, b.Ready(again)...)
	mixed.add(again, storetest.At(protocol.Undo, 0))
	for _, call := range rs[1:] {
		mixed.add(call.Attempt, storetest.At(protocol.Undo, 0))
	}
	b.Log.Take()
	assert.Equal(t, all(5, applied), b.batch(mixed))
	_, accounts = b.sent()
	assert.Equal(t, [][]int{{3, 1, 1}}, accounts)
}

// The documents of effects have statements of their own.
func TestEffectsAreApart(t *testing.T) {
	t.Parallel()
	b := newBank(t, func(c *storetest.Config) {
		c.Documents = map[string]*mongo.Collection{"orders": c.Transfers.Database().Collection("orders")}
	})
	var rs requests
	for _, id := range []string{"1", "2", "3"} {
		b.PutIn("orders", bson.M{"_id": id, "status": "open"})
		a := b.changing("t"+id, b.effect(id, bson.D{{Key: "status", Value: "open"}}, bson.D{{Key: "status", Value: "$paid"}}))
		rs.add(a, storetest.PrepareWith(0, ""))
	}
	b.Log.Take()
	require.Equal(t, all(3, protocol.Applied), b.batch(rs))
	_, accounts := b.sent()
	assert.Equal(t, [][]int{{1, 1, 1}}, accounts)
}
