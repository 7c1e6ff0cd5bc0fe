package mongotest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// owner is the user of a server with users who may do everything.
const owner = "owner"

// StartWithUsers starts a server of the caller's own that demands a user and a password.
// Its URI is that of a user who may do everything, and can create others. It speaks no
// TLS, so that programs reach it by a URI alone. The context bounds the start alone.
func StartWithUsers(ctx context.Context) (*Server, error) {
	path, err := findMongod(ctx)
	if err != nil {
		return nil, fmt.Errorf("mongotest: no mongod with users could be had: %w", err)
	}
	var server *Server
	err = errPortTaken
	for attempt := 0; attempt < mongodAttempts && errors.Is(err, errPortTaken); attempt++ {
		server, err = startWithUsersOnce(ctx, path)
	}
	return server, err
}

func startWithUsersOnce(ctx context.Context, path string) (*Server, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	secrets, err := os.MkdirTemp("", "mongotest-keys-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(secrets) }() // it is read once, at the start
	keys := filepath.Join(secrets, "keys")
	if err := os.WriteFile(keys, []byte(rand.Text()+rand.Text()), 0o400); err != nil {
		return nil, err
	}
	folder := filepath.Join(os.TempDir(), "mongotest-"+rand.Text())
	var output bytes.Buffer
	cmd := supervised(supervisor, path, folder, address, &output)
	cmd.Args = append(cmd.Args, "--keyFile", keys)
	process, err := startChild(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	password := rand.Text()
	if err := memberAt(address, folder).own(ctx, process.ended, password); err != nil {
		stopErr := process.stop()
		if process.cmd.ProcessState.ExitCode() == exitPortTaken {
			err = errPortTaken
		}
		return nil, fmt.Errorf("%s does not run: %w (%v)\n%s",
			path, errors.Join(err, stopErr), process.cmd.ProcessState, output.Bytes())
	}
	return newServer("mongodb://"+owner+":"+password+"@"+address+"/?replicaSet="+replicaSet, process.stop), nil
}

// own makes the server the primary of its set, and stores the first user: who asks from
// the same machine may do so, and nothing else. With that user's rights it makes sure
// that the server is ours.
func (m member) own(ctx context.Context, ended <-chan struct{}, password string) error {
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
	stranger, err := mongo.Connect(options.Client().ApplyURI(m.uri))
	if err != nil {
		return err
	}
	defer func() { _ = stranger.Disconnect(context.WithoutCancel(ctx)) }()
	if err := createSet(ctx, stranger, bson.D{}, m.host); err != nil {
		return err
	}
	if err := poll(ctx, "store the first user", func() error {
		return stranger.Database("admin").RunCommand(ctx, bson.D{
			{Key: "createUser", Value: owner}, {Key: "pwd", Value: password}, {Key: "roles", Value: bson.A{"root"}},
		}).Err()
	}); err != nil {
		return err
	}
	credential := options.Credential{Username: owner, Password: password}
	client, err := mongo.Connect(options.Client().ApplyURI(m.uri).SetAuth(credential))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	return m.checkIdentity(ctx, client)
}
