package mongostore_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// If the markers are no longer a map, nothing is paid, given back or fenced off, however
// often it is tried.
// A look counts the marker as present, and the next try is refused with the reason.
// When the map is back, everything goes on.
func TestGarbledMarkersAreLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for _, units := range []int64{-60, 60} {
		for what, pending := range storetest.Garbled("order", units) {
			for _, op := range []protocol.Operation{
				storetest.At(protocol.Settle, 0), storetest.Replacing(storetest.At(protocol.Settle, 0)),
				storetest.At(protocol.Undo, 0), storetest.Replacing(storetest.At(protocol.Undo, 0)),
				storetest.At(protocol.FenceOnly, 0),
			} {
				t.Run(fmt.Sprint(units, ", ", what, ", ", op.Kind), func(t *testing.T) {
					b := b.with(t)
					id := t.Name() + fmt.Sprint(op.ReplaceFence)
					b.Put(storetest.Account(id, nil))
					a := b.Prepared(b.Claimed("order", b.Leg(id, units)))
					b.Applied(a, storetest.Decide(protocol.Rollback, 1))
					prepared := storetest.AsMap(t, b.Raw("accounts", id))["pending"]
					b.Change("accounts", id, bson.M{"$set": bson.M{"pending": pending}})
					before := b.Raw("accounts", id)
					for range 2 {
						assert.Equal(t, protocol.NotMatched, b.On(a, op).Result)
						assert.NotEqual(t, protocol.NoTrace, b.On(a, storetest.At(protocol.Look, 0)).Facts.Trace)
						assert.Equal(t, protocol.Failed, b.On(a, op).Result)
						require.ErrorIs(t, a.Cause, document.ErrGarbled)
						require.ErrorContains(t, a.Cause, `"pending"`)
						require.Equal(t, before, b.Raw("accounts", id))
					}
					b.Change("accounts", id, bson.M{"$set": bson.M{"pending": prepared}})
					if op.Kind == protocol.FenceOnly {
						op = storetest.Replacing(storetest.At(protocol.Undo, 0))
					}
					b.Applied(a, op)
					assert.Equal(t, protocol.NotMatched, b.On(a, op).Result)
					assert.Equal(t, protocol.NoTrace, b.On(a, storetest.At(protocol.Look, 0)).Facts.Trace)
					b.forget("order")
				})
			}
		}
	}
}

// forget removes a transfer, which frees its ID.
func (b *bank) forget(id string) {
	b.T.Helper()
	_, err := b.DB.Collection("transfers").DeleteOne(b.T.Context(), bson.M{"_id": id})
	require.NoError(b.T, err)
}

// A missing or null map of markers counts as empty, since a settle may have emptied it. A
// dirty rollback sets its fence there.
func TestNoMapIsAnEmptyOne(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for i, pending := range []any{nil, bson.Null{}, bson.M{}, bson.M{"other": int64(1)}} {
		id := fmt.Sprint("account ", i)
		b.Put(storetest.Account(id, bson.M{"pending": pending}))
		a := b.Claimed(id, b.Leg(id, 60))
		b.Applied(a, storetest.Decide(protocol.Rollback, 1))
		assert.Equal(t, protocol.NotMatched, b.On(a, storetest.At(protocol.Undo, 0)).Result)
		assert.Equal(t, protocol.NoTrace, b.On(a, storetest.At(protocol.Look, 0)).Facts.Trace)
		before := b.Raw("accounts", id).Lookup("fence")
		b.Applied(a, storetest.At(protocol.FenceOnly, 0))
		assert.NotEqual(t, before, b.Raw("accounts", id).Lookup("fence"))
	}
}

// If only some statements of a command match, a marker that can't be read in a map
// doesn't count as settled.
// Neither does a statement for several transfers.
func TestGarbledMarkersAreNotTakenForSettled(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", nil), storetest.Account("bob", nil))
	a := b.Prepared(b.Claimed("order", b.Leg("alice", -60), b.Leg("bob", 60)))
	others := b.crowd(2, 5)
	for _, other := range others {
		b.Applied(other, b.Ready(other)[0])
		b.Applied(other, storetest.Decide(protocol.Committed, 1))
	}
	b.Applied(a, storetest.Decide(protocol.Committed, 1))
	whole := storetest.AsMap(t, b.Raw("accounts", "alice"))["pending"]
	b.Change("accounts", "alice", bson.M{"$set": bson.M{"pending": bson.A{whole}}})
	before := b.Raw("accounts", "alice")

	answers := b.All(a, storetest.At(protocol.Settle, 0), storetest.At(protocol.Settle, 1))
	assert.Equal(t, protocol.NotMatched, answers[0].Result)
	assert.Equal(t, protocol.Applied, answers[1].Result)
	assert.Equal(t, all(2, protocol.NotMatched), b.batch(of(storetest.At(protocol.Settle, 0), others...)))
	assert.Equal(t, before, b.Raw("accounts", "alice"))

	// A call on garbled markers that are known is refused, and the others of the command
	// are performed.
	b.On(others[0], storetest.At(protocol.Look, 0))
	b.Change("accounts", "alice", bson.M{"$set": bson.M{"pending": whole}})
	assert.Equal(t, []protocol.Result{protocol.Failed, protocol.Applied}, b.batch(of(storetest.At(protocol.Settle, 0), others...)))
	b.Applied(others[0], storetest.At(protocol.Settle, 0))
}

// Before the decision a list of markers is a reason to refuse, and neither shows a marker
// nor that there is none.
func TestGarbledMarkersAreRefused(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", nil))
	a := b.Prepared(b.Claimed("order", b.Leg("alice", -60)))
	b.Change("accounts", "alice", bson.M{"$set": bson.M{"pending": bson.A{bson.M{"order": int64(-60)}}}})
	facts := b.On(a, storetest.At(protocol.Look, 0)).Facts
	assert.Equal(t, protocol.Illegible, facts.Trace)
	assert.Equal(t, protocol.AmountKind, facts.Refusal())
}

// The same holds for documents that effects change, and for the transfer that a reversal
// concerns.
func TestGarbledMarkersOfDocuments(t *testing.T) {
	t.Parallel()
	b := newShop(t)
	b.PutIn("orders", bson.M{"_id": "o", "status": "unpaid"})
	a := b.Prepared(b.changing("order", b.effect("o", unpaid(), paid())))
	a.Transfer.State = protocol.Committed
	b.Change("orders", "o", bson.M{"$set": bson.M{"pending": bson.A{bson.M{"order": int64(0)}}}})
	before := b.Raw("orders", "o")
	assert.Equal(t, protocol.NotMatched, b.On(a, storetest.At(protocol.Settle, 0)).Result)
	assert.NotEqual(t, protocol.NoTrace, b.On(a, storetest.At(protocol.Look, 0)).Facts.Trace)
	assert.Equal(t, protocol.Failed, b.On(a, storetest.At(protocol.Settle, 0)).Result)
	assert.Equal(t, before, b.Raw("orders", "o"))

	b.PutIn("transfers", bson.M{"_id": "original", "state": "Success", "pending": bson.A{bson.M{"back": int64(0)}}})
	back, err := b.Store.NewAttempt(document.Transfer{ID: "back", Reverses: "original", State: protocol.Committed}, "me")
	require.NoError(t, err)
	before = b.Raw("transfers", "original")
	assert.Equal(t, protocol.NotMatched, b.On(back, storetest.At(protocol.Settle, 0)).Result)
	assert.NotEqual(t, protocol.NoTrace, b.On(back, storetest.At(protocol.Look, 0)).Facts.Trace)
	assert.Equal(t, before, b.Raw("transfers", "original"))
}

// A prepare's requirement of a field is not met by an element of a list, if the field was
// made a list since it was read.
func TestPrepareLooksIntoNoList(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for i, row := range []struct {
		field     string
		read, now any
	}{
		{"fence", storetest.Fence0(), bson.A{storetest.Fence0()}},
		{"fence", storetest.Fence0(), bson.A{storetest.Fence0(), bson.ObjectID{7}}},
		{"fence", nil, bson.A{nil}},
		{"floor", int64(10), bson.A{int64(10)}},
		{"floor", int64(10), bson.A{int64(10), int64(1000)}},
		{"floor", bson.MinKey{}, bson.A{bson.MinKey{}}},
		{"floor", nil, bson.A{nil, int64(1000)}},
		{"balance", int64(100), bson.A{int64(100)}},
		{"currency", nil, bson.A{""}},
		{"currency", nil, bson.A{nil}},
		{"closed", nil, bson.A{false, true}},
		{"frozen", nil, bson.A{false, true}},
		{"pending", nil, bson.A{}},
		{"pending", bson.M{}, bson.A{bson.M{}}},
	} {
		id := fmt.Sprint("account ", i)
		b.Put(storetest.Account(id, bson.M{row.field: row.read}))
		a := b.Claimed(id, b.Leg(id, -60))
		op := b.Ready(a)[0]
		b.Change("accounts", id, bson.M{"$set": bson.M{row.field: row.now}})
		before := b.Raw("accounts", id)
		assert.Equal(t, protocol.NotMatched, b.On(a, op).Result, "%s: %v", row.field, row.now)
		assert.Equal(t, before, b.Raw("accounts", id))
	}
}

// A list in the place of a fence is compared as a whole, like any fence, and the account
// can be used.
func TestListForAFence(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", bson.M{"fence": bson.A{storetest.Fence0()}}))
	a := b.Prepared(b.Claimed("order", b.Leg("alice", -60)))
	b.Applied(a, storetest.Replacing(storetest.At(protocol.Undo, 0)))
	b.Has("accounts", storetest.Account("alice", bson.M{"fence": storetest.AsMap(t, b.Raw("accounts", "alice"))["fence"]}))
	late := b.Attempt("late", b.Leg("alice", -60))
	assert.Equal(t, protocol.NotMatched, b.On(late,
		storetest.PrepareWith(0, storetest.StandardFields().View(encode(bson.M{"fence": bson.A{storetest.Fence0()}})).Fence())).Result)
}

// A requirement concerns the field itself, and not an element of a list, for a prepare
// and for a look.
func TestRequirementLooksIntoNoList(t *testing.T) {
	t.Parallel()
	b := newShop(t)
	list, nested := bson.A{"unpaid"}, bson.A{bson.A{"unpaid"}}
	for i, row := range []struct {
		stored, required any
		met              bool
	}{
		{"unpaid", "unpaid", true}, {list, "unpaid", false}, {nested, "unpaid", false}, {bson.A{"paid", "unpaid"}, "unpaid", false},
		{list, list, true}, {nested, list, false}, {nested, nested, true}, {bson.A{list, "x"}, list, false}, {"unpaid", list, false},
		{bson.A{}, bson.A{}, true}, {bson.A{bson.A{}}, bson.A{}, false}, {bson.A{bson.A{}}, bson.A{bson.A{}}, true},
		{nil, nil, true}, {bson.Null{}, nil, true}, {bson.A{nil}, nil, false}, {bson.A{}, nil, false}, {bson.A{nil}, bson.A{nil}, true},
		{int32(5), 5.0, true}, {bson.A{int32(5)}, 5.0, false}, {bson.M{"a": 1}, bson.M{"a": 1}, true},
		{bson.A{bson.M{"a": 1}}, bson.M{"a": 1}, false},
	} {
		id := fmt.Sprint("order ", i)
		document := bson.M{"_id": id}
		if row.stored != nil {
			document["status"] = row.stored
		}
		b.PutIn("orders", document)
		a := b.changing("t "+id, b.effect(id, bson.D{{Key: "status", Value: row.required}}, paid()))
		b.Applied(a, storetest.Claim(protocol.Insert))
		assert.Equal(t, !row.met, b.On(a, storetest.At(protocol.Look, 0)).Facts.Unmet,
			"a look at %v, where %v is required", row.stored, row.required)
		want := protocol.NotMatched
		if row.met {
			want = protocol.Applied
		}
		assert.Equal(t, want, b.On(a, storetest.PrepareWith(0, "")).Result, "%v, where %v is required", row.stored, row.required)
	}
}
