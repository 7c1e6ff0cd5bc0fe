package bank

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// Replicated is a bank on a replica set of three.
type Replicated struct {
	*Bank
	// Set is the replica set.
	Set *mongotest.Set
}

// NewReplicated returns a bank without accounts in a database of the set, with its
// indexes.
func NewReplicated(t *testing.T, set *mongotest.Set, database string, opts ...transfer.Option) Replicated {
	t.Helper()
	b := Replicated{&Bank{T: t}, set}
	b.DB = b.Connect(set.URI()).Client().Database(database)
	b.Coordinator = b.NewCoordinator(b.DB, opts...)
	require.NoError(t, b.Setup(t.Context()))
	return b
}

// Through returns the bank's database through a client that soon notices which member is
// the primary.
func (b Replicated) Through(o *options.ClientOptions) *mongo.Database {
	b.T.Helper()
	return b.Connect(b.Set.URI(), o).Client().Database(b.DB.Name())
}

// Connect returns a database through a client that soon notices a change of the set.
func (b Replicated) Connect(uri string, opts ...*options.ClientOptions) *mongo.Database {
	b.T.Helper()
	noticing := options.Client().SetConnectTimeout(time.Second).SetHeartbeatInterval(500 * time.Millisecond)
	client := Client(b.T, uri, append([]*options.ClientOptions{noticing}, opts...)...)
	return client.Database("x")
}

// Replace makes the primary give way to another one: it steps down, or is paused until it
// is replaced.
func (b Replicated) Replace(ctx context.Context, pause bool) error {
	old, err := b.Set.Primary(ctx)
	if err != nil {
		return err
	}
	if !pause {
		if err := b.Set.StepDown(ctx); err != nil {
			return err
		}
		return b.AwaitOther(ctx, old)
	}
	if err := b.Set.Pause(old); err != nil {
		return err
	}
	err = b.AwaitOther(ctx, old)
	if resumed := b.Set.Resume(old); resumed != nil {
		return resumed
	}
	return err
}

// AwaitOther waits until another member than the old primary is the primary.
func (b Replicated) AwaitOther(ctx context.Context, old int) error {
	for ctx.Err() == nil {
		now, err := b.Set.Primary(ctx)
		if err != nil || now != old {
			return err
		}
	}
	return ctx.Err()
}

// KeepIgnorant makes all members but the given one slow to report how far they are, and
// the given one slow to report how far a majority is. It keeps them so until the returned
// function is called.
func (b Replicated) KeepIgnorant(primary int) (end func()) {
	b.T.Helper()
	set := func(member int, mode string, commands bson.A) {
		require.Eventually(b.T, func() bool { // a member whose state changes closes its connections
			_, err := b.Set.FailPoint(b.T.Context(), member, mode, bson.D{
				{Key: "failCommands", Value: commands}, {Key: "failInternalCommands", Value: true},
				{Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: 2000},
			})
			return err == nil
		}, eventually, 10*time.Millisecond, "the failpoint of member %d can't be set", member)
	}
	for member := range b.Set.Hosts() {
		if member != primary {
			set(member, "alwaysOn", bson.A{"replSetUpdatePosition"})
		}
	}
	set(primary, "alwaysOn", bson.A{"getMore", "replSetHeartbeat"}) // the last, for what is asked already is answered
	return func() {
		for member := range b.Set.Hosts() {
			set(member, "off", bson.A{})
		}
	}
}
