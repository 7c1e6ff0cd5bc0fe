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

// garbled returns what somebody may have made of a map with a marker.
func garbled(key string, marker any) map[string]any {
	there := bson.M{key: marker}
	return map[string]any{
		"the map in a list":          bson.A{there},
		"the map in a list of lists": bson.A{bson.A{there}},
		"the map among others":       bson.A{bson.M{}, there, "x"},
		"a list":                     bson.A{},
		"a list of an empty map":     bson.A{bson.M{}},
		"a list of null":             bson.A{nil},
		"text":                       "{}",
		"a number":                   int64(0),
		"true":                       true,
	}
}

// Where the markers are no map any more nothing is paid, given back or fenced off,
// however often it is asked for; a look takes the marker for there, and the next try is
// refused, with the reason. When the map is back everything goes on.
func TestGarbledMarkersAreLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for _, units := range []int64{-60, 60} {
		for what, pending := range garbled("order", units) {
			for _, op := range []protocol.Operation{
				storetest.At(protocol.Settle, 0), storetest.Replacing(storetest.At(protocol.Settle, 0)), storetest.At(protocol.Undo, 0), storetest.Replacing(storetest.At(protocol.Undo, 0)),
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
						assert.True(t, b.On(a, storetest.At(protocol.Look, 0)).Facts.Marker)
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
					assert.False(t, b.On(a, storetest.At(protocol.Look, 0)).Facts.Marker)
					b.forget("order")
				})
			}
		}
	}
}

// forget removes a transfer, so that its ID is free.
func (b *bank) forget(id string) {
	b.T.Helper()
	_, err := b.DB.Collection("transfers").DeleteOne(b.T.Context(), bson.M{"_id": id})
	require.NoError(b.T, err)
}

// A map of markers that is missing, or null, counts as empty: a settle may have emptied
// it. A dirty roll-back sets its fence there.
func TestNoMapIsAnEmptyOne(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for i, pending := range []any{nil, bson.Null{}, bson.M{}, bson.M{"other": int64(1)}} {
		id := fmt.Sprint("account ", i)
		b.Put(storetest.Account(id, bson.M{"pending": pending}))
		a := b.Claimed(id, b.Leg(id, 60))
		b.Applied(a, storetest.Decide(protocol.Rollback, 1))
		assert.Equal(t, protocol.NotMatched, b.On(a, storetest.At(protocol.Undo, 0)).Result)
		assert.False(t, b.On(a, storetest.At(protocol.Look, 0)).Facts.Marker)
		before := b.Raw("accounts", id).Lookup("fence")
		b.Applied(a, storetest.At(protocol.FenceOnly, 0))
		assert.NotEqual(t, before, b.Raw("accounts", id).Lookup("fence"))
	}
}

// Of a command of which only some statements have matched, what is not to be seen in a
// map is not taken for settled; nor is anything that several transfers ask for in one
// statement.
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

	// One that is known to be garbled is refused, and the others of the command are done.
	b.On(others[0], storetest.At(protocol.Look, 0))
	b.Change("accounts", "alice", bson.M{"$set": bson.M{"pending": whole}})
	assert.Equal(t, []protocol.Result{protocol.Failed, protocol.Applied}, b.batch(of(storetest.At(protocol.Settle, 0), others...)))
	b.Applied(others[0], storetest.At(protocol.Settle, 0))
}

// Before the decision a list of markers is a reason to refuse, and no marker.
func TestGarbledMarkersAreRefused(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", nil))
	a := b.Prepared(b.Claimed("order", b.Leg("alice", -60)))
	b.Change("accounts", "alice", bson.M{"$set": bson.M{"pending": bson.A{bson.M{"order": int64(-60)}}}})
	facts := b.On(a, storetest.At(protocol.Look, 0)).Facts
	assert.False(t, facts.Marker)
	assert.Equal(t, protocol.AmountKind, facts.Refusal())
}

// Documents that effects change, and the transfer that a reversal is about, are no
// different from accounts.
func TestGarbledMarkersOfDocuments(t *testing.T) {
	t.Parallel()
	b := newShop(t)
	b.PutIn("orders", bson.M{"_id": "o", "status": "unpaid"})
	a := b.Prepared(b.changing("order", b.effect("o", unpaid(), paid())))
	a.Transfer.State = protocol.Committed
	b.Change("orders", "o", bson.M{"$set": bson.M{"pending": bson.A{bson.M{"order": int64(0)}}}})
	before := b.Raw("orders", "o")
	assert.Equal(t, protocol.NotMatched, b.On(a, storetest.At(protocol.Settle, 0)).Result)
	assert.True(t, b.On(a, storetest.At(protocol.Look, 0)).Facts.Marker)
	assert.Equal(t, protocol.Failed, b.On(a, storetest.At(protocol.Settle, 0)).Result)
	assert.Equal(t, before, b.Raw("orders", "o"))

	b.PutIn("transfers", bson.M{"_id": "original", "state": "Success", "pending": bson.A{bson.M{"back": int64(0)}}})
	back, err := b.Store.NewAttempt(document.Transfer{ID: "back", Reverses: "original", State: protocol.Committed}, "me")
	require.NoError(t, err)
	before = b.Raw("transfers", "original")
	assert.Equal(t, protocol.NotMatched, b.On(back, storetest.At(protocol.Settle, 0)).Result)
	assert.True(t, b.On(back, storetest.At(protocol.Look, 0)).Facts.Marker)
	assert.Equal(t, before, b.Raw("transfers", "original"))
}

// What a prepare requires of a field it requires of the field, and not of one of a list
// that somebody has made of it since it was read.
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

// A list for a fence is a fence like any other, compared as a whole: the account goes on.
func TestListForAFence(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", bson.M{"fence": bson.A{storetest.Fence0()}}))
	a := b.Prepared(b.Claimed("order", b.Leg("alice", -60)))
	b.Applied(a, storetest.Replacing(storetest.At(protocol.Undo, 0)))
	b.Has("accounts", storetest.Account("alice", bson.M{"fence": storetest.AsMap(t, b.Raw("accounts", "alice"))["fence"]}))
	late := b.Attempt("late", b.Leg("alice", -60))
	assert.Equal(t, protocol.NotMatched, b.On(late, storetest.PrepareWith(0, storetest.StandardFields().View(encode(bson.M{"fence": bson.A{storetest.Fence0()}})).Fence())).Result)
}

// A requirement is about the field, and not about one of a list: to whoever prepares, and
// to whoever looks.
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
		assert.Equal(t, !row.met, b.On(a, storetest.At(protocol.Look, 0)).Facts.Unmet, "a look at %v, where %v is required", row.stored, row.required)
		want := protocol.NotMatched
		if row.met {
			want = protocol.Applied
		}
		assert.Equal(t, want, b.On(a, storetest.PrepareWith(0, "")).Result, "%v, where %v is required", row.stored, row.required)
	}
}
