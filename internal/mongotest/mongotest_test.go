package mongotest_test

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

func TestMain(m *testing.M) { os.Exit(mongotest.Main(m)) }

// Each test has a database of its own, which is empty at first and dropped after the
// test.
func TestDatabaseIsFreshAndDropped(t *testing.T) {
	var names []string
	for range 2 {
		t.Run("A test / with a long näme, "+strings.Repeat("x", 100), func(t *testing.T) {
			db := mongotest.Database(t)
			_, err := db.Collection("accounts").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "alice"}})
			require.NoError(t, err, "the database is not fresh")
			names = append(names, db.Name())
		})
	}
	assert.NotEqual(t, names[0], names[1])

	left, err := mongotest.Client(t).ListDatabaseNames(t.Context(), bson.D{{Key: "name", Value: bson.M{"$in": names}}})
	require.NoError(t, err)
	assert.Empty(t, left)
}

// A test may disconnect its client, and the database is dropped all the same.
func TestDatabaseIsDroppedWithoutItsClient(t *testing.T) {
	var name string
	t.Run("disconnects", func(t *testing.T) {
		db := mongotest.Database(t)
		require.NoError(t, db.CreateCollection(t.Context(), "accounts"))
		require.NoError(t, db.Client().Disconnect(t.Context()))
		name = db.Name()
	})
	left, err := mongotest.Client(t).ListDatabaseNames(t.Context(), bson.D{{Key: "name", Value: name}})
	require.NoError(t, err)
	assert.Empty(t, left)
}

// The options that a test gives are applied.
func TestClientTakesOptions(t *testing.T) {
	client := mongotest.Client(t, options.Client().SetAppName("a test's own name"))
	var reply struct {
		Operations []struct {
			AppName string `bson:"appName"`
		} `bson:"inprog"`
	}
	command := bson.D{{Key: "currentOp", Value: 1}, {Key: "$ownOps", Value: true}, {Key: "appName", Value: "a test's own name"}}
	require.NoError(t, client.Database("admin").RunCommand(t.Context(), command).Decode(&reply))
	assert.NotEmpty(t, reply.Operations)
}

// When a test has ended, none of its clients goes on, nor does the one that drops its
// database: users of transfertest may look for goroutines that are left behind.
func TestDatabaseLeavesNothingRunning(t *testing.T) {
	before := driverGoroutines()
	t.Run("used", func(t *testing.T) {
		_, err := mongotest.Database(t).Collection("accounts").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "a"}})
		require.NoError(t, err)
		require.Greater(t, driverGoroutines(), before)
	})
	require.Eventually(t, func() bool { return driverGoroutines() <= before }, time.Minute, time.Millisecond)
}

// driverGoroutines counts the goroutines that the driver has started to watch servers.
func driverGoroutines() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return bytes.Count(stacks, []byte("topology.(*Server).update("))
}

// The server supports what the library needs: journaled majority writes, and transactions
// to compare with.
func TestServerIsReplicaSet(t *testing.T) {
	db := mongotest.Database(t)
	journaled := true
	majority := options.Collection().SetWriteConcern(&writeconcern.WriteConcern{W: "majority", Journal: &journaled})
	accounts := db.Collection("accounts", majority)
	_, err := accounts.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "alice"}})
	require.NoError(t, err)

	err = db.Client().UseSession(t.Context(), func(ctx context.Context) error {
		session := mongo.SessionFromContext(ctx)
		_, err := session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
			return accounts.InsertOne(ctx, bson.D{{Key: "_id", Value: "bob"}})
		})
		return err
	})
	require.NoError(t, err)

	count, err := accounts.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	assert.EqualValues(t, 2, count)
}

// A server that was started here has failpoints.
// One that MONGODB_URI names may have none, so this test starts its own.
func TestFailpoints(t *testing.T) {
	t.Setenv("MONGODB_URI", "")
	server, err := mongotest.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Stop()) })
	client := mongotest.Client(t, options.Client().ApplyURI(server.URI()))

	command := bson.D{
		{Key: "configureFailPoint", Value: "failCommand"},
		{Key: "mode", Value: bson.M{"times": 1}},
		{Key: "data", Value: bson.M{"failCommands": bson.A{"update"}, "errorCode": 10107}},
	}
	require.NoError(t, client.Database("admin").RunCommand(t.Context(), command).Err())

	update := bson.D{
		{Key: "update", Value: "accounts"},
		{Key: "updates", Value: bson.A{bson.M{"q": bson.M{}, "u": bson.M{"$set": bson.M{"a": 1}}}}},
	}
	var failed mongo.CommandError
	require.ErrorAs(t, client.Database("test").RunCommand(t.Context(), update).Err(), &failed)
	assert.EqualValues(t, 10107, failed.Code)
	assert.NoError(t, client.Database("test").RunCommand(t.Context(), update).Err(), "the failpoint was for one command")
}

// A server can be stopped twice, and is gone after the first time.
func TestStopIsIdempotent(t *testing.T) {
	t.Setenv("MONGODB_URI", "")
	server, err := mongotest.Start(t.Context())
	require.NoError(t, err)
	traces := tracesOf(t, server.URI())
	require.NoError(t, server.Stop())
	require.NoError(t, server.Stop())
	require.NoError(t, traces.gone())
}

// A server that MONGODB_URI names is used as it is, and stays when Stop is called.
func TestGivenServerStays(t *testing.T) {
	t.Setenv("MONGODB_URI", mongotest.URI())
	server, err := mongotest.Start(t.Context())
	require.NoError(t, err)
	assert.Equal(t, mongotest.URI(), server.URI())
	require.NoError(t, server.Stop())
	assert.NoError(t, mongotest.Client(t).Ping(t.Context(), nil))
}
