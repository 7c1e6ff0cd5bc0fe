package memory_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/document"
)

func one(key string, value any) bson.D { return bson.D{{Key: key, Value: value}} }

// named returns a document of names and their values.
func named(pairs ...any) bson.D {
	var d bson.D
	for i := 0; i+1 < len(pairs); i += 2 {
		d = append(d, bson.E{Key: pairs[i].(string), Value: pairs[i+1]})
	}
	return d
}

// record draws a document like an account or a transfer: its fields have the types that
// they should have, or are missing, or somebody has changed them.
func (r random) record(id int) bson.D {
	record := one("_id", id)
	put := func(name string, usual any) {
		odd := []any{nil, int32(7), true, bson.D{{Key: "x", Value: 1}}, bson.A{}, bson.MaxKey{}}
		switch r.IntN(4) {
		case 0:
		case 1:
			record = append(record, bson.E{Key: name, Value: odd[r.IntN(len(odd))]})
		default:
			record = append(record, bson.E{Key: name, Value: usual})
		}
	}
	decimal, _ := bson.ParseDecimal128([]string{"1.50", "0.123456789012", "0.1234567890123", "-7", "1E+3", "NaN", "Infinity"}[r.IntN(7)])
	markers := bson.D{}
	for _, name := range []string{"a", "b:done", "c", "d:done"} {
		if r.IntN(3) == 0 {
			markers = append(markers, bson.E{Key: name, Value: r.IntN(2)})
		}
	}
	legs := bson.A{}
	for range r.IntN(3) {
		legs = append(legs, bson.D{{Key: "account", Value: r.name()}, {Key: "ledger", Value: ""}, {Key: "amount", Value: r.IntN(5)}})
	}
	put("at", r.date())
	put("from", r.date())
	put("n", []any{int32(r.IntN(5)), int64(r.IntN(5)), float64(r.IntN(5)), decimal}[r.IntN(4)])
	put("pending", markers)
	put("legs", legs)
	put("state", r.name())
	put("metadata", bson.D{{Key: "a", Value: 1}})
	return record
}

func (r random) name() string { return []string{"a", "b", "c"}[r.IntN(3)] }

func (r random) date() bson.DateTime { return bson.DateTime(1_700_000_000_000 + 1000*r.IntN(4)) }

// dateOrNull is how the library guards what should be a date.
func dateOrNull(e any) bson.D {
	return one("$cond", bson.A{one("$eq", bson.A{one("$type", e), "date"}), e, nil})
}

// ofRecord draws an expression of the shapes that the library sends about its documents.
func (r random) ofRecord(t *testing.T) any {
	t.Helper()
	isA := one("$eq", bson.A{"$state", r.name()})
	later := one("$max", bson.A{dateOrNull("$at"), dateOrNull("$from"), r.date()})
	number := one("$in", bson.A{one("$type", "$n"), bson.A{"int", "long", "double"}})
	switch r.IntN(16) {
	case 0:
		return document.NothingReserved("pending")
	case 1:
		exact, err := document.ExactBalance("n")
		require.NoError(t, err)
		return exact
	case 2:
		return one("$convert", bson.D{
			{Key: "input", Value: "$at"}, {Key: "to", Value: "date"}, {Key: "onError", Value: r.date()}, {Key: "onNull", Value: later},
		})
	case 3:
		return one("$max", bson.A{"$at", "$from", dateOrNull("$n")})
	case 4:
		return one("$add", bson.A{later, int64(r.IntN(5000))})
	case 5:
		return one("$subtract", bson.A{dateOrNull("$at"), int64(r.IntN(5000))})
	case 6:
		return one("$add", bson.A{one("$cond", bson.A{number, "$n", 2}), int64(1)})
	case 7:
		kind := one("$type", "$metadata")
		readable := one("$in", bson.A{kind, bson.A{"object", "array", "null", "undefined", "missing"}})
		return one("$setField", bson.D{
			{Key: "field", Value: "metadata"}, {Key: "input", Value: "$$ROOT"},
			{Key: "value", Value: one("$cond", bson.A{readable, "$$REMOVE", kind})},
		})
	case 8:
		return one("$let", named("vars", one("since", one("$ifNull", bson.A{"$at", "$from"})), "in", dateOrNull("$$since")))
	case 9:
		return one("$switch", bson.D{
			{Key: "branches", Value: bson.A{
				bson.D{{Key: "case", Value: isA}, {Key: "then", Value: "$at"}},
				bson.D{{Key: "case", Value: one("$gt", bson.A{"$n", nil})}, {Key: "then", Value: later}},
			}},
			{Key: "default", Value: "$from"},
		})
	case 10:
		return one("$lte", bson.A{"$at", one("$subtract", bson.A{"$$NOW", 1000})})
	case 11, 12, 13, 14:
		return r.ofLegs(number)
	}
	return one("$not", bson.A{isA})
}

// ofLegs draws an expression of the shapes that the library sends about lists, and about
// the time of the next attempt.
func (r random) ofLegs(number bson.D) any {
	switch r.IntN(4) {
	case 0:
		attempts := one("$subtract", bson.A{one("$cond", bson.A{number, "$n", int64(1) << r.IntN(8)}), 1})
		doubled := one("$pow", bson.A{[]any{2, int64(2), 2.0}[r.IntN(3)], attempts})
		return one("$min", bson.A{int64(300_000), one("$multiply", bson.A{int64(1000), doubled}), nil})
	case 1:
		return one("$map", named("input", r.legs(), "as", "e", "in", one("$mergeObjects", bson.A{
			"$$e", nil, named("amount", one("$ifNull", bson.A{"$$e.gone", "$at"}), "more", "$$e.account", "gone", "$$e.gone"),
		})))
	case 2:
		names := one("$map", named("input", r.legs(), "in", one("$eq", bson.A{"$$this.account", r.name()})))
		return one("$allElementsTrue", bson.A{one("$ifNull", bson.A{names, bson.A{}})})
	default:
		known := one("$in", bson.A{"$$e.account", bson.A{"a", "b"}})
		return one("$filter", named("input", r.legs(), "as", "e", "cond", one("$not", bson.A{known})))
	}
}

// legs are the legs of a record, or nothing where they are no list.
func (r random) legs() bson.D {
	are := one("$eq", bson.A{one("$type", "$legs"), "array"})
	return one("$cond", bson.A{are, "$legs", []any{nil, bson.A{}}[r.IntN(2)]})
}

// projection draws one of the shapes that the library sends.
func (r random) projection(t *testing.T) bson.D {
	t.Helper()
	switch r.IntN(5) {
	case 0:
		return bson.D{{Key: "at", Value: 1}, {Key: r.name(), Value: 1}, {Key: "state", Value: 1}}
	case 1:
		return named("legs", one("$elemMatch", named("account", r.name(), "ledger", "")), "at", 1)
	case 2:
		return bson.D{{Key: "metadata", Value: 0}, {Key: "_id", Value: 0}}
	case 3:
		return one("_id", r.IntN(2))
	}
	return bson.D{{Key: "_id", Value: r.IntN(2)}, {Key: "v", Value: r.ofRecord(t)}, {Key: "state", Value: 1}}
}

func (p *pair) aggregate(pipeline bson.A) (want, got any, refused bool) {
	p.t.Helper()
	return p.both(func(c *mongo.Collection) (any, error) {
		cursor, err := c.Aggregate(p.t.Context(), pipeline)
		if err != nil {
			return nil, err
		}
		var found []bson.Raw
		err = cursor.All(p.t.Context(), &found)
		texts := make([]string, len(found))
		for i := range found {
			texts[i] = found[i].String()
		}
		return texts, err
	})
}

// newRecords returns a pair of collections with records.
func newRecords(t *testing.T, r random) *pair {
	t.Helper()
	p := newPair(t)
	var records []any
	for i := range 200 {
		records = append(records, r.record(i))
	}
	_, _, refused := p.both(func(c *mongo.Collection) (any, error) { return c.InsertMany(t.Context(), records) })
	require.False(t, refused)
	return p
}

// What a read makes of documents is what a real server makes of them: by a projection, by
// an expression, and by a group of all.
func TestReadsAreThoseOfAServer(t *testing.T) {
	t.Parallel()
	r := newRandom(t)
	p := newRecords(t, r)
	byID := one("$sort", one("_id", 1))
	for n := range 120 {
		projection := r.projection(t)
		want, got, refused := p.find(bson.D{}, options.Find().SetProjection(projection).SetSort(one("_id", 1)))
		require.Equal(t, want, got, "projection %d: %s", n, text(projection))
		require.False(t, refused)
		expression := r.ofRecord(t)
		about := fmt.Sprintf("expression %d: %s", n, text(one("v", expression)))
		want, got, refused = p.aggregate(bson.A{byID, one("$project", one("v", expression))})
		require.Equal(t, want, got, about)
		require.False(t, refused, about)
		group := bson.D{
			{Key: "_id", Value: nil}, {Key: "n", Value: one("$sum", one("$cond", bson.A{expression, 1, 0}))},
			{Key: "least", Value: one("$min", expression)},
		}
		first := one("$match", one("_id", bson.D{{Key: "$gte", Value: r.IntN(210)}}))
		want, got, refused = p.aggregate(bson.A{first, byID, one("$limit", 1+r.IntN(20)), one("$group", group)})
		require.Equal(t, want, got, about)
		require.False(t, refused, about)
	}
}

// An update by a pipeline changes a document as on a real server.
func TestPipelinesAreThoseOfAServer(t *testing.T) {
	t.Parallel()
	r := newRandom(t)
	p := newPair(t)
	for n := range 400 {
		record := r.record(n)
		p.both(func(c *mongo.Collection) (any, error) { return c.InsertOne(t.Context(), record) })
		set := bson.D{
			{Key: "state", Value: r.name()}, {Key: "now", Value: "$$NOW"}, {Key: "at", Value: r.ofRecord(t)},
			{Key: "v", Value: one("$literal", r.value(1))}, {Key: "from", Value: "$at"},
		}
		update := bson.A{one("$set", set[r.IntN(3):3+r.IntN(3)]), one("$unset", bson.A{"legs", r.name()})}
		filter := one("_id", n+r.IntN(2)*r.IntN(2))
		about := fmt.Sprintf("update %d of %s: %s", n, text(record), text(one("u", update)))
		want, got, refused := p.both(func(c *mongo.Collection) (any, error) {
			result, err := c.UpdateOne(t.Context(), filter, update)
			if err != nil {
				return nil, err
			}
			return []int64{result.MatchedCount, result.ModifiedCount}, nil
		})
		require.False(t, refused, about)
		require.Equal(t, want, got, about)
		want, got, _ = p.find(filter)
		requireSame(t, want, got, about)
	}
}
