package memory_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/mongotransfer/transfer/internal/memory"
)

func newServer(t *testing.T) (*memory.Server, *mongo.Collection) {
	t.Helper()
	server := memory.New(time.Now)
	client, err := server.Client()
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, client.Disconnect(context.Background()))
		server.Close()
	})
	return server, client.Database("db").Collection("c")
}

func id(v any) bson.D { return bson.D{{Key: "_id", Value: v}} }

func set(fields bson.D) bson.D { return bson.D{{Key: "$set", Value: fields}} }

// All reads of a snapshot show one moment, whatever is written meanwhile: to documents
// that change, that come and that go.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	_, c := newServer(t)
	ctx := t.Context()
	_, err := c.InsertMany(ctx, []any{bson.M{"_id": 1, "n": 1}, bson.M{"_id": 2, "n": 1}})
	require.NoError(t, err)
	session, err := c.Database().Client().StartSession(options.Session().SetSnapshot(true))
	require.NoError(t, err)
	defer session.EndSession(ctx)
	inSession := mongo.NewSessionContext(ctx, session)
	read := func(ctx context.Context) (found []bson.D) {
		cursor, err := c.Find(ctx, bson.D{})
		require.NoError(t, err)
		require.NoError(t, cursor.All(ctx, &found))
		return found
	}
	before := read(inSession)
	_, err = c.UpdateByID(ctx, 1, set(bson.D{{Key: "n", Value: 2}}))
	require.NoError(t, err)
	_, err = c.DeleteOne(ctx, id(2))
	require.NoError(t, err)
	_, err = c.InsertOne(ctx, id(3))
	require.NoError(t, err)
	require.Equal(t, before, read(inSession))
	require.Equal(t, []bson.D{{{Key: "_id", Value: int32(1)}, {Key: "n", Value: int32(2)}}, id(int32(3))}, read(ctx))
}

// A snapshot whose documents may be gone is refused, as a server does it.
func TestSnapshotIsTooOld(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	_, err := c.InsertOne(t.Context(), bson.M{"_id": 1, "n": 1})
	require.NoError(t, err)
	session, err := c.Database().Client().StartSession(options.Session().SetSnapshot(true))
	require.NoError(t, err)
	defer session.EndSession(t.Context())
	ctx := mongo.NewSessionContext(t.Context(), session)
	require.NoError(t, c.FindOne(ctx, id(1)).Err())
	server.Advance(30 * time.Second)
	_, err = c.UpdateByID(t.Context(), 1, set(bson.D{{Key: "n", Value: 2}}))
	require.NoError(t, err)
	var found struct{ N int }
	require.NoError(t, c.FindOne(ctx, id(1)).Decode(&found))
	require.Equal(t, 1, found.N)
	server.Advance(2 * time.Minute)
	_, err = c.UpdateByID(t.Context(), 1, set(bson.D{{Key: "n", Value: 3}}))
	require.NoError(t, err)
	var refused mongo.CommandError
	require.ErrorAs(t, c.FindOne(ctx, id(1)).Err(), &refused)
	require.Equal(t, int32(239), refused.Code)
}

// The clock runs, can be set ahead, stamps what is written, and lets what is due go.
func TestClock(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	ctx := t.Context()
	stamp := func() time.Time {
		t.Helper()
		update := bson.D{{Key: "$currentDate", Value: bson.D{{Key: "at", Value: true}}}}
		_, err := c.UpdateByID(ctx, "stamped", update, options.UpdateOne().SetUpsert(true))
		require.NoError(t, err)
		var found struct{ At time.Time }
		require.NoError(t, c.FindOne(ctx, id("stamped")).Decode(&found))
		return found.At
	}
	require.WithinDuration(t, time.Now(), stamp(), time.Minute)
	first := stamp()
	require.True(t, stamp().After(first), "each write has a time of its own")
	server.Advance(24 * time.Hour)
	require.WithinDuration(t, time.Now().Add(24*time.Hour), stamp(), time.Minute)
	require.WithinDuration(t, server.Now(), stamp(), time.Minute)

	_, err := c.Indexes().CreateOne(ctx, mongo.IndexModel{
		Keys: bson.D{{Key: "purgeAt", Value: 1}}, Options: options.Index().SetExpireAfterSeconds(0),
	})
	require.NoError(t, err)
	_, err = c.InsertOne(ctx, bson.M{"_id": "due", "purgeAt": server.Now().Add(time.Hour)})
	require.NoError(t, err)
	_, err = c.InsertOne(ctx, bson.M{"_id": "later", "purgeAt": server.Now().Add(3 * time.Hour)})
	require.NoError(t, err)
	server.Advance(2 * time.Hour)
	ids, err := server.IDs("db.c", bson.D{})
	require.NoError(t, err)
	require.Equal(t, bson.A{"stamped", "later"}, ids)
}

// An interceptor comes first: its document is there before an insert, and before an
// update looks for one.
func TestIntercept(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	ctx := t.Context()
	_, err := c.InsertOne(ctx, bson.M{"_id": 1, "n": 1})
	require.NoError(t, err)
	server.Intercept(func(_ time.Time, namespace string, stored, _ bson.D) bson.D {
		require.Equal(t, "db.c", namespace)
		if stored == nil {
			return bson.D{{Key: "_id", Value: int32(2)}, {Key: "first", Value: true}}
		}
		return bson.D{{Key: "_id", Value: int32(1)}, {Key: "n", Value: int32(7)}}
	})
	_, err = c.InsertOne(ctx, bson.M{"_id": 2})
	require.True(t, mongo.IsDuplicateKeyError(err), "%v", err)
	result, err := c.UpdateOne(ctx, bson.D{{Key: "_id", Value: 1}, {Key: "n", Value: 1}}, set(bson.D{{Key: "n", Value: 2}}))
	require.NoError(t, err)
	require.Zero(t, result.MatchedCount)
	server.Intercept(nil)
	var found struct{ N int }
	require.NoError(t, c.FindOne(ctx, id(1), options.FindOne()).Decode(&found))
	require.Equal(t, 7, found.N)
}

// The _id comes first in what is stored, and there is one, whatever a client sends.
func TestIDComesFirst(t *testing.T) {
	t.Parallel()
	_, c := newServer(t)
	documents := bson.A{bson.D{{Key: "n", Value: 1}, {Key: "_id", Value: 5}}, bson.D{{Key: "n", Value: 2}}}
	insert := bson.D{{Key: "insert", Value: "c"}, {Key: "documents", Value: documents}}
	require.NoError(t, c.Database().RunCommand(t.Context(), insert).Err())
	_, err := c.ReplaceOne(t.Context(), id(6), bson.D{{Key: "n", Value: 3}, {Key: "_id", Value: 6}}, options.Replace().SetUpsert(true))
	require.NoError(t, err)
	cursor, err := c.Find(t.Context(), bson.D{})
	require.NoError(t, err)
	var found []bson.D
	require.NoError(t, cursor.All(t.Context(), &found))
	require.Len(t, found, 3)
	require.Equal(t, bson.D{{Key: "_id", Value: int32(5)}, {Key: "n", Value: int32(1)}}, found[0])
	require.IsType(t, bson.ObjectID{}, found[1][0].Value)
	require.Equal(t, bson.D{{Key: "_id", Value: int32(6)}, {Key: "n", Value: int32(3)}}, found[2])
}

// The driver's methods that a test uses for its documents work.
func TestDriversMethods(t *testing.T) {
	t.Parallel()
	_, c := newServer(t)
	ctx := t.Context()
	inserted, err := c.InsertOne(ctx, bson.M{"n": 1})
	require.NoError(t, err)
	require.IsType(t, bson.ObjectID{}, inserted.InsertedID)
	_, err = c.ReplaceOne(ctx, id(inserted.InsertedID), bson.M{"n": 2})
	require.NoError(t, err)
	after := options.FindOneAndUpdate().SetReturnDocument(options.After)
	var found struct{ N int }
	require.NoError(t, c.FindOneAndUpdate(ctx, bson.M{"n": 2}, set(bson.D{{Key: "n", Value: 3}}), after).Decode(&found))
	require.Equal(t, 3, found.N)
	_, err = c.InsertMany(ctx, []any{bson.M{"_id": 1, "n": 9, "kind": "x"}, bson.M{"_id": 2, "n": 8, "kind": "x"}})
	require.NoError(t, err)
	least := options.FindOneAndDelete().SetSort(bson.D{{Key: "n", Value: 1}}).SetProjection(bson.D{{Key: "kind", Value: 0}})
	var first bson.D
	require.NoError(t, c.FindOneAndDelete(ctx, bson.M{"kind": "x"}, least).Decode(&first))
	require.ElementsMatch(t, bson.D{{Key: "_id", Value: int32(2)}, {Key: "n", Value: int32(8)}}, first)
	require.NoError(t, c.FindOneAndDelete(ctx, id(1)).Err())
	n, err := c.CountDocuments(ctx, bson.M{"n": 3})
	require.NoError(t, err)
	require.Equal(t, int64(1), n)
	require.NoError(t, c.FindOneAndDelete(ctx, bson.M{"n": 3}).Err())
	n, err = c.CountDocuments(ctx, bson.D{})
	require.NoError(t, err)
	require.Zero(t, n)
	names, err := c.Database().ListCollectionNames(ctx, bson.D{})
	require.NoError(t, err)
	require.Equal(t, []string{"c"}, names)
	majority := c.Clone(options.Collection().SetReadConcern(readconcern.Majority()))
	require.ErrorIs(t, majority.FindOne(ctx, bson.D{}).Err(), mongo.ErrNoDocuments)
	require.NoError(t, c.Drop(ctx))
	require.NoError(t, c.Database().Drop(ctx))
}
