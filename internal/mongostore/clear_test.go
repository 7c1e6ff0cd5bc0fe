package mongostore

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// A prepared debit is off the balance and a prepared credit is not on it. Settling pays credits in, undoing gives debits
// back; both remove
// the marker and nothing else, on closed accounts too. The second time nothing matches and nothing changes.
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
				b.put(account(id, bson.M{"balance": row.balance, "pending": bson.M{"other": int64(7)}}))
				w := b.prepared(b.work(id, b.legIn("", id, row.amount)))
				want := account(id, bson.M{"balance": row.prepared, "pending": bson.M{"other": int64(7), id: row.amount.Value()}})
				b.has("accounts", want)
				b.change("accounts", id, bson.M{"$set": bson.M{"closed": true}})

				op := at(row.kind, 0)
				op.ReplaceFence = replace
				b.applied(w, op)
				want = account(id, bson.M{"balance": row.after, "pending": bson.M{"other": int64(7)}, "closed": true})
				b.checkCleared(want, replace)
				after := b.raw("accounts", id)
				for _, kind := range []protocol.Kind{protocol.Settle, protocol.Undo} {
					for _, again := range []protocol.Operation{at(kind, 0), replacing(at(kind, 0))} {
						assert.Equal(t, protocol.NotMatched, b.on(w, again).Result)
						assert.Equal(t, after, b.raw("accounts", id), "cleared twice")
					}
				}
			})
		}
	}
}

// checkCleared asserts a document in which the fence was replaced, or not.
func (b *bank) checkCleared(want bson.M, replaced bool) {
	b.t.Helper()
	if replaced {
		stored := asMap(b.t, b.raw("accounts", want["_id"]))
		_, sent := stored["fence"].(bson.ObjectID)
		_, drawn := stored["fence"].(bson.Timestamp)
		require.True(b.t, sent || drawn)
		require.NotEqual(b.t, fence0(), stored["fence"])
		want["fence"] = stored["fence"]
	}
	b.has("accounts", want)
}

// A fence-only replaces the fence where the marker is absent and changes nothing else; it does not ask whether the account
// is open. Where the
// marker is, or no account, it does nothing.
func TestFenceOnly(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("alice", bson.M{"closed": true, "balance": "spoilt", "fence": nil}), account("bob", nil))
	w := b.work("order", b.leg("alice", -60), b.leg("bob", 60), b.leg("nobody", -1))
	b.applied(w, at(protocol.FenceOnly, 0))
	b.checkCleared(account("alice", bson.M{"closed": true, "balance": "spoilt"}), true)

	b.applied(w, b.ready(w)[1])
	marked := b.raw("accounts", "bob")
	assert.Equal(t, protocol.NotMatched, b.on(w, at(protocol.FenceOnly, 1)).Result)
	assert.Equal(t, marked, b.raw("accounts", "bob"))
	assert.Equal(t, protocol.NotMatched, b.on(w, at(protocol.FenceOnly, 2)).Result)
	assert.Nil(t, b.raw("accounts", "nobody"))
	assert.Equal(t, protocol.NotMatched, b.on(w, at(protocol.Settle, 2)).Result)
	assert.Nil(t, b.raw("accounts", "nobody"))
}

// No fence is ever set twice, not even when the very same operation is performed again,
// or the very same message comes twice: it could bring an old fence back. Where it takes
// a marker to set it, it is drawn here; where it takes none, by the server.
func TestFencesAreUniquePerSending(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("alice", nil), account("bob", nil))
	w := b.prepared(b.work("order", b.leg("alice", -60), b.leg("bob", 60)))
	b.log.take()
	for range 3 {
		b.all(w, replacing(at(protocol.Settle, 0)), replacing(at(protocol.Settle, 1)))
		b.all(w, replacing(at(protocol.Undo, 0)), replacing(at(protocol.Undo, 1)))
		b.all(w, at(protocol.FenceOnly, 0), at(protocol.FenceOnly, 1))
	}
	seen := map[string]bool{wire.RawValue(fence0()).String(): true}
	fresh := func(fence bson.RawValue) {
		require.False(t, seen[fence.String()], "the fence %s was there before", fence)
		seen[fence.String()] = true
	}
	for _, c := range b.log.take() {
		updates, _ := c.body.Lookup("updates").Array().Values()
		require.Len(t, updates, 2)
		for _, update := range updates {
			if fence := update.Document().Lookup("u", "$set", "fence"); fence.Type != 0 {
				fresh(fence)
			}
		}
	}
	assert.Len(t, seen, 1+3*2*2)
	message, _ := wire.UpdateCommand(b.store.Ledgers[""].Commands, []*mergedUpdate{b.store.newMergedUpdate(&Call{Attempt: w, Op: at(protocol.FenceOnly, 0)})})
	message.End()
	for range 100 {
		require.NoError(t, b.db.RunCommand(t.Context(), bson.Raw(message.Data)).Err())
		fresh(b.raw("accounts", "alice").Lookup("fence"))
	}
}

// That a marker is gone doesn't tell that a fence-only has set its fence: somebody else
// may have removed it, and kept the fence.
func TestFenceOnlyIsNotResolved(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("alice", nil))
	r := &Call{
		Attempt: b.work("order", b.leg("alice", -60)), Op: at(protocol.FenceOnly, 0), Answer: protocol.Answer{Result: protocol.NotMatched},
	}
	b.store.resolveUpdates(t.Context(), b.store.Ledgers[""].Majority, []*mergedUpdate{b.store.newMergedUpdate(r)})
	assert.Equal(t, protocol.NotMatched, r.Answer.Result)
}

// A prepare that was sent with the old fence never matches once the fence was replaced, money or no money.
func TestReplacedFenceRefusesOldPrepares(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("alice", nil), account("bob", bson.M{"fence": nil}))
	w := b.work("order", b.leg("alice", -60), b.leg("bob", 60))
	late := b.ready(w)
	b.applied(w, late...)
	b.applied(w, replacing(at(protocol.Undo, 0)), replacing(at(protocol.Undo, 1)))
	before := []bson.Raw{b.raw("accounts", "alice"), b.raw("accounts", "bob")}
	for i, op := range late {
		assert.Equal(t, protocol.NotMatched, b.on(w, op).Result)
		assert.Equal(t, before[i], b.raw("accounts", []string{"alice", "bob"}[i]))
	}
	b.applied(w, b.ready(w)...)
}

// All writes of one ledger in a round are one command, those of two ledgers two. Reads likewise.
func TestOneCommandPerLedger(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("alice", bson.M{"balance": int64(200)}), account("bob", nil))
	b.putIn("accounts_eu", account("carol", nil))
	legs := []document.Leg{b.leg("alice", -60), b.leg("bob", 20), b.legIn("eu", "carol", money.Units(40))}
	for n, commands := range map[int]int{2: 1, 3: 2} {
		w := b.work("order", legs[:n]...)
		var prepares, settles, reads []protocol.Operation
		for i := range n {
			reads = append(reads, at(protocol.ReadFence, i))
			settles = append(settles, at(protocol.Settle, i))
		}
		b.store.fences = newFenceCache(b.store.Clock.Now, LeastFenceMemory)
		b.log.take()
		prepares = b.ready(w)
		assert.Len(t, b.log.take(), commands)
		b.applied(w, prepares...)
		sent := b.log.take()
		assert.Len(t, sent, commands)
		for _, c := range sent {
			assert.Equal(t, "update", c.name)
		}
		b.applied(w, settles...)
		assert.Len(t, b.log.take(), commands)
		b.applied(w, reads...)
		assert.Empty(t, b.log.take(), "the fences are known")
	}
	for id, balance := range map[string]int64{"alice": 80, "bob": 140} {
		b.has("accounts", account(id, bson.M{"balance": balance}))
	}
	b.has("accounts_eu", account("carol", bson.M{"balance": int64(140)}))
}

// The server tells only how many statements of a command have matched. Which of them did is told by a deciding read, where any did.
func TestShortCountIsResolved(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("alice", bson.M{"balance": int64(59)}), account("bob", nil))
	b.putIn("accounts_eu", account("carol", nil))
	w := b.claimed("order", b.leg("alice", -60), b.leg("bob", 20), b.legIn("eu", "carol", money.Units(40)))
	prepares := b.ready(w)
	answers := b.all(w, prepares...)
	assert.Equal(t, protocol.NotMatched, answers[0].Result)
	assert.Equal(t, protocol.Applied, answers[1].Result)
	assert.Equal(t, protocol.Applied, answers[2].Result, "another command")
	looks := b.all(w, at(protocol.Look, 0), at(protocol.Look, 1))
	assert.False(t, looks[0].Facts.Marker)
	assert.False(t, looks[0].Facts.Funds)
	assert.True(t, looks[1].Facts.Marker)
	b.has("accounts", account("alice", bson.M{"balance": int64(59)}))
	b.has("accounts", account("bob", bson.M{"pending": bson.M{"order": int64(20)}}))
	seen, known := w.Seen(0)
	assert.True(t, known)
	assert.Equal(t, money.Units(59), seen)

	answers = b.all(w, replacing(at(protocol.Undo, 0)), replacing(at(protocol.Undo, 1)))
	assert.Equal(t, protocol.NotMatched, answers[0].Result)
	assert.Equal(t, protocol.NotMatched, answers[1].Result, "it has replaced the fence, or somebody else has: that is for a look to tell")
	b.checkCleared(account("bob", nil), true)
}
