package transfer_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

// setBank is a bank on a replica set of three.
type setBank struct {
	*bank
	set *mongotest.Set
}

func newSetBank(t *testing.T, set *mongotest.Set, database string) setBank {
	t.Helper()
	b := setBank{&bank{t: t}, set}
	b.db = b.connect(set.URI()).Client().Database(database)
	b.Coordinator = b.coordinator(b.db)
	require.NoError(t, b.Setup(t.Context()))
	return b
}

// through returns the bank's database through a client that soon notices which member is the primary.
func (b setBank) through(o *options.ClientOptions) *mongo.Database {
	b.t.Helper()
	return b.connect(b.set.URI(), o).Client().Database(b.db.Name())
}

func (b setBank) connect(uri string, opts ...*options.ClientOptions) *mongo.Database {
	b.t.Helper()
	noticing := options.Client().ApplyURI(uri).SetConnectTimeout(time.Second).SetHeartbeatInterval(500 * time.Millisecond)
	client, err := mongo.Connect(append([]*options.ClientOptions{noticing}, opts...)...)
	require.NoError(b.t, err)
	b.t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = client.Disconnect(now) // a member may be paused: no goodbyes
	})
	return client.Database("x")
}

// replace makes the primary give way to another one: it steps down, or is paused until it is replaced.
func (b setBank) replace(ctx context.Context, pause bool) error {
	old, err := b.set.Primary(ctx)
	if err != nil {
		return err
	}
	if !pause {
		if err := b.set.StepDown(ctx); err != nil {
			return err
		}
		return b.awaitOther(ctx, old)
	}
	if err := b.set.Pause(old); err != nil {
		return err
	}
	err = b.awaitOther(ctx, old)
	if resumed := b.set.Resume(old); resumed != nil {
		return resumed
	}
	return err
}

func (b setBank) awaitOther(ctx context.Context, old int) error {
	for ctx.Err() == nil {
		now, err := b.set.Primary(ctx)
		if err != nil || now != old {
			return err
		}
	}
	return ctx.Err()
}

// keepIgnorant makes all members but the given one slow to tell it, or whoever comes after it, how far they are, and the given one slow to
// tell them how far a majority is. It keeps them so until the returned function is called.
func (b setBank) keepIgnorant(primary int) (end func()) {
	b.t.Helper()
	set := func(member int, mode string, commands bson.A) {
		require.Eventually(b.t, func() bool { // a member whose state changes closes its connections
			_, err := b.set.FailPoint(b.t.Context(), member, mode, bson.D{
				{Key: "failCommands", Value: commands}, {Key: "failInternalCommands", Value: true},
				{Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: 2000},
			})
			return err == nil
		}, time.Minute, 10*time.Millisecond, "the failpoint of member %d can't be set", member)
	}
	for member := range b.set.Hosts() {
		if member != primary {
			set(member, "alwaysOn", bson.A{"replSetUpdatePosition"})
		}
	}
	set(primary, "alwaysOn", bson.A{"getMore", "replSetHeartbeat"}) // the last, for what is asked already is answered
	return func() {
		for member := range b.set.Hosts() {
			set(member, "off", bson.A{})
		}
	}
}
