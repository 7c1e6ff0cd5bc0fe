package mongotest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	// root is the user of a [Guarded] who may do everything.
	root = "root"
	// guardedLimit is how long a guarded server may take until it takes writes.
	guardedLimit = 2 * time.Minute
)

// Guarded is a replica set of one that demands a user and a password, and speaks TLS
// alone, with a certificate of an authority of the test's own. It runs until its test
// ends.
type Guarded struct {
	address  string
	ca       *authority
	password string // of root
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
	g := &Guarded{ca: ca, password: rand.Text()}
	err = errPortTaken
	for attempt := 0; attempt < mongodAttempts && errors.Is(err, errPortTaken); attempt++ {
		err = g.startOnce(ctx, tb, path)
	}
	return g, err
}

func (g *Guarded) startOnce(ctx context.Context, tb testing.TB, path string) error {
	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	g.address = address
	flags, err := g.flags(tb.TempDir())
	if err != nil {
		return err
	}
	var output bytes.Buffer
	folder := filepath.Join(os.TempDir(), "mongotest-"+rand.Text())
	cmd := supervised(supervisor, path, folder, address, &output)
	cmd.Args = append(cmd.Args, flags...)
	process, err := startChild(cmd)
	if err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	if err := g.initiate(ctx, process.ended); err != nil {
		stopErr := process.stop()
		if cmd.ProcessState.ExitCode() == exitPortTaken {
			err = errPortTaken
		}
		return fmt.Errorf("%s does not run: %w (%v)\n%s",
			path, errors.Join(err, stopErr), cmd.ProcessState, output.Bytes())
	}
	tb.Cleanup(func() {
		if err := process.stop(); err != nil {
			tb.Error(err)
		}
	})
	return nil
}

// flags returns the flags of mongod that make it demand users and TLS. Its secrets are in
// files in the folder.
func (g *Guarded) flags(folder string) ([]string, error) {
	host, _, err := net.SplitHostPort(g.address)
	if err != nil {
		return nil, err
	}
	server, ca, err := g.ca.writeServer(folder, host)
	if err != nil {
		return nil, err
	}
	keys := filepath.Join(folder, "keys")
	if err := os.WriteFile(keys, []byte(rand.Text()+rand.Text()), 0o400); err != nil {
		return nil, err
	}
	return []string{
		"--keyFile", keys, "--tlsMode", "requireTLS", "--tlsCertificateKeyFile", server, "--tlsCAFile", ca,
		"--tlsAllowConnectionsWithoutCertificates",
	}, nil
}

// initiate makes the server the primary of its set and stores the first user, which is
// allowed to whoever asks from the same machine. No other server has a certificate of the
// authority: so it is ours.
func (g *Guarded) initiate(ctx context.Context, ended <-chan struct{}) error {
	m := member{uri: "mongodb://" + g.address + "/?directConnection=true", host: g.address}
	ctx, cancel := context.WithTimeout(ctx, mongodLimit)
	defer cancel()
	go func() {
		select {
		case <-ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := m.awaitPort(ctx); err != nil {
		return err
	}
	client, err := mongo.Connect(options.Client().ApplyURI(m.uri).SetTLSConfig(g.ca.client()))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	if err := createSet(ctx, client, bson.D{}, m.host); err != nil {
		return err
	}
	return poll(ctx, "store the first user", func() error {
		return client.Database("admin").RunCommand(ctx, bson.D{
			{Key: "createUser", Value: root}, {Key: "pwd", Value: g.password},
			{Key: "roles", Value: bson.A{"root"}},
		}).Err()
	})
}

// Root returns a client of the user who may do everything. The options are applied last.
// It is disconnected when the test ends.
func (g *Guarded) Root(tb testing.TB, opts ...*options.ClientOptions) *mongo.Client {
	tb.Helper()
	return g.Client(tb, "admin", root, g.password, opts...)
}

// Client returns a client of a user whose name and password are stored in the given
// database. The options are applied last. It is disconnected when the test ends.
func (g *Guarded) Client(tb testing.TB, database, user, password string, opts ...*options.ClientOptions) *mongo.Client {
	tb.Helper()
	own := options.Client().ApplyURI("mongodb://" + g.address + "/?replicaSet=" + replicaSet).
		SetTLSConfig(g.ca.client()).
		SetAuth(options.Credential{AuthSource: database, Username: user, Password: password})
	client, err := mongo.Connect(append([]*options.ClientOptions{own}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
		defer cancel()
		if err := client.Disconnect(ctx); err != nil && !errors.Is(err, mongo.ErrClientDisconnected) {
			tb.Errorf("disconnect the client of %s: %v", user, err)
		}
	})
	return client
}
