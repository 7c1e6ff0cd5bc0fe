package transfer

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// newEffectPlanner returns a coordinator with the documents "orders" that has no server.
func newEffectPlanner(t *testing.T) *Coordinator {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:1"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(t.Context()) })
	c, err := NewCoordinator(client.Database("shop"), WithDocuments("orders", client.Database("shop").Collection("orders")))
	require.NoError(t, err)
	return c
}

// An effect is the same payload each time it is asked for, though Go tells the entries of a map in another order each time: in its ID, and
// in what it requires and sets, however deep.
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

// What callers have encoded themselves is looked at, in effects and in metadata: what no server reads would be answered by none, and bytes
// behind a value would be a field that nobody has checked.
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

// What is nil within an effect or metadata is stored as the driver stores it, as null, and what is empty as empty.
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

// What the server can't compare is refused before anything is stored: a look could never tell whether it is met.
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
