package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

// deployment is the replica set on which everything of one series runs.
type deployment struct {
	uri      string
	client   *mongo.Client // for questions about the server
	prefix   string        // of the names of our databases
	version  string        // of the server
	pids     []int         // of its mongods, if they are ours
	patterns patterns
	baseline string // the program that plays the baseline
	touched  int    // how many of its accounts a bank warms up at most; 0: maxTouched
	stop     func() error
	unwatch  func() error // ends what watch has begun; nil: nothing
}

// deploy starts a replica set of one or several nodes.
// For one node, MONGODB_URI may name another server.
func deploy(ctx context.Context, nodes int) (*deployment, error) {
	d := &deployment{prefix: "bench" + rand.Text()[:6] + "-"}
	var hosts []string
	if nodes == 1 {
		server, err := mongotest.Start(ctx)
		if err != nil {
			return nil, err
		}
		d.uri, d.stop, hosts = server.URI(), server.Stop, []string{server.URI()}
	} else {
		set, err := mongotest.StartSet(ctx, nodes)
		if err != nil {
			return nil, err
		}
		d.uri, d.stop = set.URI(), set.Stop
		if err := calm(ctx, d.uri); err != nil {
			return nil, errors.Join(err, d.stop())
		}
		for _, host := range set.Hosts() {
			hosts = append(hosts, "mongodb://"+host+"/?directConnection=true")
		}
	}
	if err := d.identify(ctx, hosts, nodes > 1 || os.Getenv("MONGODB_URI") == ""); err != nil {
		return nil, errors.Join(err, d.stop()) // The clients end with the program.
	}
	return d, nil
}

// calm gives a replica set the server's own defaults again.
// Those of mongotest are for quick failovers, which a busy machine would see as well.
func calm(ctx context.Context, uri string) (err error) {
	client, err := connect(uri, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Disconnect(ctx)) }()
	admin := client.Database("admin")
	var reply struct{ Config bson.M }
	if err := admin.RunCommand(ctx, bson.D{{Key: "replSetGetConfig", Value: 1}}).Decode(&reply); err != nil {
		return fmt.Errorf("ask for the set's configuration: %w", err)
	}
	version, ok := reply.Config["version"].(int32)
	if !ok {
		return fmt.Errorf("the set's configuration has the version %v", reply.Config["version"])
	}
	reply.Config["version"] = version + 1
	reply.Config["settings"] = bson.D{
		{Key: "electionTimeoutMillis", Value: 10_000},
		{Key: "heartbeatIntervalMillis", Value: 2000},
		{Key: "heartbeatTimeoutSecs", Value: 10},
	}
	if err := admin.RunCommand(ctx, bson.D{{Key: "replSetReconfig", Value: reply.Config}}).Err(); err != nil {
		return fmt.Errorf("configure the set: %w", err)
	}
	return nil
}

// identify asks the servers for their versions and processes, and learns what the library
// stores there.
func (d *deployment) identify(ctx context.Context, hosts []string, ours bool) error {
	for _, host := range hosts {
		status, err := statusAt(ctx, host)
		if err != nil {
			return err
		}
		d.version = status.Version
		if ours && isMongod(status.PID) {
			d.pids = append(d.pids, status.PID)
		}
	}
	if len(d.pids) < len(hosts) {
		d.pids = nil // all or none: a part of them would mean nothing
	}
	var err error
	if d.client, err = connect(d.uri, nil); err != nil {
		return err
	}
	d.patterns, err = learnPatterns(ctx, d.client.Database(d.prefix+"pattern"))
	return err
}

// close stops the servers that are ours.
func (d *deployment) close(ctx context.Context) error {
	var watched error
	if d.unwatch != nil {
		watched = d.unwatch()
	}
	return errors.Join(watched, d.client.Disconnect(ctx), d.stop())
}

// status is what a mongod reports about itself.
type status struct {
	PID     int    `bson:"pid"`
	Version string `bson:"version"`
	Metrics struct {
		Document struct{ Inserted, Updated, Deleted int64 }
	}
}

func serverStatus(ctx context.Context, client *mongo.Client) (status, error) {
	var s status
	err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Decode(&s)
	if err != nil {
		return s, fmt.Errorf("ask the server how it is: %w", err)
	}
	return s, nil
}

// statusAt asks the server at an address for its status.
func statusAt(ctx context.Context, uri string) (status, error) {
	client, err := connect(uri, nil)
	if err != nil {
		return status{}, err
	}
	s, err := serverStatus(ctx, client)
	return s, errors.Join(err, client.Disconnect(ctx))
}
