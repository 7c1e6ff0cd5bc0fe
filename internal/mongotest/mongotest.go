package mongotest

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// cleanupLimit is how long a test's cleanup waits for the server.
const cleanupLimit = 30 * time.Second

// testServer is the server of this test binary.
// It is a package variable because TestMain has no other way to pass something to the
// tests.
// Main sets it before the first test runs, or the first [Use] does, and nothing changes
// it after that.
var testServer *Server

// using guards testServer where tests begin at the same time.
var using sync.Mutex

// Use starts the server of this test binary, unless there is one, for tests without a
// [Main].
// The server ends with the process.
func Use(ctx context.Context) error {
	using.Lock()
	defer using.Unlock()
	if testServer != nil {
		return nil
	}
	server, err := Start(ctx)
	if err == nil {
		testServer = server
	}
	return err
}

// Main runs the tests of a package with one server for all of them, and returns the exit
// code for [os.Exit].
// If there is no server it prints what to install and returns 1: tests that silently
// don't run are worse than tests that fail.
func Main(m *testing.M) (code int) {
	return WithServer(context.Background(), "mongotest", func(server *Server) int {
		testServer = server
		return m.Run()
	})
}

// URI returns the connection string of the server that [Main] started.
// It is meant for processes that a test starts.
func URI() string {
	if testServer == nil {
		panic("mongotest: there is no server: call mongotest.Main in TestMain")
	}
	return testServer.URI()
}

// Client returns a client of the server that [Main] started.
// The options are applied after the server's URI.
// The client is disconnected when the test ends.
//
// It has reached the server, if that lets it in: on a busy machine this takes seconds,
// longer than what is tested may wait.
func Client(tb testing.TB, opts ...*options.ClientOptions) *mongo.Client {
	tb.Helper()
	client, err := connect(opts...)
	if err != nil {
		tb.Fatal(err)
	}
	disconnectAtEnd(tb, client)
	ctx, cancel := context.WithTimeout(tb.Context(), cleanupLimit)
	defer cancel()
	_ = client.Ping(ctx, nil)
	return client
}

// disconnectAtEnd disconnects a client when the test ends, if the test has not done so.
func disconnectAtEnd(tb testing.TB, client *mongo.Client) {
	tb.Helper()
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
		defer cancel()
		if err := client.Disconnect(ctx); err != nil && !errors.Is(err, mongo.ErrClientDisconnected) {
			tb.Errorf("disconnect the test's client: %v", err)
		}
	})
}

// Database returns a database that no other test has, through a [Client] with these
// options.
// It is dropped when the test ends, before the client is disconnected.
func Database(tb testing.TB, opts ...*options.ClientOptions) *mongo.Database {
	tb.Helper()
	name := databaseName(tb.Name())
	db := Client(tb, opts...).Database(name)
	tb.Cleanup(func() {
		if err := drop(name); err != nil {
			tb.Errorf("drop the test's database: %v", err)
		}
	})
	return db
}

// drop removes a database.
// It uses a client of its own, because the test's client may be made to fail, or may
// count commands.
func drop(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
	defer cancel()
	client, err := connect()
	if err != nil {
		return err
	}
	db := client.Database(name)
	return errors.Join(dropCollections(ctx, db), db.Drop(ctx), client.Disconnect(ctx))
}

// dropCollections makes the drop of a database quick.
// While a database has collections, the server waits until their removal is in the
// journal, which is flushed every 100 ms.
func dropCollections(ctx context.Context, db *mongo.Database) error {
	names, err := db.ListCollectionNames(ctx, bson.D{})
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, "system.") {
			continue // The server's own, which not every user may drop.
		}
		if err := db.Collection(name).Drop(ctx); err != nil {
			return err
		}
	}
	return nil
}

func connect(opts ...*options.ClientOptions) (*mongo.Client, error) {
	return mongo.Connect(append([]*options.ClientOptions{options.Client().ApplyURI(URI())}, opts...)...)
}

// databaseName makes a database name out of a test's name, so that the server's log shows
// which test used it.
// A name may have 63 bytes and few special characters.
// Two names must differ by more than upper and lower case.
func databaseName(test string) string {
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(test))
	return plain[:min(len(plain), 40)] + "_" + strings.ToLower(rand.Text()[:10])
}
