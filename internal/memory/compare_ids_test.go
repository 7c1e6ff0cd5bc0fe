package memory_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// requireSame requires that both collections hold the same.
func (p *pair) requireSame() {
	p.t.Helper()
	want, got, _ := p.find(bson.D{})
	require.Equal(p.t, want, got)
}

// insert inserts a document into both, and reports whether they refuse it.
func (p *pair) insert(document any) (refused bool) {
	p.t.Helper()
	_, _, refused = p.both(func(c *mongo.Collection) (any, error) {
		_, err := c.InsertOne(p.t.Context(), document)
		return nil, err
	})
	return refused
}

// A document is found by its _id whatever the types of the numbers in it, at any depth,
// and there is no second one whose _id is the same.
func TestNumbersInIDs(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	decimal, err := bson.ParseDecimal128("1.0")
	require.NoError(t, err)
	nested := func(n any) any { return bson.D{{Key: "a", Value: bson.D{{Key: "b", Value: bson.A{n, "x"}}}}} }
	plain := func(n any) any { return bson.D{{Key: "a", Value: n}} }
	require.False(t, p.insert(id(plain(int32(1)))))
	require.False(t, p.insert(id(nested(int64(1)))))
	for _, n := range []any{int32(1), int64(1), 1.0, decimal} {
		for _, of := range []func(any) any{plain, nested} {
			want, got, _ := p.find(id(of(n)))
			require.Len(t, want, 1)
			require.Equal(t, want, got)
			require.True(t, p.insert(id(of(n))))
		}
	}
	for _, other := range []any{plain("1"), plain(2), bson.D{{Key: "b", Value: 1}}, bson.D{{Key: "a", Value: 1}, {Key: "b", Value: 1}}} {
		require.False(t, p.insert(id(other)))
	}
	p.requireSame()
}

// What is no _id is refused, and a document that is too large.
func TestDocumentsThatAreNone(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	for _, bad := range []any{
		bson.A{1}, bson.Regex{Pattern: "x"}, bson.Undefined{}, one("$x", 1),
		one("a", one("$x", 1)),
	} {
		require.True(t, p.insert(id(bad)), "%v", bad)
		_, _, refused := p.both(func(c *mongo.Collection) (any, error) {
			_, err := c.UpdateOne(t.Context(), one("n", 1), bson.D{{Key: "$setOnInsert", Value: id(bad)}}, upsert())
			return nil, err
		})
		require.True(t, refused, "%v", bad)
	}
	require.False(t, p.insert(id(1)))
	half := strings.Repeat("x", 9<<20)
	update := func(name string) bool {
		_, _, refused := p.both(func(c *mongo.Collection) (any, error) {
			_, err := c.UpdateByID(t.Context(), 1, set(one(name, half)))
			return nil, err
		})
		return refused
	}
	require.False(t, update("a"))
	require.True(t, update("b"))
	for _, c := range []*mongo.Collection{p.real, p.memory} {
		_, err := c.InsertOne(context.Background(), named("_id", 2, "a", half, "b", half))
		require.Error(t, err)
	}
	n, m, _ := p.both(func(c *mongo.Collection) (any, error) { return c.CountDocuments(t.Context(), bson.D{}) })
	require.Equal(t, n, m)
}

// An _id stays as it is stored.
func TestIDStays(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	require.False(t, p.insert(id(1)))
	for _, update := range []any{
		set(id(1.0)), set(id(int64(1))), set(id(2)), bson.D{{Key: "_id", Value: 1.0}, {Key: "a", Value: 1}},
		bson.A{one("$set", id(int64(1)))}, one("$inc", id(0)), one("$unset", id(1)),
	} {
		p.both(func(c *mongo.Collection) (any, error) {
			filter := id(1)
			if d, is := update.(bson.D); is && d[0].Key == "_id" {
				_, err := c.ReplaceOne(t.Context(), filter, d)
				return nil, err
			}
			_, err := c.UpdateOne(t.Context(), filter, update)
			return nil, err
		})

		p.requireSame()
	}
}

// A path that ends with an index leads to that element, and not to the elements within.
func TestFiltersByIndex(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	for i, l := range []any{
		bson.A{bson.A{1, 2}}, bson.A{1, 2}, bson.A{bson.A{bson.A{1}}}, bson.A{bson.A{}}, bson.A{one("0", 1)},
		bson.A{one("0", bson.A{1})}, one("0", bson.A{1, 2}), bson.A{bson.A{one("b", 1)}}, bson.A{nil}, bson.A{},
	} {
		require.False(t, p.insert(named("_id", i, "l", l)))
	}
	for _, path := range []string{"l", "l.0", "l.0.0", "l.0.0.0", "l.0.b", "l.1"} {
		for _, condition := range []any{
			1, bson.A{1}, bson.A{1, 2}, bson.A{}, nil, one("$gt", 0), one("$ne", 1), one("$in", bson.A{1, nil}), one("$size", 2),
			one("$type", "array"), one("$type", "int"), one("$exists", true), one("$elemMatch", one("$gt", 0)), one("$gte", bson.A{1}),
			one("$not", one("$gt", 0)),
		} {
			want, got, _ := p.find(one(path, condition))
			require.Equal(t, want, got, fmt.Sprint(path, condition))
		}
	}
}

func upsert() *options.UpdateOneOptionsBuilder { return options.UpdateOne().SetUpsert(true) }
