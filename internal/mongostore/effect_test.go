package mongostore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
	"github.com/mongotransfer/transfer/internal/wire"
)

// newShop returns a bank with documents of the name "orders".
// Their fields for markers and fences have other names than those of accounts.
func newShop(t *testing.T, changes ...func(*storetest.Config)) *bank {
	t.Helper()
	return newBank(t, append([]func(*storetest.Config){func(c *storetest.Config) {
		c.Documents = map[string]*mongo.Collection{"orders": c.Transfers.Database().Collection("orders")}
	}}, changes...)...)
}

// effect returns an effect on an order.
func (b *bank) effect(id any, require, set bson.D) document.Effect {
	b.T.Helper()
	e := document.Effect{Documents: "orders", Namespace: b.Store.DocumentsNamespace("orders")}
	if require != nil {
		e.Require = encode(require)
	}
	if set != nil {
		e.Set = encode(set)
	}
	var err error
	if e.ID, err = document.EncodeDocumentID(id); err != nil {
		b.T.Fatal(err)
	}
	return e
}

// changing returns an attempt at a transfer of effects alone, which isn't stored.
func (b *bank) changing(id string, effects ...document.Effect) *mongostore.Attempt {
	b.T.Helper()
	digest := document.Digest{Format: document.Format, Sum: []byte{1}}
	a, err := b.Store.NewAttempt(document.Transfer{ID: id, Effects: effects, Digest: digest}, "owner of "+id)
	require.NoError(b.T, err)
	return a
}

func unpaid() bson.D { return bson.D{{Key: "status", Value: "unpaid"}} }
func paid() bson.D   { return bson.D{{Key: "status", Value: "paid"}, {Key: "by", Value: "me"}} }

// requirable draws a value that a requirement names, or that a field has.
func (l lottery) requirable() any {
	return pick[any](l, bson.Null{}, "a", "b", "", 1, int64(1), 1.0, decimal("1"), 2, 0, true, false, bson.D{}, bson.D{{Key: "a", Value: 1}},
		bson.D{{Key: "a", Value: 1.0}}, bson.D{{Key: "$gt", Value: ""}}, bson.D{{Key: "$exists", Value: true}},
		bson.D{{Key: "$in", Value: bson.A{"a"}}},
		bson.A{}, bson.A{1}, bson.A{"a", 1}, bson.A{nil}, bson.A{bson.A{1}}, bson.Regex{Pattern: "a"}, bson.Regex{Pattern: "a", Options: "i"},
		bson.DateTime(1), bson.Timestamp{T: 1}, bson.ObjectID{1}, bson.Binary{Data: []byte{1}}, bson.Binary{Subtype: 4, Data: make([]byte, 16)},
		bson.MinKey{}, bson.MaxKey{}, bson.Symbol("a"), bson.JavaScript("a"), decimal("NaN"), bson.D{{Key: "a", Value: bson.Undefined{}}},
		bson.A{bson.Undefined{}})
}

// paper draws a document and a requirement of it.
func (l lottery) paper(id, key string) (document, require bson.D) {
	document = bson.D{{Key: "_id", Value: id}}
	for _, name := range []string{"x", "y"} {
		wanted := l.requirable()
		if l.odds(4) {
			continue
		}
		require = append(require, bson.E{Key: name, Value: wanted})
		switch {
		case l.odds(8):
		case l.odds(3):
			document = append(document, bson.E{Key: name, Value: l.requirable()})
		default:
			document = append(document, bson.E{Key: name, Value: wanted})
		}
	}
	if l.odds(2) {
		document = append(document, bson.E{Key: "pending", Value: pick[any](l,
			bson.M{}, bson.M{}, bson.Null{}, bson.M{"other": 0}, bson.M{key: 0},
			bson.M{key: 0, "other": 0}, bson.A{}, bson.A{bson.M{}}, bson.A{nil}, "text", 1)})
	}
	if fence := l.fence(); fence != nil {
		document = append(document, bson.E{Key: "fence", Value: fence})
	}
	return document, require
}

// The facts of a look agree with the filter of a prepare for documents too.
// The prepare matches exactly if the look shows a met requirement, no reservation, and
// the expected fence.
func TestEffectFactsAndFilterAgree(t *testing.T) {
	t.Parallel()
	b := newShop(t)
	const cases = 3000
	l := lottery{rand.New(rand.NewPCG(agreementSeed, 1))}
	var looks requests
	attempts, documents := make([]*mongostore.Attempt, cases), make([]bson.D, cases)
	for i := range attempts {
		id := fmt.Sprintf("case %d", i)
		document, require := l.paper(id, document.MarkerKey(id))
		attempts[i], documents[i] = b.changing(id, b.effect(id, require, nil)), document
		looks.add(attempts[i], storetest.At(protocol.Look, 0))
	}
	_, err := b.DB.Collection("orders").InsertMany(t.Context(), documents)
	require.NoError(t, err)
	orders := b.Store.Documents["orders"]
	b.Store.ReadParticipants(t.Context(), looks, orders.Majority, true)
	before := b.everything("orders")
	statements := make([]*mongostore.MergedUpdate, cases)
	for i, a := range attempts {
		fence := looks[i].Answer.Facts.Fence
		if l.odds(6) {
			fence = pick(l, "", protocol.Fence(append([]byte{byte(bson.TypeObjectID)}, make([]byte, 12)...)))
		}
		statements[i] = b.Store.NewMergedUpdate(&mongostore.Call{Attempt: a, Op: storetest.PrepareWith(0, fence)})
	}
	results := wire.UpdateAll(t.Context(), orders.Commands, statements).Verdicts
	after := b.everything("orders")
	fits := 0
	for i, a := range attempts {
		id, facts := a.Transfer.ID, looks[i].Answer.Facts
		want := fit()
		want.Found, want.Fence = true, statements[i].Fence()
		expected := facts == want
		matched := string(before[id]) != string(after[id])
		require.Equal(t, expected, matched, "seed %d: %s\nrequired: %s\n%+v, %v", agreementSeed, before[id], a.Transfer.Effects[0].Require, facts,
			results[i].Result)
		require.NotEqual(t, protocol.Failed, results[i].Result)
		if matched {
			fits++
		}
	}
	require.Greater(t, fits, cases/10)
}

// A marker of zero reserves a document.
// The new values show when it is settled, and not when it is undone.
func TestEffectShowsWhenItIsSettled(t *testing.T) {
	t.Parallel()
	b := newShop(t)
	for _, clears := range []protocol.Kind{protocol.Settle, protocol.Undo} {
		for _, fencing := range []bool{false, true} {
			id := fmt.Sprint(clears, fencing)
			b.PutIn("orders", bson.M{"_id": id, "status": "unpaid", "fence": storetest.Fence0(), "note": "kept"})
			a := b.changing(id, b.effect(id, unpaid(), paid()))
			b.Prepared(a)
			b.Has("orders", bson.M{"_id": id, "status": "unpaid", "fence": storetest.Fence0(), "note": "kept", "pending": bson.M{id: int64(0)}})
			assert.Equal(t, protocol.NotMatched, b.On(a, storetest.At(protocol.FenceOnly, 0)).Result)
			reserved := fit()
			reserved.Found, reserved.Trace, reserved.Fence = true, protocol.Reserved, document.FenceOfToken(storetest.Fence0())
			assert.Equal(t, reserved, b.On(a, storetest.At(protocol.Look, 0)).Facts, "what it has reserved itself is as it requires")
			op := storetest.At(clears, 0)
			op.ReplaceFence = fencing
			b.Applied(a, op)
			want := bson.M{"_id": id, "status": "unpaid", "fence": storetest.Fence0(), "note": "kept", "pending": bson.M{}}
			if clears == protocol.Settle {
				want["status"], want["by"] = "paid", "me"
			}
			if fencing {
				want["fence"] = storetest.AsMap(t, b.Raw("orders", id))["fence"]
				require.NotEqual(t, storetest.Fence0(), want["fence"])
			}
			b.Has("orders", want)
			assert.Equal(t, protocol.NotMatched, b.On(a, op).Result, "again")
			b.Has("orders", want)
		}
	}
	empty := b.changing("nothing is set", b.effect("o", nil, nil))
	b.PutIn("orders", bson.M{"_id": "o"})
	b.Applied(b.Prepared(empty), storetest.At(protocol.Settle, 0))
	b.Has("orders", bson.M{"_id": "o", "pending": bson.M{}})
}

// A missing document is refused by its requirement, even an empty one, and never created.
func TestEffectOnAMissingDocument(t *testing.T) {
	t.Parallel()
	b := newShop(t)
	a := b.changing("order", b.effect("nobody", nil, paid()))
	b.Applied(a, storetest.Claim(protocol.Insert))
	assert.Equal(t, protocol.Facts{Unmet: true}, b.On(a, storetest.At(protocol.Look, 0)).Facts)
	for _, kind := range []protocol.Kind{protocol.Prepare, protocol.Settle, protocol.Undo, protocol.FenceOnly} {
		assert.Equal(t, protocol.NotMatched, b.On(a, storetest.At(kind, 0)).Result)
	}
	assert.Nil(t, b.Raw("orders", "nobody"))
}

// Only a look asks for a document's requirement. A first read shows that the document
// exists and is free.
func TestRequirementIsAskedWhereItDecides(t *testing.T) {
	t.Parallel()
	b := newShop(t)
	b.PutIn("orders", bson.M{"_id": "paid", "status": "paid"},
		bson.M{"_id": "reserved", "status": "unpaid", "pending": bson.M{"another": int64(0)}})
	for id, early := range map[string]bool{"paid": false, "reserved": true} {
		a := b.changing("t "+id, b.effect(id, unpaid(), paid()))
		b.Applied(a, storetest.Claim(protocol.Insert))
		assert.Equal(t, early, b.On(a, storetest.At(protocol.ReadFence, 0)).Facts.Unmet)
		assert.True(t, b.On(a, storetest.At(protocol.Look, 0)).Facts.Unmet)
	}
}

// Documents have lanes of their own, and so has the transfer that a reversal concerns.
// None of them shares a command with accounts.
// Two writes to one document share no statement, and those to different documents share a
// command.
func TestLanesOfEffects(t *testing.T) {
	t.Parallel()
	b := newShop(t)
	a, err := b.Store.NewAttempt(document.Transfer{
		ID: "t", Reverses: "s",
		Legs: []document.Leg{b.Leg("alice", -60), b.LegIn("eu", "bob", money.Units(60))}, Effects: []document.Effect{b.effect("o", nil, nil)},
	}, "me")
	require.NoError(t, err)
	lanes := map[mongostore.Lane]int{}
	for i := range a.Participants() {
		for _, kind := range []protocol.Kind{
			protocol.ReadFence, protocol.Look, protocol.Prepare, protocol.Settle, protocol.Undo, protocol.FenceOnly,
		} {
			lanes[mongostore.LaneOf(a, storetest.At(kind, i))]++
		}
	}
	assert.Len(t, lanes, 4*3, "each place is read, looked at, and written to")
	assert.NotEqual(t, mongostore.LaneOf(a, storetest.At(protocol.Settle, 3)),
		mongostore.LaneOf(a, storetest.About(protocol.Finish)), "the original, and the transfer itself")
	assert.Equal(t, []string{`account "alice"`, `account "bob" of ledger "eu"`, `document "o" of "orders"`, `document "s" of "transfers"`},
		[]string{a.Name(0), a.Name(1), a.Name(2), a.Name(3)})

	var rs requests
	b.PutIn("orders", bson.M{"_id": "a"}, bson.M{"_id": "b"})
	for i, id := range []string{"a", "a", "b"} {
		rs.add(b.changing(fmt.Sprint("t", i), b.effect(id, nil, nil)), storetest.PrepareWith(0, ""))
	}
	b.Log.Take()
	assert.Equal(t, []protocol.Result{protocol.Applied, protocol.NotMatched, protocol.Applied}, b.batch(rs))
	assert.Equal(t, []int{3}, b.statements())
	b.Has("orders", bson.M{"_id": "a", "pending": bson.M{"t0": int64(0)}})
	assert.Equal(t, all(2, protocol.Applied), b.batch(append(of(storetest.At(protocol.Undo, 0), rs[0].Attempt),
		of(storetest.At(protocol.Settle, 0), rs[2].Attempt)...)))
}

// originalRow is a change of an original, and what a read shows of it then.
type originalRow struct {
	change bson.M
	shows  func(protocol.Facts) bool // nil: it fits
}

func originals() map[string]originalRow {
	return map[string]originalRow{
		"a success":      {bson.M{"state": "Success"}, nil},
		"null":           {bson.M{"state": "Success", "reversedBy": nil}, nil},
		"reversed":       {bson.M{"state": "Success", "reversedBy": "another"}, func(f protocol.Facts) bool { return f.Exhausted }},
		"reversed by ''": {bson.M{"state": "Success", "reversedBy": ""}, func(protocol.Facts) bool { return true }},
		"reversed in part": {
			bson.M{"state": "Success", "reversedBy": "another", "reversed": bson.M{"%00alice": int64(1), "%00bob": int64(-1)}},
			func(f protocol.Facts) bool { return f.Outdated },
		},
		"reversed by none": {
			bson.M{"state": "Success", "reversedBy": "another", "reversed": bson.M{"%00carol": int64(1)}},
			func(f protocol.Facts) bool { return f.Unmet },
		},
		"on its way": {bson.M{"state": "Committed"}, func(f protocol.Facts) bool { return f.Unmet }},
		"failed":     {bson.M{"state": "Fail"}, func(f protocol.Facts) bool { return f.Unmet }},
		"reserved": {
			bson.M{"state": "Success", "pending": bson.M{"another": int64(0)}},
			func(f protocol.Facts) bool { return f.Taken && !f.Unmet },
		},
	}
}

// A reversal reserves a successful transfer that no other reversal has, and of which the
// latest reversal is the one that was read.
// It uses the fields of transfers for markers and fences, whatever those of accounts are.
// When it is settled, it stores its own ID, and counts what it has moved.
// Nothing is owed to an original that is gone.
func TestReversalsEffect(t *testing.T) {
	t.Parallel()
	b := newShop(t, func(c *storetest.Config) { c.Fields.Pending, c.Fields.Fence = "inFlight", "token" })
	reversal := func(id, of string) *mongostore.Attempt {
		legs := []document.Leg{b.Leg("alice", 60), b.Leg("bob", -60)}
		a, err := b.Store.NewAttempt(document.Transfer{ID: id, Legs: legs, Reverses: of,
			Digest: document.Digest{Format: document.Format, Sum: []byte{1}}}, "owner of "+id)
		require.NoError(t, err)
		b.Applied(a, storetest.Claim(protocol.Insert))
		assert.Equal(t, of, storetest.AsMap(t, b.Raw("transfers", id))["reverses"])
		return a
	}
	for name, row := range originals() {
		b.Claimed(name, b.Leg("alice", -60), b.Leg("bob", 60))
		b.Change("transfers", name, bson.M{"$set": bson.M{"state": "Success"}})
		a := reversal("of "+name, name)
		prepare := storetest.PrepareWith(2, b.On(a, storetest.At(protocol.ReadFence, 2)).Facts.Fence)
		b.Change("transfers", name, bson.M{"$set": row.change})
		before := b.Raw("transfers", name)
		if answer := b.On(a, prepare); row.shows != nil {
			require.Equal(t, protocol.NotMatched, answer.Result, name)
			require.Equal(t, before, b.Raw("transfers", name))
			require.True(t, row.shows(b.On(a, storetest.At(protocol.Look, 2)).Facts), name)
			continue
		}
		require.Equal(t, bson.M{"of " + name: int64(0)}, storetest.AsMap(t, b.Raw("transfers", name))["pending"])
		require.NotEqual(t, protocol.NoTrace, b.On(a, storetest.At(protocol.Look, 2)).Facts.Trace)
		original, found, err := b.Store.ReadTransfer(t.Context(), name)
		require.True(t, found && err == nil && original.ReservedByOther("") != "")
		b.Applied(a, storetest.Replacing(storetest.At(protocol.Settle, 2)))
		after := storetest.AsMap(t, b.Raw("transfers", name))
		require.Equal(t, "of "+name, after["reversedBy"])
		require.Equal(t, bson.M{"%00alice": int64(60), "%00bob": int64(-60)}, after["reversed"])
		require.Equal(t, bson.M{}, after["pending"])
		require.IsType(t, bson.ObjectID{}, after["fence"])
		require.Nil(t, after["inFlight"])
		original, _, err = b.Store.ReadTransfer(t.Context(), name)
		require.NoError(t, err)
		require.Empty(t, original.ReservedByOther(""))
		require.Equal(t, "of "+name, original.ReversedBy)
	}
	gone := reversal("of nothing", "nothing")
	assert.Equal(t, protocol.Facts{Unmet: true, MayBeGone: true}, b.On(gone, storetest.At(protocol.Look, 2)).Facts)
}

// A transfer with effects is stored as documented, and reads back the same, so another
// process can finish it.
func TestStoredEffects(t *testing.T) {
	t.Parallel()
	b := newShop(t)
	a := b.changing("t", b.effect("o", unpaid(), paid()), b.effect(7, nil, paid()), b.effect(bson.ObjectID{7}, unpaid(), nil))
	b.Applied(a, storetest.Claim(protocol.Insert))
	ns := b.DB.Name() + ".orders"
	assert.Equal(t, bson.A{
		bson.M{"documents": "orders", "ns": ns, "id": "o", "require": bson.M{"status": "unpaid"}, "set": bson.M{"status": "paid", "by": "me"}},
		bson.M{"documents": "orders", "ns": ns, "id": int64(7), "set": bson.M{"status": "paid", "by": "me"}},
		bson.M{"documents": "orders", "ns": ns, "id": bson.ObjectID{7}, "require": bson.M{"status": "unpaid"}},
	}, b.stored("t", "createdAt", "lastModified")["effects"])
	stored, found, err := b.Store.ReadTransfer(t.Context(), "t")
	require.NoError(t, err)
	require.True(t, found)
	b.PutIn("orders", bson.M{"_id": "o", "status": "unpaid"}, bson.M{"_id": 7.0}, bson.M{"_id": bson.ObjectID{7}, "status": "unpaid"})
	another, err := b.Store.NewAttempt(stored, "another")
	require.NoError(t, err)
	b.Prepared(another)
	b.Applied(another, storetest.At(protocol.Settle, 0), storetest.At(protocol.Settle, 1), storetest.At(protocol.Settle, 2))
	b.Has("orders", bson.M{"_id": "o", "status": "paid", "by": "me", "pending": bson.M{}})
	b.Has("orders", bson.M{"_id": 7.0, "status": "paid", "by": "me", "pending": bson.M{}})
	b.Has("orders", bson.M{"_id": bson.ObjectID{7}, "status": "unpaid", "pending": bson.M{}})

	strangers := newBank(t)
	_, err = strangers.Store.NewAttempt(stored, "me")
	require.ErrorIs(t, err, mongostore.ErrForeign)
	moved := stored
	moved.Effects = []document.Effect{stored.Effects[0]}
	moved.Effects[0].Namespace = "elsewhere.orders"
	_, err = b.Store.NewAttempt(moved, "me")
	require.ErrorIs(t, err, mongostore.ErrForeign)
	refusal := storetest.Decide(protocol.Rollback, 1)
	refusal.Refusal = protocol.Refusal{Reason: protocol.RequirementFailed, Participant: 1}
	b.Applied(a, refusal)
	failure := b.stored("t", "createdAt", "lastModified")["failure"]
	assert.Equal(t, bson.M{"code": "requirementFailed", "ledger": "orders", "account": `{"$numberLong":"7"}`, "message": ""}, failure)
}

// Looks at several documents share their commands, and each checks its own requirement.
// This holds for two looks at one document, for an _id that is written in another way
// than requested, and if the server refuses one of the requirements.
func TestRequirementsAreJudgedEach(t *testing.T) {
	t.Parallel()
	b := newShop(t)
	b.PutIn("orders", bson.M{"_id": "o", "status": "unpaid"}, bson.M{"_id": 7.0, "status": "unpaid"},
		bson.M{"_id": "mine", "status": "written meanwhile", "pending": bson.M{"t3": int64(0)}}, bson.M{"_id": "bad"})
	undefined := bson.D{{Key: "x", Value: bson.Undefined{}}}
	for name, row := range map[string]struct {
		effects []document.Effect
		unmet   []bool // nil: not known
	}{
		"one document": {[]document.Effect{b.effect("o", unpaid(), nil), b.effect("o", paid(), nil),
			b.effect("o", nil, nil)}, []bool{false, true, false}},
		"several": {[]document.Effect{b.effect(7, unpaid(), nil), b.effect("o", paid(), nil),
			b.effect("gone", nil, nil)}, []bool{false, true, true}},
		"reserved by itself": {
			[]document.Effect{b.effect(7, paid(), nil), b.effect("o", unpaid(), nil), b.effect(7, unpaid(), nil), b.effect("mine", unpaid(), nil)},
			[]bool{true, false, false, false},
		},
		"one that is refused": {
			[]document.Effect{b.effect("o", unpaid(), nil), b.effect(7, paid(), nil), b.effect("bad", undefined, nil)}, []bool{false, true},
		},
	} {
		var rs requests
		for i, e := range row.effects {
			rs.add(b.changing(fmt.Sprint("t", i), e), storetest.At(protocol.Look, 0))
		}
		results := b.batch(rs)
		for i := range row.effects {
			if i >= len(row.unmet) {
				require.Equal(t, protocol.Unknown, results[i], "%s, %d", name, i)
				continue
			}
			require.Equal(t, protocol.Applied, results[i], "%s, %d", name, i)
			require.Equal(t, row.unmet[i], rs[i].Answer.Facts.Unmet, "%s, %d", name, i)
		}
	}
	a := b.changing("t", b.effect("o", unpaid(), nil))
	b.On(a, storetest.At(protocol.ReadFence, 0))
	_, known := b.Store.AnswerFromCache(a, storetest.At(protocol.ReadFence, 0))
	require.False(t, known, "the fences of documents are not remembered: most of them are reserved once")
}
