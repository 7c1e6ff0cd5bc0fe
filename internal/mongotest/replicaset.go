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
	// pollInterval is how long we wait before we ask a starting server again.
	pollInterval = 20 * time.Millisecond
	// codeAlreadyInitialized is the error code of replSetInitiate on a server that is a member of a set already.
	codeAlreadyInitialized = 23
)

// member is a mongod that was started with --replSet and becomes the only member of its set.
type member struct {
	uri    string // reaches the server directly
	host   string // the server's own address for itself
	dbPath string // its data folder, to be sure that it is ours; empty in a container
}

// memberAt is the member that listens at an address and has its data in the given folder.
func memberAt(address, folder string) member {
	return member{uri: "mongodb://" + address + "/?directConnection=true", host: address, dbPath: filepath.Join(folder, "data")}
}

// initiate makes the server the primary of its set. It fails early if the process ends.
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

// reach waits until the server answers, and then does something with it. It fails early if the process ends.
func (m member) reach(ctx context.Context, ended <-chan struct{}, do func(context.Context, *mongo.Client) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-ended:
			cancel(errors.New("the process ended"))
		case <-ctx.Done():
		}
	}()

	if err := m.awaitPort(ctx); err != nil {
		return err
	}
	client, err := mongo.Connect(options.Client().ApplyURI(m.uri))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	if err := m.checkIdentity(ctx, client); err != nil {
		return err
	}
	return do(ctx, client)
}

// awaitPort waits until the server accepts connections. The driver would wait half a second between two attempts.
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

// checkIdentity makes sure that the server is the one that we started. 1. Two test binaries choose the same free port.
// 2. The other one's mongod takes it. 3. Ours is about to fail, but the port answers already: without this check we would
// work on the other one's server, and lose it when that binary ends.
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

// createSet initiates the set. An image of the user's choice may have done that by itself.
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

// poll tries until it works or the context ends, and then tells both why it stopped and what the last attempt said.
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
