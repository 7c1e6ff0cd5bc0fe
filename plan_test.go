package transfer

import (
	"bytes"
	"context"
	"encoding/hex"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

// newPlanner returns a coordinator without a server, with the ledgers "" and "eu".
func newPlanner(tb testing.TB, ids IDCodec) *Coordinator {
	tb.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:1"))
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	db := client.Database("bank")
	c, err := NewCoordinator(db, WithAccountIDs(ids), WithLedger("eu", db.Collection("accounts_eu")))
	require.NoError(tb, err)
	return c
}

// TestDigestsAreForEver promises that the digest of a payload is the same in each version
// of the library, byte for byte.
// Digests of earlier years are stored. A different one makes a repeated request a
// conflict, and a stalled transfer one that no version touches.
func TestDigestsAreForEver(t *testing.T) {
	decimal := func(text string) Amount {
		amount, err := ParseDecimal(text)
		require.NoError(t, err)
		return amount
	}
	leg := func(ledger, account string, amount Amount) Leg {
		return Leg{Ledger: ledger, Account: account, Amount: amount}
	}
	in := func(currency string, leg Leg) Leg { leg.Currency = currency; return leg }
	strings, objects := newPlanner(t, StringIDs), newPlanner(t, ObjectIDs)
	for name, row := range map[string]struct {
		c      *Coordinator
		req    Request
		digest string
	}{
		"units": {strings, Request{From: "alice", To: "bob", Amount: Units(6000)},
			"01fc17ac9fc20e1d9fd2eba1dff11a14b8f725841d97a6be9849d1ca979a9700dd"},
		"a currency": {strings, Request{From: "bob", To: "Zoë", Amount: Units(1 << 48), Currency: "EUR"},
			"01a1b8d318e7d5f2009c98cc084bc8fa45962a8d8886d84a1f0fdb689ccc4ba0aa"},
		"decimals": {strings, Request{From: "alice", To: "bob", Amount: decimal("12.50")},
			"01687c954f8b3db3961631f6fff11165ca572f7d8bdf120511730b19f749edf75d"},
		"whole decimals": {strings, Request{From: "alice", To: "bob", Amount: decimal("1000.00"), Currency: "€"},
			"017310a16149c4bb4f50aeb280e2659f500727a05df98f9aeb1e7a0caea9423308"},
		"many legs, which are netted": {strings, Request{Legs: []Leg{
			leg("eu", "carol", decimal("0.000000000001")), leg("", "bob", decimal("-7.5")), leg("", "alice", decimal("10")),
			leg("eu", "bob", decimal("2.499999999999")), leg("", "alice", decimal("-5.00")), leg("eu", "alice", decimal("1")),
			leg("eu", "alice", decimal("-1.0"))}},
			"01a447273dd7e0b6290366ff0915e32ef8bb951c05d0a689cab16fe265764094c9"},
		"an exchange": {strings, Request{Currency: "EUR", Legs: []Leg{
			leg("", "alice", Units(-60)), in("USD", leg("eu", "house", Units(-66))),
			leg("", "house", Units(60)), in("USD", leg("eu", "alice", Units(66)))}},
			"03f403bef8a9089e8bbe0feba57c09bc17dcf62147c4b69ea7cc64492530c71f5e"},
		"an exchange of what has no currency": {strings, Request{Legs: []Leg{
			leg("", "alice", Units(-250)), in("€", leg("", "till", decimal("2.50"))),
			leg("", "issued", Units(250)), in("€", leg("", "bob", decimal("-2.5")))}},
			"03d19f21bf9d5e094aaeaa92fd4f57d8afad8bfce85873c8e0cdeae8d860597601"},
		"a currency that only legs name": {strings, Request{Currency: "USD", Legs: []Leg{
			in("EUR", leg("", "bob", Units(-1<<48))), in("EUR", leg("", "Zoë", Units(1<<48)))}},
			"01a1b8d318e7d5f2009c98cc084bc8fa45962a8d8886d84a1f0fdb689ccc4ba0aa"},
		"long IDs": {strings, Request{From: long("a"), To: long("b"), Amount: Units(1)},
			"01534c2e999736db3baca2593e45bf5072720715dc97e5eaa371382084c2372857"},
		"ObjectIds": {objects, Request{From: "0123456789ABCDEFabcdef00", To: "0123456789abcdefABCDEF01", Amount: Units(7)},
			"0113adaf000f713b1d440f099a29575dccba1bbda4ffd323ef1377e2792acf52a3"},
	} {
		row.req.ID = "order-17"
		planned, err := row.c.plan(row.req)
		require.NoError(t, err, name)
		require.Equal(t, row.digest, hex.EncodeToString(planned.Digest.Sum), name)
	}
}

func long(id string) string { return strings.Repeat(id, 255) }

// newEffectPlanner returns a coordinator without a server, with the documents "orders".
func newEffectPlanner(t *testing.T) *Coordinator {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:1"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(t.Context()) })
	c, err := NewCoordinator(client.Database("shop"), WithDocuments("orders", client.Database("shop").Collection("orders")))
	require.NoError(t, err)
	return c
}

// An effect has the same digest on each call, although the iteration order of Go maps
// varies: in its ID, its requirements and the values it sets, at any depth.
func TestEffectsWithMapsHaveOneDigest(t *testing.T) {
	c := newEffectPlanner(t)
	many := map[string]any{"a": 1, "b": 2, "c": 3, "d": 4}
	for name, effect := range map[string]Effect{
		"its ID":              {ID: many},
		"a nested ID":         {ID: bson.D{{Key: "x", Value: bson.M{"a": 1, "b": 2, "c": 3, "d": 4}}}},
		"a requirement":       {ID: "o", Require: bson.D{{Key: "x", Value: many}}},
		"what it sets":        {ID: "o", Set: bson.D{{Key: "x", Value: many}}},
		"a map in a document": {ID: "o", Set: bson.D{{Key: "x", Value: bson.D{{Key: "y", Value: many}}}}},
		"a map in a list":     {ID: "o", Set: bson.D{{Key: "x", Value: bson.A{bson.D{{Key: "y", Value: bson.A{many}}}}}}},
	} {
		effect.Documents = "orders"
		first, err := c.plan(Request{ID: "t", Effects: []Effect{effect}})
		require.NoError(t, err, name)
		for range 50 {
			again, err := c.plan(Request{ID: "t", Effects: []Effect{effect}})
			require.NoError(t, err, name)
			require.Equal(t, first.Digest, again.Digest, name)
		}
	}
	first, err := encodeMetadata(map[string]any{"x": bson.D{{Key: "y", Value: many}}})
	require.NoError(t, err)
	for range 50 {
		again, err := encodeMetadata(map[string]any{"x": bson.D{{Key: "y", Value: many}}})
		require.NoError(t, err)
		require.Equal(t, first, again, "metadata")
	}
}

// Values that callers have encoded themselves are checked, in effects and in metadata.
// A server would not answer a command that it can't read.
// Bytes behind a value would be a field that was never checked.
func TestBrokenEncodingIsInvalid(t *testing.T) {
	t.Parallel()
	c := newEffectPlanner(t)
	for name, value := range map[string]bson.RawValue{
		"a text without an end":        {Type: bson.TypeString, Value: []byte{1, 0, 0, 0, 7}},
		"a boolean of 7":               {Type: bson.TypeBoolean, Value: []byte{7}},
		"a document with another end":  {Type: bson.TypeEmbeddedDocument, Value: []byte{5, 0, 0, 0, 9}},
		"a scope without an end":       {Type: bson.TypeCodeWithScope, Value: []byte{14, 0, 0, 0, 1, 0, 0, 0, 0, 5, 0, 0, 0, 7}},
		"an ID behind a null":          {Type: bson.TypeNull, Value: []byte("\x10_id\x00\x01\x00\x00\x00")},
		"a number that is cut off":     {Type: bson.TypeInt64, Value: []byte{1}},
		"a boolean of 7 in a document": {Type: bson.TypeEmbeddedDocument, Value: []byte{9, 0, 0, 0, 8, 'x', 0, 7, 0}},
	} {
		req := Request{ID: "t", From: "a", To: "b", Amount: Units(1), Metadata: map[string]any{"x": value}}
		_, err := c.plan(req)
		require.ErrorIs(t, err, ErrInvalidRequest, "metadata: %s", name)
		req.Metadata = map[string]any{"x": bson.A{bson.D{{Key: "y", Value: value}}}}
		if _, err = c.plan(req); value.Type != bson.TypeNull { // which are two fields there
			require.ErrorIs(t, err, ErrInvalidRequest, "within metadata: %s", name)
		}
		fields := bson.D{{Key: "x", Value: value}}
		for part, effect := range map[string]Effect{
			"id": {ID: value}, "require": {ID: "o", Require: fields}, "set": {ID: "o", Set: fields}, "within an id": {ID: fields},
		} {
			if effect.Documents = "orders"; part == "within an id" && value.Type == bson.TypeNull {
				continue
			}
			_, err := c.plan(Request{ID: "t", Effects: []Effect{effect}})
			require.ErrorIs(t, err, ErrInvalidRequest, "%s: %s", part, name)
		}
	}
}

// Within an effect or metadata, nil is stored as null, as the driver stores it.
// An empty value is stored as empty.
func TestNilStaysNil(t *testing.T) {
	t.Parallel()
	c := newEffectPlanner(t)
	var list bson.A
	for name, value := range map[string]any{
		"no document": bson.D(nil), "no list": list, "no slice": []any(nil), "no texts": []string(nil), "no maps": []map[string]any(nil),
		"no map": map[string]any(nil), "no M": bson.M(nil), "no pointer": (*bson.D)(nil), "a pointer to none": &list, "no bytes": []byte(nil),
		"an empty document": bson.D{}, "an empty list": bson.A{}, "an empty slice": []any{}, "empty texts": []string{},
		"an empty map": map[string]any{}, "within": bson.D{{Key: "d", Value: bson.D(nil)}, {Key: "a", Value: bson.A{nil, bson.A(nil), bson.A{}}}},
	} {
		fields := bson.D{{Key: "x", Value: value}}
		want, err := bson.Marshal(fields)
		require.NoError(t, err)
		metadata, err := encodeMetadata(map[string]any{"x": value})
		require.NoError(t, err)
		require.Equal(t, bson.Raw(want).String(), metadata.String(), name)
		effect := Effect{Documents: "orders", ID: "o", Require: fields, Set: fields}
		planned, err := c.plan(Request{ID: "t", Effects: []Effect{effect}})
		require.NoError(t, err)
		require.Equal(t, bson.Raw(want).String(), planned.Effects[0].Require.String(), name)
		require.Equal(t, bson.Raw(want).String(), planned.Effects[0].Set.String(), name)
	}
}

// A requirement that the server can't compare is refused before anything is stored.
// A read could never find out whether it is met.
func TestEffectsThatCanNotBeCompared(t *testing.T) {
	c := newEffectPlanner(t)
	for name, effect := range map[string]Effect{
		"an operator for an ID":        {ID: bson.D{{Key: "$ne", Value: 1}}},
		"an operator in an ID":         {ID: bson.D{{Key: "a", Value: bson.D{{Key: "$ne", Value: 1}}}}},
		"what is undefined, required":  {ID: "o", Require: bson.D{{Key: "x", Value: bson.Undefined{}}}},
		"what is undefined, set":       {ID: "o", Set: bson.D{{Key: "x", Value: bson.Undefined{}}}},
		"an ID that is no proper text": {ID: "\xff"},
		"a map that holds itself":      {ID: "o", Set: bson.D{{Key: "x", Value: cyclic()}}},
		"documents nested without end": {ID: "o", Set: bson.D{{Key: "x", Value: nestedID(maxMetadataDepth + 1)}}},
		"documents nested in the ID":   {ID: nestedID(maxMetadataDepth + 1)},
	} {
		effect.Documents = "orders"
		_, err := c.plan(Request{ID: "t", Effects: []Effect{effect}})
		require.ErrorIs(t, err, ErrInvalidRequest, name)
	}
}

func cyclic() map[string]any {
	m := map[string]any{}
	m["m"] = m
	return m
}

func nestedID(levels int) any {
	var value any = 1
	for range levels {
		value = bson.D{{Key: "n", Value: value}}
	}
	return value
}

// payment is a request in the common form, for a small amount of either kind.
func payment(amount Amount) Request {
	return Request{ID: "order-17", From: "alice", To: "bob", Amount: amount}
}

// TestPlanningAllocatesLittle promises that planning a transfer of units takes three
// allocations, and checking that it is genuine one.
// With the three of its execution (see internal/protocol), all decisions about a transfer
// take fewer than eight.
func TestPlanningAllocatesLittle(t *testing.T) {
	c, req := newPlanner(t, StringIDs), payment(Units(6000))
	planned, err := c.plan(req)
	require.NoError(t, err)
	count := testing.AllocsPerRun(1000, func() { _, err = c.plan(req) })
	require.NoError(t, err)
	require.LessOrEqual(t, count, 3.0)
	isGenuine := false
	count = testing.AllocsPerRun(1000, func() { isGenuine = genuine(planned) })
	require.True(t, isGenuine)
	require.LessOrEqual(t, count, 1.0)
}

func BenchmarkPlan(b *testing.B) {
	decimal, err := ParseDecimal("12.50")
	require.NoError(b, err)
	c := newPlanner(b, StringIDs)
	for name, req := range map[string]Request{"units": payment(Units(6000)), "decimals": payment(decimal)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.plan(req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestReadyServersCostNothing promises that a transfer allocates nothing for the check of
// its servers, once they have passed it.
// The check still returns the errors of an ended context and of a closed coordinator.
func TestReadyServersCostNothing(t *testing.T) {
	c, err := NewCoordinator(mongotest.Database(t))
	require.NoError(t, err)
	planned, err := c.plan(payment(Units(6000)))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, c.readyFor(ctx, &planned))
	require.Zero(t, testing.AllocsPerRun(100, func() { err = c.readyFor(ctx, &planned) }))
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, c.readyFor(ctx, &planned), context.Canceled)
	require.NoError(t, c.Close(t.Context()))
	require.ErrorIs(t, c.readyFor(t.Context(), &planned), ErrClosed)
}

// BenchmarkNewWork measures the work before the engine, for a transfer whose servers have
// passed their check.
func BenchmarkNewWork(b *testing.B) {
	db := mongotest.Database(b)
	c, err := NewCoordinator(db, WithLedger("eu", db.Collection("accounts_eu")))
	require.NoError(b, err)
	require.NoError(b, c.ready(b.Context(), c.catalog.Addresses()...))
	for name, to := range map[string]string{"one ledger": "", "two ledgers": "eu"} {
		t, err := c.plan(Request{ID: "order-17", Legs: []Leg{
			{Account: "alice", Amount: Units(-6000)}, {Ledger: to, Account: "bob", Amount: Units(6000)},
		}})
		require.NoError(b, err)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.readyFor(b.Context(), &t); err != nil {
					b.Fatal(err)
				}
				if _, err := c.newAttempt(b.Context(), t, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The log line of a call costs nothing where the level Debug is off: no memory, and no
// read of the clock.
func TestLinesThatNobodyWantsCostNothing(t *testing.T) {
	c := newPlanner(t, StringIDs)
	var out bytes.Buffer
	c.log = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo}))
	looks := 0
	c.now = func() time.Time {
		looks++
		return time.Time{}
	}
	ctx := t.Context()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		rec, err := Record{ID: "t", State: StateFail}, ErrExpired
		line := c.lineOf(ctx, "transfer", rec.ID)
		defer func() { line.end(ctx, &rec, err) }()
	}))
	require.Zero(t, looks)
	require.Empty(t, out.String())
}

// A time that BSON can't hold is refused, and not stored as another one.
func TestMetadataTimes(t *testing.T) {
	t.Parallel()
	for year, fits := range map[int]bool{-1: true, 0: true, 9999: true, 292_000_000: true, 400_000_000: false, -400_000_000: false} {
		at := time.Date(year, 1, 1, 0, 0, 0, 1_000_001, time.UTC)
		for _, value := range []any{at, &at, map[string]any{"at": at}, []any{at}, bson.D{{Key: "at", Value: at}}} {
			_, err := encodeMetadata(map[string]any{"x": value})
			if fits {
				require.NoError(t, err, "%d in %T", year, value)
				continue
			}
			require.ErrorIs(t, err, ErrInvalidRequest, "%d in %T", year, value)
			require.ErrorContains(t, err, "can't be stored")
		}
	}
}
