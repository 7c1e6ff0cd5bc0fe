package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/memory"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// pair is one collection on a real server, and one in memory.
type pair struct {
	t            *testing.T
	real, memory *mongo.Collection
}

func newPair(t *testing.T) *pair {
	t.Helper()
	server := memory.New(time.Now)
	client, err := server.Client()
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, client.Disconnect(context.Background()))
		server.Close()
	})
	db := mongotest.Database(t)
	return &pair{t, db.Collection("documents"), client.Database(db.Name()).Collection("documents")}
}

// both performs something on both collections, and requires that both refuse it with the
// same code, or neither.
func (p *pair) both(do func(c *mongo.Collection) (any, error)) (want, got any, refused bool) {
	p.t.Helper()
	want, wantErr := do(p.real)
	got, gotErr := do(p.memory)
	for _, err := range []error{wantErr, gotErr} {
		require.Equal(p.t, err != nil, codeOf(err) != 0, "%v", err)
	}
	require.Equal(p.t, codeOf(wantErr), codeOf(gotErr), "the server: %v, in memory: %v", wantErr, gotErr)
	return want, got, wantErr != nil
}

// codeOf returns the code of a server's error.
func codeOf(err error) int {
	var refused mongo.CommandError
	var written mongo.WriteException
	switch {
	case errors.As(err, &refused):
		return int(refused.Code)
	case errors.As(err, &written) && len(written.WriteErrors) > 0:
		return written.WriteErrors[0].Code
	}
	return 0
}

func (p *pair) find(filter bson.D, opts ...options.Lister[options.FindOptions]) (want, got any, refused bool) {
	p.t.Helper()
	return p.both(func(c *mongo.Collection) (any, error) {
		cursor, err := c.Find(p.t.Context(), filter, opts...)
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

// random draws documents, filters and updates of few values, so that they meet.
type random struct{ *rand.Rand }

func newRandom(t *testing.T) random {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("MEMORY_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("MEMORY_SEED=%d", seed)
	return random{rand.New(rand.NewPCG(seed, 1))}
}

func (r random) scalar() any {
	decimal, _ := bson.ParseDecimal128([]string{"1.50", "1.5", "2", "-0.000000000001", "1E+3"}[r.IntN(5)])
	all := []any{
		nil, int32(r.IntN(3)), int64(r.IntN(3)), float64(r.IntN(3)), 1.5, decimal, "", "a", "b", true, false,
		bson.DateTime(r.IntN(2)), bson.Timestamp{T: 1, I: uint32(r.IntN(2))}, bson.ObjectID{byte(r.IntN(2))},
		bson.MinKey{}, bson.MaxKey{}, bson.Binary{Data: []byte{byte(r.IntN(2))}},
	}
	return all[r.IntN(len(all))]
}

func (r random) value(depth int) any {
	switch {
	case depth > 0 && r.IntN(4) == 0:
		return r.document(depth-1, 2)
	case depth > 0 && r.IntN(5) == 0:
		array := bson.A{}
		for range r.IntN(3) {
			if element := r.value(depth - 1); rankOf(element) != "array" {
				array = append(array, element)
			}
		}
		return array
	}
	return r.scalar()
}

// rankOf distinguishes arrays: the library stores none in another one.
func rankOf(v any) string {
	if _, is := v.(bson.A); is {
		return "array"
	}
	return ""
}

func (r random) document(depth, most int) bson.D {
	d := bson.D{}
	for _, name := range []string{"a", "b", "c", "k"} {
		if len(d) < most && r.IntN(2) == 0 {
			d = append(d, bson.E{Key: name, Value: r.value(depth)})
		}
	}
	return d
}

func (r random) path() string {
	return []string{"a", "b", "c", "a.b", "a.k", "b.a", "a.b.c", "k"}[r.IntN(8)]
}

func (r random) condition() any {
	switch r.IntN(16) {
	case 0, 1:
		return r.value(1)
	case 2:
		return bson.D{{Key: "$eq", Value: r.value(1)}}
	case 3:
		return bson.D{{Key: "$ne", Value: r.value(1)}}
	case 4:
		return bson.D{{Key: "$in", Value: bson.A{r.value(1), r.scalar()}}}
	case 5:
		return bson.D{{Key: "$nin", Value: bson.A{r.value(1), r.scalar()}}}
	case 6, 7, 8:
		operator := []string{"$gt", "$gte", "$lt", "$lte"}[r.IntN(4)]
		return bson.D{{Key: operator, Value: r.bound()}, {Key: "$lte", Value: r.bound()}}
	case 9:
		return bson.D{{Key: "$exists", Value: r.IntN(2) == 0}}
	case 10:
		types := bson.A{"int", "long", "decimal", "array", "object", "null", "date", "number"}
		return bson.D{{Key: "$type", Value: bson.A{types[r.IntN(8)], types[r.IntN(8)]}}}
	case 11:
		return bson.D{{Key: "$not", Value: bson.D{{Key: "$type", Value: "array"}}}, {Key: "$eq", Value: r.value(1)}}
	case 12:
		return bson.D{{Key: "$elemMatch", Value: bson.D{{Key: "a", Value: r.scalar()}}}}
	case 13:
		return bson.D{{Key: "$size", Value: r.IntN(3)}}
	case 14:
		either := bson.A{bson.D{{Key: "a", Value: r.scalar()}}, bson.D{{Key: "b", Value: bson.D{{Key: "$exists", Value: true}}}}}
		return bson.D{{Key: "$elemMatch", Value: bson.D{{Key: []string{"$or", "$and", "$nor"}[r.IntN(3)], Value: either}}}}
	}
	return bson.D{{Key: "$elemMatch", Value: bson.D{{Key: "$eq", Value: r.scalar()}}}}
}

// bound is a value that ranges are asked for: no filter of the library compares whether
// something is less than null, or than a bound of all types.
func (r random) bound() any {
	for {
		switch v := r.scalar().(type) {
		case nil, bson.MinKey, bson.MaxKey:
		default:
			return v
		}
	}
}

func (r random) filter() bson.D {
	filter := bson.D{{Key: r.path(), Value: r.condition()}}
	switch r.IntN(5) {
	case 0:
		filter = append(filter, bson.E{Key: "$or", Value: bson.A{
			bson.D{{Key: r.path(), Value: r.condition()}}, bson.D{{Key: r.path(), Value: r.condition()}},
		}})
	case 1:
		filter = append(filter, bson.E{Key: "$nor", Value: bson.A{bson.D{{Key: r.path(), Value: r.condition()}}}})
	case 2:
		filter = bson.D{{Key: "$expr", Value: r.expression(2)}}
	}
	return filter
}

// expression draws one that fails on no value, as the library's do.
func (r random) expression(depth int) any {
	field := "$" + r.path()
	if depth == 0 {
		return []any{field, bson.D{{Key: "$literal", Value: r.scalar()}}}[r.IntN(2)]
	}
	inner := func() any { return r.expression(depth - 1) }
	switch r.IntN(9) {
	case 0, 1, 2:
		operator := []string{"$eq", "$ne", "$gt", "$gte", "$lt", "$lte"}[r.IntN(6)]
		return bson.D{{Key: operator, Value: bson.A{inner(), inner()}}}
	case 3:
		return bson.D{{Key: []string{"$and", "$or"}[r.IntN(2)], Value: bson.A{inner(), inner()}}}
	case 4:
		return bson.D{{Key: "$not", Value: bson.A{inner()}}}
	case 5:
		return bson.D{{Key: "$cond", Value: bson.A{inner(), inner(), inner()}}}
	case 6:
		return bson.D{{Key: "$ifNull", Value: bson.A{field, inner()}}}
	case 7:
		kind := bson.D{{Key: "$type", Value: field}}
		return bson.D{{Key: "$in", Value: bson.A{kind, bson.A{"int", "missing", "object", "array", "null"}}}}
	}
	return bson.D{{Key: "$switch", Value: bson.D{
		{Key: "branches", Value: bson.A{bson.D{{Key: "case", Value: inner()}, {Key: "then", Value: 1}}}}, {Key: "default", Value: inner()},
	}}}
}

func (r random) update() bson.D {
	var update bson.D
	if r.IntN(4) == 0 {
		kind := []any{true, bson.D{{Key: "$type", Value: "date"}}, bson.D{{Key: "$type", Value: "timestamp"}}}[r.IntN(3)]
		update = bson.D{{Key: "$currentDate", Value: bson.D{{Key: "now", Value: kind}}}}
	}
	for _, operator := range []string{"$set", "$unset", "$inc", "$setOnInsert", "$push"} {
		if r.IntN(2) > 0 {
			continue
		}
		value := r.value(1)
		if operator == "$inc" {
			decimal, _ := bson.ParseDecimal128("0.25")
			value = []any{int32(1), int64(1) << 40, decimal}[r.IntN(3)]
		}
		update = append(update, bson.E{Key: operator, Value: bson.D{{Key: r.path(), Value: value}}})
	}
	if len(update) == 0 {
		return bson.D{{Key: "$set", Value: bson.D{{Key: "c", Value: r.value(1)}}}}
	}
	return update
}

// A filter of the operators that the library uses selects the same documents as on a real
// server, in the same order.
func TestFiltersAreThoseOfAServer(t *testing.T) {
	t.Parallel()
	p, r := newPair(t), newRandom(t)
	var documents []any
	for i := range 300 {
		documents = append(documents, append(bson.D{{Key: "_id", Value: i}}, r.document(2, 4)...))
	}
	_, _, refused := p.both(func(c *mongo.Collection) (any, error) { return c.InsertMany(t.Context(), documents) })
	require.False(t, refused)
	selected := 0
	for n := range 1500 {
		filter := r.filter()
		by := bson.E{Key: []string{"a", "b", "c", "k"}[r.IntN(4)], Value: 1 - 2*r.IntN(2)} // as the library, by no path
		sort := options.Find().SetSort(bson.D{by, {Key: "_id", Value: 1}}).SetLimit(int64(r.IntN(20))).SetAllowDiskUse(true)
		want, got, refused := p.find(filter, sort)
		require.Equal(t, want, got, "filter %d: %s", n, text(filter))
		if !refused && len(want.([]string)) > 0 {
			selected++
		}
	}
	require.Greater(t, selected, 300, "the filters select something")
}

// An update of the operators that the library uses changes a document as on a real
// server, or is refused as there.
func TestUpdatesAreThoseOfAServer(t *testing.T) {
	t.Parallel()
	p, r := newPair(t), newRandom(t)
	byID := options.Find().SetSort(bson.D{{Key: "_id", Value: 1}})
	refusals := 0
	for n := range 400 {
		document := append(bson.D{{Key: "_id", Value: n}}, r.document(2, 4)...)
		p.both(func(c *mongo.Collection) (any, error) { return c.InsertOne(t.Context(), document) })
		update, filter := r.update(), bson.D{{Key: "_id", Value: n + r.IntN(2)*r.IntN(2)}}
		upsert := options.UpdateOne().SetUpsert(r.IntN(3) == 0)
		about := fmt.Sprintf("update %d: %s by %s", n, text(document), text(update))
		want, got, refused := p.both(func(c *mongo.Collection) (any, error) {
			result, err := c.UpdateOne(t.Context(), filter, update, upsert)
			if err != nil {
				return nil, err
			}
			return []int64{result.MatchedCount, result.ModifiedCount, result.UpsertedCount}, nil
		})
		require.Equal(t, want, got, about)
		if refused {
			refusals++
		}
		want, got, _ = p.find(filter, byID)
		requireSame(t, want, got, about)
		p.both(func(c *mongo.Collection) (any, error) { return c.DeleteMany(t.Context(), bson.D{}) })
	}
	require.Greater(t, refusals, 10)
	require.Less(t, refusals, 350)
}

// requireSame requires that documents are equal but for the order of their fields, and
// for the time that is now.
func requireSame(t *testing.T, want, got any, about string) {
	t.Helper()
	decode := func(texts any) []bson.M {
		var all []bson.M
		for _, text := range texts.([]string) {
			var m bson.M
			require.NoError(t, bson.UnmarshalExtJSON([]byte(text), true, &m))
			if now, has := m["now"]; has {
				m["now"] = fmt.Sprintf("%T", now)
			}
			all = append(all, m)
		}
		return all
	}
	require.Equal(t, decode(want), decode(got), about)
}

func text(d bson.D) string {
	data, err := bson.MarshalExtJSON(d, true, false)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
