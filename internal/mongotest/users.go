package mongotest

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"os"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// root is the first user of a server with users.
// That user may do everything.
const root = "root"

// users makes a server demand a user and a password, and TLS if there is an authority.
type users struct {
	password string     // of root
	ca       *authority // nil: the server speaks no TLS
}

// StartWithUsers starts a server of the caller's own that demands a user and a password.
// Its URI is that of a user who may do everything, and can create others.
// It speaks no TLS, so programs reach it by a URI alone.
// The context bounds the start alone.
// The server runs until Stop is called or this process ends.
func StartWithUsers(ctx context.Context) (*Server, error) {
	path, err := findMongod(ctx)
	if err != nil {
		return nil, fmt.Errorf("mongotest: no mongod with users could be had: %w", err)
	}
	secrets, err := os.MkdirTemp("", "mongotest-keys-")
	if err != nil {
		return nil, err
	}
	// The mongod reads them once, at its start.
	defer func() { _ = os.RemoveAll(secrets) }()
	u := users{password: rand.Text()}
	m, process, err := u.launch(secrets).start(ctx, path)
	if err != nil {
		return nil, err
	}
	return newServer("mongodb://"+root+":"+u.password+"@"+m.host+"/?replicaSet="+replicaSet, process.stop), nil
}

// launch starts a server with users, whose secrets are in files in the given folder.
func (u users) launch(secrets string) launch {
	return launch{
		flags: func(host string) ([]string, error) { return u.flags(secrets, host) },
		ready: u.createRoot,
	}
}

// flags returns the flags that make mongod demand a user, and TLS if there is an
// authority.
func (u users) flags(secrets, host string) ([]string, error) {
	keys, err := os.CreateTemp(secrets, "keys-") // An earlier attempt may have left some.
	if err != nil {
		return nil, err
	}
	if _, err := keys.WriteString(rand.Text() + rand.Text()); err != nil {
		return nil, err
	}
	if err := keys.Close(); err != nil {
		return nil, err
	}
	// Fewer rounds of hashing than by default: each connection of a test pays for them.
	flags := append(memberFlags(), "--keyFile", keys.Name(), "--setParameter", "scramSHA256IterationCount=5000")
	if u.ca == nil {
		return flags, nil
	}
	server, ca, err := u.ca.writeServer(secrets, host)
	return append(flags, "--tlsMode", "requireTLS", "--tlsCertificateKeyFile", server,
		"--tlsCAFile", ca, "--tlsAllowConnectionsWithoutCertificates"), err
}

// clientTLS returns what a client needs to trust the server, or nil if it speaks no TLS.
func (u users) clientTLS() *tls.Config {
	if u.ca == nil {
		return nil
	}
	return u.ca.client()
}

// createRoot makes the server the primary of its set and stores the first user.
// Until then, a client on the same machine may do these two things and nothing else.
// With the rights of the first user it makes sure that the server is ours.
func (u users) createRoot(ctx context.Context, m member, ended <-chan struct{}) error {
	ctx, cancel := untilEnded(ctx, ended)
	defer cancel()
	if err := m.awaitPort(ctx); err != nil {
		return err
	}
	stranger := options.Client().ApplyURI(m.uri).SetTLSConfig(u.clientTLS())
	err := withClient(ctx, stranger, func(client *mongo.Client) error {
		if err := createSet(ctx, client, bson.D{}, m.host); err != nil {
			return err
		}
		return poll(ctx, "store the first user", func() error {
			return client.Database("admin").RunCommand(ctx, bson.D{
				{Key: "createUser", Value: root}, {Key: "pwd", Value: u.password},
				{Key: "roles", Value: bson.A{"root"}},
			}).Err()
		})
	})
	if err != nil {
		return err
	}
	known := options.Client().ApplyURI(m.uri).SetTLSConfig(u.clientTLS()).
		SetAuth(options.Credential{Username: root, Password: u.password})
	return withClient(ctx, known, func(client *mongo.Client) error { return m.checkIdentity(ctx, client) })
}
