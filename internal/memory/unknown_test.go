package memory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// refusals asks a collection for what the server in memory doesn't know.
type refusals struct {
	t *testing.T
	c *mongo.Collection
}

func (r refusals) find(filter bson.D, opts ...options.Lister[options.FindOneOptions]) error {
	return r.c.FindOne(r.t.Context(), filter, opts...).Err()
}

func (r refusals) expression(e bson.D) error { return r.find(one("$expr", e)) }

func (r refusals) aggregate(stage bson.D, opts ...options.Lister[options.AggregateOptions]) error {
	_, err := r.c.Aggregate(r.t.Context(), bson.A{stage}, opts...)
	return err
}

func (r refusals) update(update any, opts ...options.Lister[options.UpdateOneOptions]) error {
	_, err := r.c.UpdateByID(r.t.Context(), 1, update, opts...)
	return err
}

func (r refusals) upsert(filter bson.D) error {
	_, err := r.c.UpdateOne(r.t.Context(), filter, set(one("x", 1)), options.UpdateOne().SetUpsert(true))
	return err
}

func (r refusals) remove(opts ...options.Lister[options.DeleteOneOptions]) error {
	_, err := r.c.DeleteOne(r.t.Context(), id(1), opts...)
	return err
}

func (r refusals) findAndUpdate(opts ...options.Lister[options.FindOneAndUpdateOptions]) error {
	return r.c.FindOneAndUpdate(r.t.Context(), id(1), set(one("a", 2)), opts...).Err()
}

func (r refusals) run(command bson.D) error {
	return r.c.Database().RunCommand(r.t.Context(), command).Err()
}

func (r refusals) index(keys bson.D, opts *options.IndexOptionsBuilder) error {
	_, err := r.c.Indexes().CreateOne(r.t.Context(), mongo.IndexModel{Keys: keys, Options: opts})
	return err
}

func (r refusals) commands() map[string]error {
	collation := &options.Collation{Locale: "en", Strength: 1}
	db := r.c.Database()
	return map[string]error{
		"mapReduce":                      r.run(one("mapReduce", "c")),
		"validator":                      db.CreateCollection(r.t.Context(), "v", options.CreateCollection().SetValidator(one("a", 1))),
		"collation":                      r.find(one("a", 1), options.FindOne().SetCollation(collation)),
		"hint":                           r.find(one("a", 1), options.FindOne().SetHint("by a")),
		"let":                            r.aggregate(one("$match", one("a", 1)), options.Aggregate().SetLet(one("x", 1))),
		"arrayFilters":                   r.update(set(one("a", 2)), options.UpdateOne().SetArrayFilters([]any{one("e", 1)})),
		"'hint'":                         r.update(set(one("a", 2)), options.UpdateOne().SetHint("by a")),
		"hint' of a":                     r.remove(options.DeleteOne().SetHint("by a")),
		"arrayFilters' of findAndModify": r.findAndUpdate(options.FindOneAndUpdate().SetArrayFilters([]any{one("e", 1)})),
		"projection of 'a.b'":            r.findAndUpdate(options.FindOneAndUpdate().SetProjection(one("a.b", 1))),
		"collation' of findAndModify":    r.findAndUpdate(options.FindOneAndUpdate().SetCollation(collation)),
		"startTransaction": r.run(bson.D{
			{Key: "delete", Value: "c"}, {Key: "deletes", Value: bson.A{bson.D{{Key: "q", Value: id(1)}, {Key: "limit", Value: 1}}}},
			{Key: "startTransaction", Value: true},
		}),
	}
}

func (r refusals) indexes() map[string]error {
	return map[string]error{
		"unique":             r.index(one("a", 1), options.Index().SetUnique(true)),
		"other keys":         r.index(one("b", 1), options.Index().SetName("by a")),
		"another name":       r.index(one("a", 1), options.Index().SetName("also by a")),
		"other options":      r.index(one("a", 1), options.Index().SetName("by a").SetExpireAfterSeconds(5)),
		"sparse":             r.index(one("b", 1), options.Index().SetSparse(true)),
		"wildcardProjection": r.index(one("$**", 1), options.Index().SetWildcardProjection(one("a", 1))),
	}
}

func (r refusals) filters() map[string]error {
	return map[string]error{
		"doesn't know the operator $regex": r.find(one("a", one("$regex", "x"))),
		"doesn't know the operator $mod":   r.find(one("a", one("$mod", bson.A{2, 0}))),
		"$regex":                           r.find(one("a", one("$regex", "x"))),
		"($regex)":                         r.find(one("a", bson.Regex{Pattern: "x"})),
		"expression ($":                    r.find(one("a", one("$in", bson.A{bson.Regex{Pattern: "x"}}))),
		"$text":                            r.find(one("$text", one("$search", "x"))),
		"$elemMatch":                       r.find(one("list", one("$elemMatch", 1))),
		"$type needs":                      r.find(one("a", one("$type", "javascript"))),
		"entries":                          r.find(one("$or", bson.A{1})),
		"upsert by $and":                   r.upsert(one("$and", bson.A{one("a", 5)})),
		"upsert by $in":                    r.upsert(one("a", one("$in", bson.A{5}))),
	}
}

func (r refusals) expressions() map[string]error {
	return map[string]error{
		"$sqrt":          r.expression(one("$sqrt", 4)),
		"variable: THIS": r.find(one("$expr", "$$THIS")),
		"$pow of -1":     r.expression(one("$pow", bson.A{-1, 2})),
		"of $map":        r.expression(one("$map", named("input", "$list", "in", 1, "limit", 1))),
		"input to $map":  r.expression(one("$map", named("input", "$a", "in", 1))),
		"'limit'":        r.expression(one("$filter", named("input", "$list", "cond", true, "limit", 1))),
		"'options'":      r.expression(one("$regexMatch", named("input", "A", "regex", "a", "options", "i"))),
		"of $regexMatch": r.expression(one("$regexMatch", named("input", "A", "regex", bson.Regex{Pattern: "a"}))),
		"'default'":      r.expression(one("$switch", one("branches", bson.A{}))),
		"$convert of ":   r.expression(one("$convert", named("input", int64(1), "to", "date", "onError", 1, "onNull", 1))),
		"'$gt' is no":    r.expression(bson.D{{Key: "$gt", Value: bson.A{1, 2}}, {Key: "x", Value: 1}}),
	}
}

func (r refusals) reads() map[string]error {
	return map[string]error{
		"$lookup":      r.aggregate(one("$lookup", bson.D{})),
		"$facet":       r.aggregate(one("$facet", bson.D{})),
		"$group":       r.aggregate(one("$group", bson.D{{Key: "_id", Value: "$a"}, {Key: "n", Value: one("$sum", 1)}})),
		"$skip":        r.aggregate(one("$skip", -1)),
		"$limit":       r.aggregate(one("$limit", 0)),
		"not: text":    r.aggregate(one("$limit", "text")),
		"stage $match": r.aggregate(one("$match", 1)),
		"sorts by 'a'": r.find(bson.D{}, options.FindOne().SetSort(one("a", one("$meta", "textScore")))),
		"'list.b'":     r.find(bson.D{}, options.FindOne().SetProjection(one("list.b", 1))),
		"'list.$'":     r.find(bson.D{}, options.FindOne().SetProjection(one("list.$", 1))),
		"'x' as: $a":   r.aggregate(one("$project", one("x", "$a"))),
		"and not both": r.find(bson.D{}, options.FindOne().SetProjection(bson.D{{Key: "a", Value: 1}, {Key: "list", Value: 0}})),
	}
}

func (r refusals) updates() map[string]error {
	return map[string]error{
		"doesn't know the modifier $pull": r.update(one("$pull", one("list", 1))),
		"beyond the end":                  r.update(set(one("list.5", 1))),
		"$pull":                           r.update(one("$pull", one("list", 1))),
		"modifiers":                       r.update(one("$push", one("list", one("$each", bson.A{1})))),
		"must be an array":                r.update(one("$push", one("a", 1))),
		"$sort":                           r.update(bson.A{one("$sort", one("a", 1))}),
		"conflict":                        r.update(bson.D{{Key: "$set", Value: one("b", 1)}, {Key: "$inc", Value: one("b.c", 1)}}),
		"_id":                             r.update(set(id(2))),
		"increment":                       r.update(one("$inc", one("missing", "text"))),
		"$currentDate takes":              r.update(one("$currentDate", one("at", "timestamp"))),
		"path 'list.$.b'":                 r.update(set(one("list.$.b", 2))),
		"path 'list.$[].b'":               r.update(set(one("list.$[].b", 2))),
		"empty field name":                r.update(set(one("", 2))),
		"'list.b' from":                   r.update(bson.A{one("$set", one("list.b", 2))}),
		"'list.0.b' from":                 r.update(bson.A{one("$unset", "list.0.b")}),
		"'a' from within":                 r.update(bson.A{one("$set", one("a", one("b", 1)))}),
	}
}

// What the server doesn't know it refuses by name, and changes nothing.
func TestUnknownIsRefused(t *testing.T) {
	t.Parallel()
	_, c := newServer(t)
	ctx := t.Context()
	_, err := c.InsertOne(ctx, named("_id", 1, "a", 1, "list", bson.A{one("b", 1)}))
	require.NoError(t, err)
	r := refusals{t, c}
	require.NoError(t, r.index(one("a", 1), options.Index().SetName("by a")))
	require.NoError(t, r.index(one("a", 1), options.Index().SetName("by a")))
	for _, rows := range []map[string]error{r.commands(), r.indexes(), r.filters(), r.expressions(), r.reads(), r.updates()} {
		for what, err := range rows {
			require.Error(t, err, what)
			require.NotErrorIs(t, err, mongo.ErrNoDocuments, what)
			require.ErrorContains(t, err, what)
		}
	}
	var found bson.D
	require.NoError(t, c.FindOne(ctx, id(1)).Decode(&found))
	require.Equal(t, bson.D{
		{Key: "_id", Value: int32(1)}, {Key: "a", Value: int32(1)}, {Key: "list", Value: bson.A{bson.D{{Key: "b", Value: int32(1)}}}},
	}, found)
	n, err := c.CountDocuments(ctx, bson.D{})
	require.NoError(t, err)
	require.Equal(t, int64(1), n)
}

// There are no transactions: the first statement of one is refused, and changes nothing.
func TestTransactionsAreRefused(t *testing.T) {
	t.Parallel()
	_, c := newServer(t)
	session, err := c.Database().Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(t.Context())
	require.NoError(t, session.StartTransaction())
	_, err = c.InsertOne(mongo.NewSessionContext(t.Context(), session), id(1))
	require.ErrorContains(t, err, "startTransaction")
	require.NoError(t, session.AbortTransaction(t.Context()))
	n, err := c.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Zero(t, n)
}

// A delete of several statements ends with the first that is refused, unless it is not
// ordered. A field without a name is one like any other.
func TestDeletesAreOrdered(t *testing.T) {
	t.Parallel()
	_, c := newServer(t)
	ctx := t.Context()
	remove := func(ordered bool) {
		deletes := bson.A{
			bson.D{{Key: "q", Value: one("a", one("$regex", "x"))}, {Key: "limit", Value: 1}},
			bson.D{{Key: "q", Value: id(1)}, {Key: "limit", Value: 1}},
		}
		command := bson.D{{Key: "delete", Value: "c"}, {Key: "deletes", Value: deletes}, {Key: "ordered", Value: ordered}}
		require.ErrorContains(t, c.Database().RunCommand(ctx, command).Err(), "$regex")
	}
	_, err := c.UpdateOne(ctx, bson.D{{Key: "_id", Value: 1}, {Key: "", Value: 2}}, set(one("a", "y")), options.UpdateOne().SetUpsert(true))
	require.NoError(t, err)
	remove(true)
	require.NoError(t, c.FindOne(ctx, one("", 2)).Err())
	remove(false)
	require.ErrorIs(t, c.FindOne(ctx, id(1)).Err(), mongo.ErrNoDocuments)
}

// What is stored by one command after another has times in that order, also where a
// pipeline stores them.
func TestTimesAreApart(t *testing.T) {
	t.Parallel()
	_, c := newServer(t)
	_, err := c.InsertOne(t.Context(), id(1))
	require.NoError(t, err)
	var before time.Time
	for range 50 {
		_, err := c.UpdateByID(t.Context(), 1, bson.A{one("$set", one("at", "$$NOW"))})
		require.NoError(t, err)
		var found struct{ At time.Time }
		require.NoError(t, c.FindOne(t.Context(), id(1)).Decode(&found))
		require.True(t, found.At.After(before))
		before = found.At
	}
}
