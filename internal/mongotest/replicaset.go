package mongotest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	// pollInterval is the pause before a starting server is asked again.
	pollInterval = 20 * time.Millisecond
	// codeAlreadyInitialized is the error code of replSetInitiate on a server that is
	// already a member of a set.
	codeAlreadyInitialized = 23
)

// member is a mongod that was started with --replSet and becomes the only member of its
// set.
type member struct {
	uri  string // of a direct connection
	host string // the server's own address for itself
	// the data folder, to be sure that the server is ours; empty in a container
	dbPath string
}

// memberAt returns the member that listens at an address and has its data in the given
// folder.
func memberAt(address, folder string) member {
	return member{uri: "mongodb://" + address + "/?directConnection=true", host: address, dbPath: filepath.Join(folder, "data")}
}

// hostname returns the server's address without its port.
func (m member) hostname() string {
	host, _, _ := net.SplitHostPort(m.host) // It was made by freeAddress.
	return host
}

// initiate makes the server the primary of its set.
// It fails early if the process ends.
func (m member) initiate(ctx context.Context, ended <-chan struct{}) error {
	return m.reach(ctx, ended, func(ctx context.Context, client *mongo.Client) error {
		if err := createSet(ctx, client, bson.D{}, m.host); err != nil {
			return err
		}
		return poll(ctx, "wait for a primary", func() error {
			hello, err := sayHello(ctx, client)
			if err == nil && !hello.IsWritablePrimary {
				err = errors.New("it is not the primary yet")
			}
			return err
		})
	})
}

// reach waits until the server answers, makes sure that it is ours, and calls do with a
// client.
// It fails early if the process ends.
func (m member) reach(ctx context.Context, ended <-chan struct{}, do func(context.Context, *mongo.Client) error) error {
	ctx, cancel := untilEnded(ctx, ended)
	defer cancel()
	if err := m.awaitPort(ctx); err != nil {
		return err
	}
	return withClient(ctx, options.Client().ApplyURI(m.uri), func(client *mongo.Client) error {
		if err := m.checkIdentity(ctx, client); err != nil {
			return err
		}
		return do(ctx, client)
	})
}

// untilEnded returns a context that ends with the process, and says so in its cause.
func untilEnded(ctx context.Context, ended <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-ended:
			cancel(errors.New("the process ended"))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// withClient calls do with a client that lives as long as the call.
func withClient(ctx context.Context, opts *options.ClientOptions, do func(*mongo.Client) error) error {
	client, err := mongo.Connect(opts)
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	return do(client)
}

// awaitPort waits until the server accepts connections.
// The driver would wait half a second between two attempts.
func (m member) awaitPort(ctx context.Context) error {
	parsed, err := url.Parse(m.uri)
	if err != nil {
		return err
	}
	return poll(ctx, "connect", func() error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", parsed.Host)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// checkIdentity makes sure that the server is the one that this process started.
//
//  1. Two test binaries choose the same free port.
//  2. The mongod of the other binary takes it.
//  3. Ours is about to fail, but the port answers already. Without this check we would
//     use the other binary's server, and lose it when that binary ends.
func (m member) checkIdentity(ctx context.Context, client *mongo.Client) error {
	if m.dbPath == "" {
		return nil
	}
	var reply struct {
		Parsed struct {
			Storage struct {
				DBPath string `bson:"dbPath"`
			} `bson:"storage"`
		} `bson:"parsed"`
	}
	err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "getCmdLineOpts", Value: 1}}).Decode(&reply)
	if err != nil {
		return fmt.Errorf("ask the server for its data folder: %w", err)
	}
	if reply.Parsed.Storage.DBPath != m.dbPath {
		return errPortTaken
	}
	return nil
}

// createSet initiates the set.
// An image that the user chose may have done that by itself.
func createSet(ctx context.Context, client *mongo.Client, settings bson.D, hosts ...string) error {
	var members bson.A
	for i, host := range hosts {
		members = append(members, bson.D{{Key: "_id", Value: i}, {Key: "host", Value: host}})
	}
	err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "replSetInitiate", Value: bson.D{
		{Key: "_id", Value: replicaSet}, {Key: "members", Value: members}, {Key: "settings", Value: settings},
	}}}).Err()
	var failed mongo.CommandError
	if errors.As(err, &failed) && failed.HasErrorCode(codeAlreadyInitialized) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("initiate the replica set: %w", err)
	}
	return nil
}

// poll calls try until it succeeds or the context ends.
// Its error holds both the reason why it stopped and the error of the last attempt.
func poll(ctx context.Context, what string, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w; last attempt: %w", what, context.Cause(ctx), err)
		case <-time.After(pollInterval):
		}
	}
}
