package collections

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/mongotransfer/transfer/internal/wire"
)

// minWireVersion is that of MongoDB 5.0.
const minWireVersion = 13

// ErrUnsupported is returned for a server that the protocol can't be run on.
var ErrUnsupported = errors.New("unsupported deployment")

// HelloAnswer is what a server says of itself.
type HelloAnswer struct {
	// SetName is the name of the replica set, "" if it is no member of one.
	SetName string `bson:"setName"`
	// Hosts are the members of the set that may become its primary.
	Hosts []string `bson:"hosts"`
	// Message identifies a mongos.
	Message string `bson:"msg"`
	// Primary says that the server accepts writes. A mongos always does.
	Primary bool `bson:"isWritablePrimary"`
	// MaxWireVersion stands for the server's version.
	MaxWireVersion int `bson:"maxWireVersion"`
	// LocalTime is what the server's clock shows.
	LocalTime time.Time `bson:"localTime"`
}

// Routed reports whether it is the answer of a mongos.
func (h HelloAnswer) Routed() bool { return h.Message == "isdbgrid" }

// Hello asks a collection's server who it is and what its clock shows, in no session of
// the caller's: it would open a transaction, or fail where the session has ended.
func Hello(ctx context.Context, c *mongo.Collection) (HelloAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	var answer HelloAnswer
	command := bson.D{{Key: "hello", Value: 1}}
	err := c.Database().RunCommand(wire.Detached(ctx), command, options.RunCmd().SetReadPreference(readpref.Primary())).Decode(&answer)
	return answer, wire.ServerErrorOf(err, "hello", c.Database().Name())
}

// ServersAnswer asks the server of each cluster, and returns the error of one that does
// not answer, or can't be used.
func (c *Catalog) ServersAnswer(ctx context.Context) error {
	asked := map[Cluster]bool{}
	var all sync.WaitGroup
	var mu sync.Mutex
	var failure error
	for _, each := range c.All() {
		if asked[each.Cluster()] {
			continue
		}
		asked[each.Cluster()] = true
		all.Go(func() {
			answer, err := Hello(ctx, each.Commands)
			if err == nil {
				err = cmp.Or(answer.Supported(), answer.writable())
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failure = fmt.Errorf("the server of %s: %w", each.Namespace, err)
			}
		})
	}
	all.Wait()
	return failure
}

// writable returns an error for a member that is not the primary. The driver asks one
// where it was just replaced, and where directConnection keeps a client with it.
func (h HelloAnswer) writable() error {
	if h.Primary || h.Routed() {
		return nil
	}
	return errors.New("it is not the primary: if that lasts, take directConnection out of the connection string")
}

// Supported refuses servers without majority writes or too old ones.
func (h HelloAnswer) Supported() error {
	if h.SetName == "" && !h.Routed() {
		return fmt.Errorf("%w: a standalone server can't acknowledge by majority; start it as a replica set, of one member if need be",
			ErrUnsupported)
	}
	if h.MaxWireVersion < minWireVersion {
		return fmt.Errorf("%w: MongoDB 5.0 or later is needed, and the server speaks wire version %d only",
			ErrUnsupported, h.MaxWireVersion)
	}
	return nil
}
