package mongostore_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
	"github.com/mongotransfer/transfer/internal/wire"
)

// A prepared debit is off the balance, and a prepared credit is not on it.
// Settling pays credits in, and undoing gives debits back.
// Both remove the marker and nothing else, on closed accounts too.
// The second time nothing matches and nothing changes.
func TestSettleAndUndo(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for name, row := range map[string]struct {
		balance         any
		amount          money.Amount
		kind            protocol.Kind
		prepared, after any
	}{
		"settled debit":          {int64(100), money.Units(-60), protocol.Settle, int64(40), int64(40)},
		"settled credit":         {int64(100), money.Units(60), protocol.Settle, int64(100), int64(160)},
		"undone debit":           {int64(100), money.Units(-60), protocol.Undo, int64(40), int64(100)},
		"undone credit":          {int64(100), money.Units(60), protocol.Undo, int64(100), int64(100)},
		"settled credit, int32":  {int32(100), money.Units(60), protocol.Settle, int32(100), int64(160)},
		"undone debit, int32":    {int32(100), money.Units(-60), protocol.Undo, int64(40), int64(100)},
		"settled decimal credit": {decimal("100.5"), dec("60.25"), protocol.Settle, decimal("100.5"), decimal("160.75")},
		"settled decimal debit":  {decimal("100.5"), dec("-60.25"), protocol.Settle, decimal("40.25"), decimal("40.25")},
		"undone decimal debit":   {decimal("100.5"), dec("-60.25"), protocol.Undo, decimal("40.25"), decimal("100.50")},
		"largest decimals": {decimal("999999999999999999998.999999999999"), dec("1"), protocol.Settle,
			decimal("999999999999999999998.999999999999"), decimal("999999999999999999999.999999999999")},
	} {
		for _, replace := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				b := b.with(t)
				id := name
				if replace {
					id += ", new fence"
				}
				b.Put(storetest.Account(id, bson.M{"balance": row.balance, "pending": bson.M{"other": int64(7)}}))
				a := b.Prepared(b.Attempt(id, b.LegIn("", id, row.amount)))
				want := storetest.Account(id, bson.M{"balance": row.prepared, "pending": bson.M{"other": int64(7), id: row.amount.Value()}})
				b.Has("accounts", want)
				b.Change("accounts", id, bson.M{"$set": bson.M{"closed": true, "frozen": true}})

				op := storetest.At(row.kind, 0)
				op.ReplaceFence = replace
				b.Applied(a, op)
				want = storetest.Account(id, bson.M{
					"balance": row.after, "pending": bson.M{"other": int64(7)}, "closed": true, "frozen": true,
				})
				b.checkCleared(want, replace)
				after := b.Raw("accounts", id)
				for _, kind := range []protocol.Kind{protocol.Settle, protocol.Undo} {
					for _, again := range []protocol.Operation{storetest.At(kind, 0), storetest.Replacing(storetest.At(kind, 0))} {
						assert.Equal(t, protocol.NotMatched, b.On(a, again).Result)
						assert.Equal(t, after, b.Raw("accounts", id), "cleared twice")
					}
				}
			})
		}
	}
}

// checkCleared requires a document, with a replaced fence or the old one.
func (b *bank) checkCleared(want bson.M, replaced bool) {
	b.T.Helper()
	if replaced {
		stored := storetest.AsMap(b.T, b.Raw("accounts", want["_id"]))
		_, sent := stored["fence"].(bson.ObjectID)
		_, drawn := stored["fence"].(bson.Timestamp)
		require.True(b.T, sent || drawn)
		require.NotEqual(b.T, storetest.Fence0(), stored["fence"])
		want["fence"] = stored["fence"]
	}
	b.Has("accounts", want)
}

// A fence-only replaces the fence if the marker is absent, and changes nothing else. It
// works on closed and frozen accounts too.
// If the marker exists, or no account does, it does nothing.
func TestFenceOnly(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	shut := func(fields bson.M) bson.M {
		fields["closed"], fields["frozen"], fields["balance"] = true, true, "spoilt"
		return storetest.Account("alice", fields)
	}
	b.Put(shut(bson.M{"fence": nil}), storetest.Account("bob", nil))
	a := b.Attempt("order", b.Leg("alice", -60), b.Leg("bob", 60), b.Leg("nobody", -1))
	b.Applied(a, storetest.At(protocol.FenceOnly, 0))
	b.checkCleared(shut(bson.M{}), true)

	b.Applied(a, b.Ready(a)[1])
	marked := b.Raw("accounts", "bob")
	assert.Equal(t, protocol.NotMatched, b.On(a, storetest.At(protocol.FenceOnly, 1)).Result)
	assert.Equal(t, marked, b.Raw("accounts", "bob"))
	assert.Equal(t, protocol.NotMatched, b.On(a, storetest.At(protocol.FenceOnly, 2)).Result)
	assert.Nil(t, b.Raw("accounts", "nobody"))
	assert.Equal(t, protocol.NotMatched, b.On(a, storetest.At(protocol.Settle, 2)).Result)
	assert.Nil(t, b.Raw("accounts", "nobody"))
}

// No fence is ever set twice, not even if the same operation or the same message is
// repeated, since it could bring an old fence back.
// The process draws a fence that is set together with removing a marker. The server draws
// all others.
func TestFencesAreUniquePerSending(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", nil), storetest.Account("bob", nil))
	a := b.Prepared(b.Attempt("order", b.Leg("alice", -60), b.Leg("bob", 60)))
	b.Log.Take()
	for range 3 {
		b.All(a, storetest.Replacing(storetest.At(protocol.Settle, 0)), storetest.Replacing(storetest.At(protocol.Settle, 1)))
		b.All(a, storetest.Replacing(storetest.At(protocol.Undo, 0)), storetest.Replacing(storetest.At(protocol.Undo, 1)))
		b.All(a, storetest.At(protocol.FenceOnly, 0), storetest.At(protocol.FenceOnly, 1))
	}
	seen := map[string]bool{wire.RawValue(storetest.Fence0()).String(): true}
	fresh := func(fence bson.RawValue) {
		require.False(t, seen[fence.String()], "the fence %s was there before", fence)
		seen[fence.String()] = true
	}
	for _, c := range b.Log.Take() {
		updates, _ := c.Body.Lookup("updates").Array().Values()
		require.Len(t, updates, 2)
		for _, update := range updates {
			if fence := update.Document().Lookup("u", "$set", "fence"); fence.Type != 0 {
				fresh(fence)
			}
		}
	}
	assert.Len(t, seen, 1+3*2*2)
	message, _ := wire.UpdateCommand(b.Store.Ledgers[""].Commands,
		[]*mongostore.MergedUpdate{b.Store.NewMergedUpdate(&mongostore.Call{Attempt: a, Op: storetest.At(protocol.FenceOnly, 0)})})
	message.End()
	for range 100 {
		require.NoError(t, b.DB.RunCommand(t.Context(), bson.Raw(message.Data)).Err())
		fresh(b.Raw("accounts", "alice").Lookup("fence"))
	}
}

// A missing marker doesn't show that a fence-only has set its fence. Another process may
// have removed the marker and kept the fence.
func TestFenceOnlyIsNotResolved(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", nil))
	call := &mongostore.Call{
		Attempt: b.Attempt("order", b.Leg("alice", -60)), Op: storetest.At(protocol.FenceOnly, 0),
		Answer: protocol.Answer{Result: protocol.NotMatched},
	}
	b.Store.Resolve(t.Context(), b.Store.Ledgers[""].Majority, call)
	assert.Equal(t, protocol.NotMatched, call.Answer.Result)
}

// A prepare with the old fence never matches once the fence was replaced, even if the
// account has the money.
func TestReplacedFenceRefusesOldPrepares(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", nil), storetest.Account("bob", bson.M{"fence": nil}))
	a := b.Attempt("order", b.Leg("alice", -60), b.Leg("bob", 60))
	late := b.Ready(a)
	b.Applied(a, late...)
	b.Applied(a, storetest.Replacing(storetest.At(protocol.Undo, 0)), storetest.Replacing(storetest.At(protocol.Undo, 1)))
	before := []bson.Raw{b.Raw("accounts", "alice"), b.Raw("accounts", "bob")}
	for i, op := range late {
		assert.Equal(t, protocol.NotMatched, b.On(a, op).Result)
		assert.Equal(t, before[i], b.Raw("accounts", []string{"alice", "bob"}[i]))
	}
	b.Applied(a, b.Ready(a)...)
}

// All writes of one ledger in a round are one command, and those of two ledgers are two.
// The same holds for reads.
func TestOneCommandPerLedger(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", bson.M{"balance": int64(200)}), storetest.Account("bob", nil))
	b.PutIn("accounts_eu", storetest.Account("carol", nil))
	legs := []document.Leg{b.Leg("alice", -60), b.Leg("bob", 20), b.LegIn("eu", "carol", money.Units(40))}
	for n, commands := range map[int]int{2: 1, 3: 2} {
		a := b.Attempt("order", legs[:n]...)
		var prepares, settles, reads []protocol.Operation
		for i := range n {
			reads = append(reads, storetest.At(protocol.ReadFence, i))
			settles = append(settles, storetest.At(protocol.Settle, i))
		}
		b.Store.ForgetFences()
		b.Log.Take()
		prepares = b.Ready(a)
		assert.Len(t, b.Log.Take(), commands)
		b.Applied(a, prepares...)
		sent := b.Log.Take()
		assert.Len(t, sent, commands)
		for _, c := range sent {
			assert.Equal(t, "update", c.Name)
		}
		b.Applied(a, settles...)
		assert.Len(t, b.Log.Take(), commands)
		b.Applied(a, reads...)
		assert.Empty(t, b.Log.Take(), "the fences are known")
	}
	for id, balance := range map[string]int64{"alice": 80, "bob": 140} {
		b.Has("accounts", storetest.Account(id, bson.M{"balance": balance}))
	}
	b.Has("accounts_eu", storetest.Account("carol", bson.M{"balance": int64(140)}))
}

// The server reports only how many statements of a command have matched.
// If any did, a deciding read shows which.
func TestShortCountIsResolved(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", bson.M{"balance": int64(59)}), storetest.Account("bob", nil))
	b.PutIn("accounts_eu", storetest.Account("carol", nil))
	a := b.Claimed("order", b.Leg("alice", -60), b.Leg("bob", 20), b.LegIn("eu", "carol", money.Units(40)))
	prepares := b.Ready(a)
	answers := b.All(a, prepares...)
	assert.Equal(t, protocol.NotMatched, answers[0].Result)
	assert.Equal(t, protocol.Applied, answers[1].Result)
	assert.Equal(t, protocol.Applied, answers[2].Result, "another command")
	looks := b.All(a, storetest.At(protocol.Look, 0), storetest.At(protocol.Look, 1))
	assert.Equal(t, protocol.NoTrace, looks[0].Facts.Trace)
	assert.False(t, looks[0].Facts.Funds)
	assert.NotEqual(t, protocol.NoTrace, looks[1].Facts.Trace)
	b.Has("accounts", storetest.Account("alice", bson.M{"balance": int64(59)}))
	b.Has("accounts", storetest.Account("bob", bson.M{"pending": bson.M{"order": int64(20)}}))
	seen := money.Units(59)
	assert.Equal(t, &seen, a.Evidence(0).Balance)

	answers = b.All(a, storetest.Replacing(storetest.At(protocol.Undo, 0)), storetest.Replacing(storetest.At(protocol.Undo, 1)))
	assert.Equal(t, protocol.NotMatched, answers[0].Result)
	assert.Equal(t, protocol.NotMatched, answers[1].Result, "it has replaced the fence, or somebody else has: that is for a look to tell")
	b.checkCleared(storetest.Account("bob", nil), true)
}
