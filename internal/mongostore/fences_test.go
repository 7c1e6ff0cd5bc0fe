package mongostore_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/fences"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// reads counts the finds for the fences of an attempt.
func (b *bank) reads(a *mongostore.Attempt) int {
	b.T.Helper()
	b.Log.Take()
	b.Ready(a)
	return len(b.Log.Take())
}

// A participant that a majority read has shown is not read again, and the remembered
// answer lets the same prepare through.
func TestKnownFenceNeedsNoRead(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", bson.M{"floor": int64(-20)}), storetest.Account("bob", bson.M{"fence": nil}))
	first := b.Attempt("order 1", b.Leg("alice", -60), b.Leg("bob", 60))
	require.Equal(t, 1, b.reads(first))
	b.Prepared(first)
	b.Applied(first, storetest.At(protocol.Settle, 0), storetest.At(protocol.Settle, 1))

	second := b.Attempt("order 2", b.Leg("bob", -160), b.Leg("alice", 160))
	assert.Zero(t, b.reads(second))
	b.Prepared(second)
	third := b.Attempt("order 3", b.Leg("alice", -60))
	assert.Zero(t, b.reads(third))
	b.Prepared(third) // down to the floor, which is remembered too
	b.Has("accounts", storetest.Account("alice", bson.M{
		"balance": int64(-20), "floor": int64(-20), "pending": bson.M{"order 2": int64(160), "order 3": int64(-60)},
	}))
	b.Has("accounts", storetest.Account("bob", bson.M{"balance": int64(0), "fence": nil, "pending": bson.M{"order 2": int64(-160)}}))
}

// A fence that this process has replaced, with an answer, is known, and the next prepare
// matches without a read.
// A fence that the server has drawn takes a read.
func TestReplacedFenceIsKnown(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", nil))
	for i, op := range []protocol.Operation{
		storetest.Replacing(storetest.At(protocol.Undo, 0)), storetest.Replacing(storetest.At(protocol.Settle, 0)),
		storetest.At(protocol.FenceOnly, 0),
	} {
		a := b.Attempt(fmt.Sprintf("order %d", i), b.Leg("alice", -1))
		if op.Kind == protocol.FenceOnly {
			b.Ready(a)
		} else {
			b.Prepared(a)
		}
		before := b.Raw("accounts", "alice").Lookup("fence")
		b.Applied(a, op)
		require.NotEqual(t, before, b.Raw("accounts", "alice").Lookup("fence"))
		next := b.Attempt(fmt.Sprintf("next %d", i), b.Leg("alice", -1))
		reads := 0
		if op.Kind == protocol.FenceOnly {
			reads = 1
		}
		assert.Equal(t, reads, b.reads(next))
		b.Prepared(next)
		b.On(next, storetest.At(protocol.Undo, 0))
		assert.Zero(t, b.reads(b.Attempt(fmt.Sprintf("after next %d", i), b.Leg("alice", -1))))
	}
	// If nothing is known about a participant, its new fence alone can't spare the read.
	b.Store.ForgetFence(*b.Attempt("x", b.Leg("alice", 1)).Participant(0).Subject())
	a := b.Attempt("last", b.Leg("alice", -1))
	b.Applied(a, storetest.At(protocol.FenceOnly, 0))
	assert.Equal(t, 1, b.reads(a))
}

// A prepare that did not match, or was refused, may have used outdated facts, so these
// are forgotten.
// (After Unknown: see TestAnswersToBrokenCommands.)
func TestRefusedPrepareForgetsTheFence(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", nil), storetest.Account("bob", nil), storetest.Account("carol", nil))
	reader := b.Attempt("reader", b.Leg("alice", -1), b.Leg("bob", 1), b.Leg("carol", 1))
	require.Equal(t, 1, b.reads(reader))
	b.Change("accounts", "alice", bson.M{"$set": bson.M{"fence": bson.NewObjectID()}})
	b.Change("accounts", "bob", bson.M{"$set": bson.M{"pending": "spoilt"}})
	for id, result := range map[string]protocol.Result{"alice": protocol.NotMatched, "bob": protocol.Failed, "carol": protocol.Applied} {
		a := b.Attempt("order", b.Leg(id, -1))
		require.Equal(t, result, b.On(a, b.Ready(a)[0]).Result)
		reads := 1
		if result == protocol.Applied {
			reads = 0
		}
		assert.Equal(t, reads, b.reads(a), id)
	}
}

// A full participant is read each time, because only a read shows whether others have
// made room.
// Prepares of this process count at once.
func TestMarkerLimitForcesARead(t *testing.T) {
	t.Parallel()
	b := newBank(t, func(c *storetest.Config) { c.MarkerLimit = 3 })
	b.Put(storetest.Account("alice", bson.M{"pending": bson.M{"other": int64(1)}}))
	var attempts []*mongostore.Attempt
	for i, reads := range []int{1, 0, 1, 1} {
		a := b.Attempt(fmt.Sprintf("order %d", i), b.Leg("alice", -1))
		require.Equal(t, reads, b.reads(a), "transfer %d", i)
		if i < 2 {
			b.Prepared(a)
			attempts = append(attempts, a)
		} else {
			assert.False(t, b.On(a, storetest.At(protocol.ReadFence, 0)).Facts.BelowMarkerLimit)
		}
	}
	b.Applied(attempts[0], storetest.At(protocol.Settle, 0))
	a := b.Attempt("order 9", b.Leg("alice", -1))
	assert.Zero(t, b.reads(a), "a settled one makes room")
	assert.True(t, b.On(a, storetest.At(protocol.ReadFence, 0)).Facts.BelowMarkerLimit)
}

// Facts about a participant with many transfers in flight, or without a fence, expire
// after a minute. Other processes may have added transfers or removed the document.
// Facts about any other participant don't expire.
func TestOldFenceIsReadAgain(t *testing.T) {
	t.Parallel()
	var later atomic.Int64
	b := newBank(t, func(c *storetest.Config) { c.Now = func() time.Time { return time.Unix(later.Load(), 0) } })
	busy := bson.M{"order a": int64(1), "order b": int64(1)} // the limit is 100
	b.Put(storetest.Account("busy", bson.M{"pending": busy}), storetest.Account("unfenced", bson.M{"fence": nil}),
		storetest.Account("quiet", bson.M{"pending": bson.M{"order a": int64(1)}}))
	for _, row := range []struct {
		seconds  int64
		old, new int // reads
	}{{0, 1, 1}, {0, 0, 0}, {59, 0, 0}, {60, 1, 0}, {60, 0, 0}, {119, 0, 0}, {120, 1, 0}, {1 << 30, 1, 0}} {
		later.Store(row.seconds)
		for id, reads := range map[string]int{"busy": row.old, "unfenced": row.old, "quiet": row.new} {
			assert.Equal(t, reads, b.reads(b.Attempt("order", b.Leg(id, -1))), "%s after %d seconds", id, row.seconds)
		}
	}
	later.Store(0)
	assert.Equal(t, 1, b.reads(b.Attempt("order", b.Leg("busy", -1))), "a clock that was set back makes nothing younger")
}

// One process among others adds at most the part of the limit below which an account is
// quiet before it reads again how many markers the others have set, however old its last
// read is.
func TestOthersMarkersAreSeenInTime(t *testing.T) {
	t.Parallel()
	const limit = 3 * fences.QuietShare
	var later atomic.Int64
	b := newBank(t, func(c *storetest.Config) {
		c.MarkerLimit = limit
		c.Now = func() time.Time { return time.Unix(later.Load(), 0) }
	})
	b.Put(storetest.Account("alice", bson.M{"balance": int64(1000)}))
	require.Equal(t, 1, b.reads(b.Attempt("first", b.Leg("alice", -1))))
	full := bson.M{}
	for i := range limit {
		full[fmt.Sprint("other ", i)] = int64(1)
	}
	b.Change("accounts", "alice", bson.M{"$set": bson.M{"pending": full}})
	later.Store(1 << 20)
	for i := range limit / fences.QuietShare {
		a := b.Attempt(fmt.Sprint("order ", i), b.Leg("alice", -1))
		require.Zero(t, b.reads(a), i)
		b.Prepared(a)
	}
	a := b.Attempt("last", b.Leg("alice", -1))
	require.Equal(t, 1, b.reads(a))
	require.False(t, b.On(a, storetest.At(protocol.ReadFence, 0)).Facts.BelowMarkerLimit)
}

// Settles of what others have prepared since the last read don't count as room.
func TestRoomIsNotCountedTwice(t *testing.T) {
	t.Parallel()
	b := newBank(t, func(c *storetest.Config) { c.MarkerLimit = 2 })
	b.Put(storetest.Account("alice", nil))
	reader := b.Attempt("reader", b.Leg("alice", -1))
	b.Ready(reader)
	theirs := b.Attempt("theirs", b.Leg("alice", 1))
	b.Change("accounts", "alice", bson.M{"$set": bson.M{"pending": bson.M{"theirs": int64(1)}}})
	b.Applied(theirs, storetest.At(protocol.Settle, 0)) // another process has prepared it
	for _, id := range []string{"order 1", "order 2"} {
		b.Prepared(b.Attempt(id, b.Leg("alice", -1)))
	}
	a := b.Attempt("order 3", b.Leg("alice", -1))
	require.Equal(t, 1, b.reads(a))
	require.False(t, b.On(a, storetest.At(protocol.ReadFence, 0)).Facts.BelowMarkerLimit)
}

// An unusable or missing participant is read each time, since it may have been repaired.
func TestUnusableParticipantIsNotRemembered(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("double", bson.M{"balance": 1.5}), storetest.Account("odd floor", bson.M{"floor": "none"}))
	for _, id := range []string{"double", "odd floor", "nobody"} {
		a := b.Attempt("order", b.Leg(id, -1))
		assert.Equal(t, 1, b.reads(a), id)
		assert.Equal(t, 1, b.reads(a), id)
	}
	// A participant that was known and became unusable is forgotten.
	b.Put(storetest.Account("alice", nil))
	a := b.Attempt("order", b.Leg("alice", -1))
	b.Ready(a)
	b.Change("accounts", "alice", bson.M{"$set": bson.M{"balance": "spoilt"}})
	require.Equal(t, protocol.NotMatched, b.On(a, b.Ready(a)[0]).Result)
	assert.False(t, b.On(a, storetest.At(protocol.ReadFence, 0)).Facts.Kind)
	assert.Zero(t, b.Store.KnownFences())
}

// A prepare doesn't match a known account whose decimal balance was damaged since.
// (With Unknown, the execution would ask for ever.)
func TestSpoiltBalanceOfAKnownAccount(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for i, spoilt := range []any{"text", true, bson.M{"a": 1}, bson.A{"text"}, bson.DateTime(5), bson.MinKey{}, bson.Null{},
		decimal("NaN"), decimal("1E-30"), 5.5, int64(5)} {
		id := fmt.Sprintf("account %d", i)
		b.Put(storetest.Account(id, bson.M{"balance": decimal("100")}))
		for _, amount := range []string{"-1.5", "1.5"} {
			a := b.Attempt("order", b.LegIn("", id, dec(amount)))
			b.Change("accounts", id, bson.M{"$set": bson.M{"balance": decimal("100")}})
			prepares := b.Ready(a)
			b.Change("accounts", id, bson.M{"$set": bson.M{"balance": spoilt}})
			before := b.Raw("accounts", id)
			assert.Equal(t, protocol.NotMatched, b.On(a, prepares[0]).Result, "%s to %v: %v", amount, spoilt, a.Cause)
			assert.Equal(t, before, b.Raw("accounts", id))
		}
	}
}

// Facts remembered for one kind of amounts don't let the other kind in.
func TestKnownFenceOfAnotherKind(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", nil))
	b.Ready(b.Attempt("order 1", b.Leg("alice", -1)))
	before := b.Raw("accounts", "alice")
	for _, amount := range []string{"-1.5", "1.5"} {
		a := b.Attempt("order 2", b.LegIn("", "alice", dec(amount)))
		assert.Equal(t, protocol.NotMatched, b.On(a, b.Ready(a)[0]).Result)
	}
	assert.Equal(t, before, b.Raw("accounts", "alice"))
}

// Each ledger's accounts are remembered separately.
func TestKnownFencesAreOfOneLedger(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", nil))
	b.PutIn("accounts_eu", storetest.Account("alice", bson.M{"fence": bson.ObjectID{9}}))
	a := b.Attempt("order", b.Leg("alice", -1), b.LegIn("eu", "alice", money.Units(1)))
	b.Applied(a, b.Ready(a)...)
	assert.Equal(t, 2, b.Store.KnownFences())
}

// Without a memory each transfer reads.
func TestNoFenceMemory(t *testing.T) {
	t.Parallel()
	b := newBank(t, func(c *storetest.Config) { c.FenceBytes = 0 })
	b.Put(storetest.Account("alice", bson.M{"balance": int64(1000)}))
	for i := range 3 {
		a := b.Attempt(fmt.Sprint("order ", i), b.Leg("alice", -1))
		require.Equal(t, 1, b.reads(a))
		b.Prepared(a)
		b.Applied(a, storetest.Replacing(storetest.At(protocol.Settle, 0)))
		require.Equal(t, protocol.NotMatched, b.On(a, storetest.At(protocol.Settle, 0)).Result, "which is forgotten")
	}
	require.Zero(t, b.Store.KnownFences())
}

// A fence or floor of another program's making is read each time, and no other one is
// mistaken for it.
func TestForeignFenceIsNotRemembered(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("text", bson.M{"fence": "a fence"}), storetest.Account("odd floor", bson.M{"floor": "none"}),
		storetest.Account("long", bson.M{"fence": bson.Binary{Data: make([]byte, 100)}}))
	for _, id := range []string{"text", "odd floor", "long"} {
		for i := range 2 {
			a := b.Attempt(fmt.Sprint("order ", i), b.Leg(id, 1))
			require.Equal(t, 1, b.reads(a), id)
			b.Prepared(a)
		}
	}
	require.Zero(t, b.Store.KnownFences())
}
