package mongostore

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// reads counts the finds that reading the fences of a work costs.
func (b *bank) reads(w *Attempt) int {
	b.t.Helper()
	b.log.take()
	b.ready(w)
	return len(b.log.take())
}

// What a majority read has shown of a participant is not read again, and the answer from memory lets the same prepare through.
func TestKnownFenceNeedsNoRead(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("alice", bson.M{"floor": int64(-20)}), account("bob", bson.M{"fence": nil}))
	first := b.work("order 1", b.leg("alice", -60), b.leg("bob", 60))
	require.Equal(t, 1, b.reads(first))
	b.prepared(first)
	b.applied(first, at(protocol.Settle, 0), at(protocol.Settle, 1))

	second := b.work("order 2", b.leg("bob", -160), b.leg("alice", 160))
	assert.Zero(t, b.reads(second))
	b.prepared(second)
	third := b.work("order 3", b.leg("alice", -60))
	assert.Zero(t, b.reads(third))
	b.prepared(third) // down to the floor, which is remembered, too
	b.has("accounts", account("alice", bson.M{
		"balance": int64(-20), "floor": int64(-20), "pending": bson.M{"order 2": int64(160), "order 3": int64(-60)},
	}))
	b.has("accounts", account("bob", bson.M{"balance": int64(0), "fence": nil, "pending": bson.M{"order 2": int64(-160)}}))
}

// A fence that this process has replaced, and whose answer it has, is known: the next
// prepare matches without a read. One that the server has drawn takes a read.
func TestReplacedFenceIsKnown(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("alice", nil))
	for i, op := range []protocol.Operation{
		replacing(at(protocol.Undo, 0)), replacing(at(protocol.Settle, 0)), at(protocol.FenceOnly, 0),
	} {
		w := b.work(fmt.Sprintf("order %d", i), b.leg("alice", -1))
		if op.Kind == protocol.FenceOnly {
			b.ready(w)
		} else {
			b.prepared(w)
		}
		before := b.raw("accounts", "alice").Lookup("fence")
		b.applied(w, op)
		require.NotEqual(t, before, b.raw("accounts", "alice").Lookup("fence"))
		next := b.work(fmt.Sprintf("next %d", i), b.leg("alice", -1))
		reads := 0
		if op.Kind == protocol.FenceOnly {
			reads = 1
		}
		assert.Equal(t, reads, b.reads(next))
		b.prepared(next)
		b.on(next, at(protocol.Undo, 0))
		assert.Zero(t, b.reads(b.work(fmt.Sprintf("after next %d", i), b.leg("alice", -1))))
	}
	// Where nothing is known of a participant, its new fence alone says too little to spare the read.
	b.store.fences.forget(b.work("x", b.leg("alice", 1)).participants[0].subject)
	w := b.work("last", b.leg("alice", -1))
	b.applied(w, at(protocol.FenceOnly, 0))
	assert.Equal(t, 1, b.reads(w))
}

// What did not match, or was refused, may be due to what is remembered: it is forgotten. (After Unknown: see
// TestAnswersToBrokenCommands.)
func TestRefusedPrepareForgetsTheFence(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("alice", nil), account("bob", nil), account("carol", nil))
	reader := b.work("reader", b.leg("alice", -1), b.leg("bob", 1), b.leg("carol", 1))
	require.Equal(t, 1, b.reads(reader))
	b.change("accounts", "alice", bson.M{"$set": bson.M{"fence": bson.NewObjectID()}})
	b.change("accounts", "bob", bson.M{"$set": bson.M{"pending": "spoilt"}})
	for id, result := range map[string]protocol.Result{"alice": protocol.NotMatched, "bob": protocol.Failed, "carol": protocol.Applied} {
		w := b.work("order", b.leg(id, -1))
		require.Equal(t, result, b.on(w, b.ready(w)[0]).Result)
		reads := 1
		if result == protocol.Applied {
			reads = 0
		}
		assert.Equal(t, reads, b.reads(w), id)
	}
}

// A full participant is read again each time: only a read tells when others have made room. Prepares of this process count at once.
func TestMarkerLimitForcesARead(t *testing.T) {
	t.Parallel()
	b := newBank(t, func(c *config) { c.MarkerLimit = 3 })
	b.put(account("alice", bson.M{"pending": bson.M{"other": int64(1)}}))
	var works []*Attempt
	for i, reads := range []int{1, 0, 1, 1} {
		w := b.work(fmt.Sprintf("order %d", i), b.leg("alice", -1))
		require.Equal(t, reads, b.reads(w), "transfer %d", i)
		if i < 2 {
			b.prepared(w)
			works = append(works, w)
		} else {
			assert.False(t, b.on(w, at(protocol.ReadFence, 0)).Facts.BelowMarkerLimit)
		}
	}
	b.applied(works[0], at(protocol.Settle, 0))
	w := b.work("order 9", b.leg("alice", -1))
	assert.Zero(t, b.reads(w), "a settled one makes room")
	assert.True(t, b.on(w, at(protocol.ReadFence, 0)).Facts.BelowMarkerLimit)
}

// What is known of a participant with many transfers in flight, or without a fence, gets
// old after a minute: others may have put more on the one, and the other may be gone.
// What is known of any other doesn't.
func TestOldFenceIsReadAgain(t *testing.T) {
	t.Parallel()
	var later atomic.Int64
	b := newBank(t, func(c *config) { c.Now = func() time.Time { return time.Unix(later.Load(), 0) } })
	busy := bson.M{"order a": int64(1), "order b": int64(1)} // of 100 that may be
	b.put(account("busy", bson.M{"pending": busy}), account("unfenced", bson.M{"fence": nil}),
		account("quiet", bson.M{"pending": bson.M{"order a": int64(1)}}))
	for _, row := range []struct {
		seconds  int64
		old, new int // reads
	}{{0, 1, 1}, {0, 0, 0}, {59, 0, 0}, {60, 1, 0}, {60, 0, 0}, {119, 0, 0}, {120, 1, 0}, {1 << 30, 1, 0}} {
		later.Store(row.seconds)
		for id, reads := range map[string]int{"busy": row.old, "unfenced": row.old, "quiet": row.new} {
			assert.Equal(t, reads, b.reads(b.work("order", b.leg(id, -1))), "%s after %d seconds", id, row.seconds)
		}
	}
	later.Store(0)
	assert.Equal(t, 1, b.reads(b.work("order", b.leg("busy", -1))), "a clock that was set back makes nothing younger")
}

// One process beside others puts no more on an account than the part of the limit below
// which it is quiet before it looks how much they have put there, however long ago it has
// looked.
func TestOthersMarkersAreSeenInTime(t *testing.T) {
	t.Parallel()
	const limit = 3 * quietShare
	var later atomic.Int64
	b := newBank(t, func(c *config) {
		c.MarkerLimit = limit
		c.Now = func() time.Time { return time.Unix(later.Load(), 0) }
	})
	b.put(account("alice", bson.M{"balance": int64(1000)}))
	require.Equal(t, 1, b.reads(b.work("first", b.leg("alice", -1))))
	full := bson.M{}
	for i := range limit {
		full[fmt.Sprint("other ", i)] = int64(1)
	}
	b.change("accounts", "alice", bson.M{"$set": bson.M{"pending": full}})
	later.Store(1 << 20)
	for i := range limit / quietShare {
		w := b.work(fmt.Sprint("order ", i), b.leg("alice", -1))
		require.Zero(t, b.reads(w), i)
		b.prepared(w)
	}
	w := b.work("last", b.leg("alice", -1))
	require.Equal(t, 1, b.reads(w))
	require.False(t, b.on(w, at(protocol.ReadFence, 0)).Facts.BelowMarkerLimit)
}

// Settles of what others have prepared since the last read make no room that isn't there.
func TestRoomIsNotCountedTwice(t *testing.T) {
	t.Parallel()
	b := newBank(t, func(c *config) { c.MarkerLimit = 2 })
	b.put(account("alice", nil))
	reader := b.work("reader", b.leg("alice", -1))
	b.ready(reader)
	theirs := b.work("theirs", b.leg("alice", 1))
	b.change("accounts", "alice", bson.M{"$set": bson.M{"pending": bson.M{"theirs": int64(1)}}})
	b.applied(theirs, at(protocol.Settle, 0)) // of one that this process has not prepared
	for _, id := range []string{"order 1", "order 2"} {
		b.prepared(b.work(id, b.leg("alice", -1)))
	}
	w := b.work("order 3", b.leg("alice", -1))
	require.Equal(t, 1, b.reads(w))
	require.False(t, b.on(w, at(protocol.ReadFence, 0)).Facts.BelowMarkerLimit)
}

// A participant that can't be used, or isn't there, is read each time: it may have been repaired.
func TestUnusableParticipantIsNotRemembered(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("double", bson.M{"balance": 1.5}), account("odd floor", bson.M{"floor": "none"}))
	for _, id := range []string{"double", "odd floor", "nobody"} {
		w := b.work("order", b.leg(id, -1))
		assert.Equal(t, 1, b.reads(w), id)
		assert.Equal(t, 1, b.reads(w), id)
	}
	// One that was known and got unusable is forgotten.
	b.put(account("alice", nil))
	w := b.work("order", b.leg("alice", -1))
	b.ready(w)
	b.change("accounts", "alice", bson.M{"$set": bson.M{"balance": "spoilt"}})
	require.Equal(t, protocol.NotMatched, b.on(w, b.ready(w)[0]).Result)
	assert.False(t, b.on(w, at(protocol.ReadFence, 0)).Facts.Kind)
	assert.Zero(t, b.store.fences.count())
}

// A known account whose decimal balance was spoilt since is not matched. (An answer of Unknown would be asked for again for ever.)
func TestSpoiltBalanceOfAKnownAccount(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for i, spoilt := range []any{"text", true, bson.M{"a": 1}, bson.A{"text"}, bson.DateTime(5), bson.MinKey{}, bson.Null{},
		decimal("NaN"), decimal("1E-30"), 5.5, int64(5)} {
		id := fmt.Sprintf("account %d", i)
		b.put(account(id, bson.M{"balance": decimal("100")}))
		for _, amount := range []string{"-1.5", "1.5"} {
			w := b.work("order", b.legIn("", id, dec(amount)))
			b.change("accounts", id, bson.M{"$set": bson.M{"balance": decimal("100")}})
			prepares := b.ready(w)
			b.change("accounts", id, bson.M{"$set": bson.M{"balance": spoilt}})
			before := b.raw("accounts", id)
			assert.Equal(t, protocol.NotMatched, b.on(w, prepares[0]).Result, "%s to %v: %v", amount, spoilt, w.Cause)
			assert.Equal(t, before, b.raw("accounts", id))
		}
	}
}

// What is remembered for one kind of amounts does not let the other kind in.
func TestKnownFenceOfAnotherKind(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("alice", nil))
	b.ready(b.work("order 1", b.leg("alice", -1)))
	before := b.raw("accounts", "alice")
	for _, amount := range []string{"-1.5", "1.5"} {
		w := b.work("order 2", b.legIn("", "alice", dec(amount)))
		assert.Equal(t, protocol.NotMatched, b.on(w, b.ready(w)[0]).Result)
	}
	assert.Equal(t, before, b.raw("accounts", "alice"))
}

// One ledger's accounts are not another's.
func TestKnownFencesAreOfOneLedger(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("alice", nil))
	b.putIn("accounts_eu", account("alice", bson.M{"fence": bson.ObjectID{9}}))
	w := b.work("order", b.leg("alice", -1), b.legIn("eu", "alice", money.Units(1)))
	b.applied(w, b.ready(w)...)
	assert.Equal(t, 2, b.store.fences.count())
}

// Without a memory each transfer reads.
func TestNoFenceMemory(t *testing.T) {
	t.Parallel()
	b := newBank(t, func(c *config) { c.FenceBytes = 0 })
	b.put(account("alice", bson.M{"balance": int64(1000)}))
	for i := range 3 {
		w := b.work(fmt.Sprint("order ", i), b.leg("alice", -1))
		require.Equal(t, 1, b.reads(w))
		b.prepared(w)
		b.applied(w, replacing(at(protocol.Settle, 0)))
		require.Equal(t, protocol.NotMatched, b.on(w, at(protocol.Settle, 0)).Result, "which is forgotten")
	}
	require.Zero(t, b.store.fences.count())
}

// A fence or floor that this library doesn't write is read each time, and no other is
// taken for it.
func TestForeignFenceIsNotRemembered(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("text", bson.M{"fence": "a fence"}), account("odd floor", bson.M{"floor": "none"}),
		account("long", bson.M{"fence": bson.Binary{Data: make([]byte, 100)}}))
	for _, id := range []string{"text", "odd floor", "long"} {
		for i := range 2 {
			w := b.work(fmt.Sprint("order ", i), b.leg(id, 1))
			require.Equal(t, 1, b.reads(w), id)
			b.prepared(w)
		}
	}
	require.Zero(t, b.store.fences.count())
}
