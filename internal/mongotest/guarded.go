package mongotest

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// guardedLimit is how long a guarded server may take until it takes writes.
const guardedLimit = 2 * time.Minute

// Guarded is a replica set of one that demands a user and a password.
// It speaks TLS alone, with a certificate of an authority of the test's own.
// It runs until its test ends.
type Guarded struct {
	address string
	users   users
}

// StartGuarded starts a guarded server of the test's own.
func StartGuarded(tb testing.TB) *Guarded {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), guardedLimit)
	defer cancel()
	g, err := startGuarded(ctx, tb)
	if err != nil {
		tb.Fatal(fmt.Errorf("mongotest: no server with users could be had: %w", err))
	}
	return g
}

func startGuarded(ctx context.Context, tb testing.TB) (*Guarded, error) {
	path, err := findMongod(ctx)
	if err != nil {
		return nil, err
	}
	ca, err := newAuthority()
	if err != nil {
		return nil, err
	}
	u := users{password: rand.Text(), ca: ca}
	m, process, err := u.launch(tb.TempDir()).start(ctx, path)
	if err != nil {
		return nil, err
	}
	tb.Cleanup(func() {
		if err := process.stop(); err != nil {
			tb.Error(err)
		}
	})
	return &Guarded{address: m.host, users: u}, nil
}

// Root returns a client of the user who may do everything.
// The options are applied last.
// The client is disconnected when the test ends.
func (g *Guarded) Root(tb testing.TB, opts ...*options.ClientOptions) *mongo.Client {
	tb.Helper()
	return g.Client(tb, "admin", root, g.users.password, opts...)
}

// Client returns a client of a user whose name and password are stored in the given
// database.
// The options are applied last.
// The client is disconnected when the test ends.
func (g *Guarded) Client(tb testing.TB, database, user, password string, opts ...*options.ClientOptions) *mongo.Client {
	tb.Helper()
	own := options.Client().ApplyURI("mongodb://" + g.address + "/?replicaSet=" + replicaSet).
		SetTLSConfig(g.users.clientTLS()).
		SetAuth(options.Credential{AuthSource: database, Username: user, Password: password})
	client, err := mongo.Connect(append([]*options.ClientOptions{own}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	disconnectAtEnd(tb, client)
	return client
}
