package mongostore

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
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
				at(protocol.Settle, 0), replacing(at(protocol.Settle, 0)), at(protocol.Undo, 0), replacing(at(protocol.Undo, 0)),
				at(protocol.FenceOnly, 0),
			} {
				t.Run(fmt.Sprint(units, ", ", what, ", ", op.Kind), func(t *testing.T) {
					b := b.with(t)
					id := t.Name() + fmt.Sprint(op.ReplaceFence)
					b.put(account(id, nil))
					w := b.prepared(b.claimed("order", b.leg(id, units)))
					b.applied(w, decide(protocol.Rollback, 1))
					prepared := asMap(t, b.raw("accounts", id))["pending"]
					b.change("accounts", id, bson.M{"$set": bson.M{"pending": pending}})
					before := b.raw("accounts", id)
					for range 2 {
						assert.Equal(t, protocol.NotMatched, b.on(w, op).Result)
						assert.True(t, b.on(w, at(protocol.Look, 0)).Facts.Marker)
						assert.Equal(t, protocol.Failed, b.on(w, op).Result)
						require.ErrorIs(t, w.Cause, document.ErrGarbled)
						require.ErrorContains(t, w.Cause, `"pending"`)
						require.Equal(t, before, b.raw("accounts", id))
					}
					b.change("accounts", id, bson.M{"$set": bson.M{"pending": prepared}})
					if op.Kind == protocol.FenceOnly {
						op = replacing(at(protocol.Undo, 0))
					}
					b.applied(w, op)
					assert.Equal(t, protocol.NotMatched, b.on(w, op).Result)
					assert.False(t, b.on(w, at(protocol.Look, 0)).Facts.Marker)
					b.forget("order")
				})
			}
		}
	}
}

// forget removes a transfer, so that its ID is free.
func (b *bank) forget(id string) {
	b.t.Helper()
	_, err := b.db.Collection("transfers").DeleteOne(b.t.Context(), bson.M{"_id": id})
	require.NoError(b.t, err)
}

// A map of markers that is missing, or null, counts as empty: a settle may have emptied
// it. A dirty roll-back sets its fence there.
func TestNoMapIsAnEmptyOne(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for i, pending := range []any{nil, bson.Null{}, bson.M{}, bson.M{"other": int64(1)}} {
		id := fmt.Sprint("account ", i)
		b.put(account(id, bson.M{"pending": pending}))
		w := b.claimed(id, b.leg(id, 60))
		b.applied(w, decide(protocol.Rollback, 1))
		assert.Equal(t, protocol.NotMatched, b.on(w, at(protocol.Undo, 0)).Result)
		assert.False(t, b.on(w, at(protocol.Look, 0)).Facts.Marker)
		before := b.raw("accounts", id).Lookup("fence")
		b.applied(w, at(protocol.FenceOnly, 0))
		assert.NotEqual(t, before, b.raw("accounts", id).Lookup("fence"))
	}
}

// Of a command of which only some statements have matched, what is not to be seen in a
// map is not taken for settled; nor is anything that several transfers ask for in one
// statement.
func TestGarbledMarkersAreNotTakenForSettled(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("alice", nil), account("bob", nil))
	w := b.prepared(b.claimed("order", b.leg("alice", -60), b.leg("bob", 60)))
	others := b.crowd(2, 5)
	for _, other := range others {
		b.applied(other, b.ready(other)[0])
		b.applied(other, decide(protocol.Committed, 1))
	}
	b.applied(w, decide(protocol.Committed, 1))
	whole := asMap(t, b.raw("accounts", "alice"))["pending"]
	b.change("accounts", "alice", bson.M{"$set": bson.M{"pending": bson.A{whole}}})
	before := b.raw("accounts", "alice")

	answers := b.all(w, at(protocol.Settle, 0), at(protocol.Settle, 1))
	assert.Equal(t, protocol.NotMatched, answers[0].Result)
	assert.Equal(t, protocol.Applied, answers[1].Result)
	assert.Equal(t, all(2, protocol.NotMatched), b.batch(of(at(protocol.Settle, 0), others...)))
	assert.Equal(t, before, b.raw("accounts", "alice"))

	// One that is known to be garbled is refused, and the others of the command are done.
	b.on(others[0], at(protocol.Look, 0))
	b.change("accounts", "alice", bson.M{"$set": bson.M{"pending": whole}})
	assert.Equal(t, []protocol.Result{protocol.Failed, protocol.Applied}, b.batch(of(at(protocol.Settle, 0), others...)))
	b.applied(others[0], at(protocol.Settle, 0))
}

// Before the decision a list of markers is a reason to refuse, and no marker.
func TestGarbledMarkersAreRefused(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("alice", nil))
	w := b.prepared(b.claimed("order", b.leg("alice", -60)))
	b.change("accounts", "alice", bson.M{"$set": bson.M{"pending": bson.A{bson.M{"order": int64(-60)}}}})
	facts := b.on(w, at(protocol.Look, 0)).Facts
	assert.False(t, facts.Marker)
	assert.Equal(t, protocol.AmountKind, facts.Refusal())
}

// Documents that effects change, and the transfer that a reversal is about, are no
// different from accounts.
func TestGarbledMarkersOfDocuments(t *testing.T) {
	t.Parallel()
	b := newShop(t)
	b.putIn("orders", bson.M{"_id": "o", "status": "unpaid"})
	w := b.prepared(b.changing("order", b.effect("o", unpaid(), paid())))
	w.Transfer.State = protocol.Committed
	b.change("orders", "o", bson.M{"$set": bson.M{"pending": bson.A{bson.M{"order": int64(0)}}}})
	before := b.raw("orders", "o")
	assert.Equal(t, protocol.NotMatched, b.on(w, at(protocol.Settle, 0)).Result)
	assert.True(t, b.on(w, at(protocol.Look, 0)).Facts.Marker)
	assert.Equal(t, protocol.Failed, b.on(w, at(protocol.Settle, 0)).Result)
	assert.Equal(t, before, b.raw("orders", "o"))

	b.putIn("transfers", bson.M{"_id": "original", "state": "Success", "pending": bson.A{bson.M{"back": int64(0)}}})
	back, err := b.store.NewAttempt(document.Transfer{ID: "back", Reverses: "original", State: protocol.Committed}, "me")
	require.NoError(t, err)
	before = b.raw("transfers", "original")
	assert.Equal(t, protocol.NotMatched, b.on(back, at(protocol.Settle, 0)).Result)
	assert.True(t, b.on(back, at(protocol.Look, 0)).Facts.Marker)
	assert.Equal(t, before, b.raw("transfers", "original"))
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
		{"fence", fence0(), bson.A{fence0()}},
		{"fence", fence0(), bson.A{fence0(), bson.ObjectID{7}}},
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
		b.put(account(id, bson.M{row.field: row.read}))
		w := b.claimed(id, b.leg(id, -60))
		op := b.ready(w)[0]
		b.change("accounts", id, bson.M{"$set": bson.M{row.field: row.now}})
		before := b.raw("accounts", id)
		assert.Equal(t, protocol.NotMatched, b.on(w, op).Result, "%s: %v", row.field, row.now)
		assert.Equal(t, before, b.raw("accounts", id))
	}
}

// A list for a fence is a fence like any other, compared as a whole: the account goes on.
func TestListForAFence(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("alice", bson.M{"fence": bson.A{fence0()}}))
	w := b.prepared(b.claimed("order", b.leg("alice", -60)))
	b.applied(w, replacing(at(protocol.Undo, 0)))
	b.has("accounts", account("alice", bson.M{"fence": asMap(t, b.raw("accounts", "alice"))["fence"]}))
	late := b.work("late", b.leg("alice", -60))
	assert.Equal(t, protocol.NotMatched, b.on(late, prepareWith(0, standardFields().View(encode(bson.M{"fence": bson.A{fence0()}})).Fence())).Result)
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
		b.putIn("orders", document)
		w := b.changing("t "+id, b.effect(id, bson.D{{Key: "status", Value: row.required}}, paid()))
		b.applied(w, claim(protocol.Insert))
		assert.Equal(t, !row.met, b.on(w, at(protocol.Look, 0)).Facts.Unmet, "a look at %v, where %v is required", row.stored, row.required)
		want := protocol.NotMatched
		if row.met {
			want = protocol.Applied
		}
		assert.Equal(t, want, b.on(w, prepareWith(0, "")).Result, "%v, where %v is required", row.stored, row.required)
	}
}
