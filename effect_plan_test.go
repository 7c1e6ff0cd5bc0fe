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
