package mongostore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/fences"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// write is a way to bring a bank to the point before a write.
type write struct {
	name       string
	command    string
	collection string
	ready      func(b *bank, id string) (*mongostore.Attempt, protocol.Operation)
}

// writes are all writes of the protocol.
func writes() []write {
	debit := func(b *bank, id string) *mongostore.Attempt {
		b.Put(storetest.Account(id, nil))
		return b.Attempt(id, b.Leg(id, -60))
	}
	claimed := func(b *bank, id string) *mongostore.Attempt { return b.Claimed(id, b.Leg(id, -60)) }
	return []write{
		{"insert", "insert", "transfers", func(b *bank, id string) (*mongostore.Attempt, protocol.Operation) {
			a := b.Attempt(id, b.Leg(id, -60))
			_, err := b.Store.ReachedTime(b.T.Context())
			require.NoError(b.T, err)
			return a, storetest.Claim(protocol.Insert)
		}},
		{"claim of an initiated transfer", "findAndModify", "transfers", func(b *bank, id string) (*mongostore.Attempt, protocol.Operation) {
			a := b.Attempt(id, b.Leg(id, -60))
			result, err := b.Store.InsertInitiated(b.T.Context(), &a.Transfer)
			require.NoError(b.T, err)
			require.Equal(b.T, protocol.Applied, result)
			return a, storetest.Claim(protocol.FromInitiated)
		}},
		{"takeover", "findAndModify", "transfers", func(b *bank, id string) (*mongostore.Attempt, protocol.Operation) {
			claimed(b, id)
			return b.Attempt(id, b.Leg(id, -60)), storetest.Claim(protocol.TakeOver)
		}},
		{"verify", "update", "transfers", func(b *bank, id string) (*mongostore.Attempt, protocol.Operation) {
			op := storetest.About(protocol.Verify)
			op.Epoch = 1
			return claimed(b, id), op
		}},
		{"decision", "update", "transfers", func(b *bank, id string) (*mongostore.Attempt, protocol.Operation) {
			return claimed(b, id), storetest.Decide(protocol.Rollback, 1)
		}},
		{"finish", "update", "transfers", func(b *bank, id string) (*mongostore.Attempt, protocol.Operation) {
			a := claimed(b, id)
			b.Applied(a, storetest.Decide(protocol.Committed, 1))
			return a, storetest.Finish(protocol.Success)
		}},
		{"prepare", "update", "accounts", func(b *bank, id string) (*mongostore.Attempt, protocol.Operation) {
			a := debit(b, id)
			return a, b.Ready(a)[0]
		}},
		{"settle", "update", "accounts", func(b *bank, id string) (*mongostore.Attempt, protocol.Operation) {
			return b.Prepared(debit(b, id)), storetest.At(protocol.Settle, 0)
		}},
		{"undo", "update", "accounts", func(b *bank, id string) (*mongostore.Attempt, protocol.Operation) {
			return b.Prepared(debit(b, id)), storetest.Replacing(storetest.At(protocol.Undo, 0))
		}},
		{"fence-only", "update", "accounts", func(b *bank, id string) (*mongostore.Attempt, protocol.Operation) {
			return debit(b, id), storetest.At(protocol.FenceOnly, 0)
		}},
	}
}

// reconnected returns the same bank with a store of another client.
// A client that has seen a server fail searches for it for half a second, and the tests
// don't wait for that.
// The client polls, because one that streams may take ten seconds to disconnect.
func (b *bank) reconnected(t *testing.T, number int, opts ...*options.ClientOptions) *bank {
	t.Helper()
	next := &bank{&storetest.Bank{T: t, DB: b.DB, Log: storetest.NewCommandLog(), App: fmt.Sprintf("%s %d", b.DB.Name(), number)}}
	opts = append([]*options.ClientOptions{
		options.Client().SetAppName(next.App).SetMonitor(next.Log.Monitor()).SetServerMonitoringMode(options.ServerMonitoringModePoll)}, opts...)
	client, err := mongo.Connect(append([]*options.ClientOptions{options.Client().ApplyURI(mongotest.URI())}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		atOnce, cancel := context.WithCancel(context.Background())
		cancel()
		_ = client.Disconnect(atOnce)
	})
	db := client.Database(b.DB.Name())
	next.Store, err = storetest.NewRooms(storetest.Config{
		Transfers: db.Collection("transfers"), Ledgers: map[string]*mongo.Collection{"": db.Collection("accounts"),
			"eu": db.Collection("accounts_eu")},
		Fields: storetest.StandardFields(), MarkerLimit: 100, FenceBytes: fences.LeastMemory, Now: time.Now,
	})
	require.NoError(t, err)
	return next
}

// fault is one that strikes a command.
type fault struct {
	name   string
	how    bson.M
	stored bool
	want   func(command string) protocol.Result
}

func faults() []fault {
	unknown := func(string) protocol.Result { return protocol.Unknown }
	list := []fault{
		{"connection closed", bson.M{"closeConnection": true}, false, unknown},
		{"write concern error", bson.M{"writeConcernError": bson.M{"code": 64, "errmsg": "waiting for replication timed out"}}, true, unknown},
		{"stepdown while waiting", bson.M{"writeConcernError": bson.M{"code": 11602, "errmsg": "interrupted"}}, true, unknown},
	}
	for _, code := range []int{10107, 189, 11602, 11600, 91, 50, 11601, 112, 6, 262, 133, 8} {
		list = append(list, fault{fmt.Sprintf("error %d", code), bson.M{"errorCode": code}, false, unknown})
	}
	// An insert of one document without the right to it, or a refused change that names
	// its cause, is certain. A command of updates may have applied some of them.
	list = append(list,
		fault{"error 13", bson.M{"errorCode": 13}, false, func(command string) protocol.Result {
			if command == "insert" {
				return protocol.Failed
			}
			return protocol.Unknown
		}},
		fault{"error 66", bson.M{"errorCode": 66}, false, func(command string) protocol.Result {
			if command == "findAndModify" {
				return protocol.Failed
			}
			return protocol.Unknown
		}})
	return list
}

// If a command breaks on its way or on the server, its answer is Unknown as long as it
// may have been stored.
// No write is sent a second time by itself.
func TestAnswersToBrokenCommands(t *testing.T) {
	origin := newBank(t)
	number := 0
	for _, write := range writes() {
		for _, fault := range faults() {
			number++
			t.Run(write.name+", "+fault.name, func(t *testing.T) {
				b := origin.reconnected(t, number)
				id := fmt.Sprintf("order %d", number)
				a, op := write.ready(b, id)
				before := b.Raw(write.collection, id)
				b.Failing(1, []string{write.command}, fault.how)
				b.Log.Take()

				answer := b.On(a, op)

				assert.Equal(t, fault.want(write.command), answer.Result, a.Cause)
				require.Error(t, a.Cause)
				assert.Equal(t, []string{write.command}, storetest.Names(b.Log.Take()), "sent once")
				assert.Equal(t, fault.stored, string(before) != string(b.Raw(write.collection, id)))
				assert.Zero(t, b.Store.KnownFences(), "a fence is believed after a broken write")
			})
		}
	}
}

// If a deadline passes while the server is busy, a write is Unknown, since it may still
// be stored.
func TestAnswerAfterADeadline(t *testing.T) {
	origin := newBank(t)
	for number, write := range writes() {
		t.Run(write.name, func(t *testing.T) {
			b := origin.reconnected(t, number)
			a, op := write.ready(b, write.name)
			stop := b.Failing(1, []string{write.command}, bson.M{"blockConnection": true, "blockTimeMS": 1500})
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			assert.Equal(t, protocol.Unknown, storetest.Perform(ctx, b.Store, a, op)[0].Result)
			require.Error(t, a.Cause)
			stop()
		})
	}
}

// A write is never sent under a context that has ended, and says so.
func TestEndedContextSendsNothing(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for _, write := range writes() {
		a, op := write.ready(b, write.name)
		before := b.Raw(write.collection, write.name)
		b.Log.Take()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		assert.Equal(t, protocol.NotSent, storetest.Perform(ended, b.Store, a, op)[0].Result, write.name)
		require.ErrorIs(t, a.Cause, context.Canceled)
		assert.Empty(t, b.Log.Take())
		assert.Equal(t, before, b.Raw(write.collection, write.name))
	}
}

// If no server can be reached, a write is certainly not sent, and a read has no answer.
func TestNoServerSendsNothing(t *testing.T) {
	t.Parallel()
	client, err := mongo.Connect(options.Client().
		ApplyURI("mongodb://127.0.0.1:1/?replicaSet=rs").SetServerSelectionTimeout(20 * time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	db := client.Database("bank")
	store, err := storetest.NewRooms(storetest.Config{
		Transfers: db.Collection("transfers"), Ledgers: map[string]*mongo.Collection{"": db.Collection("accounts")},
		Fields: storetest.StandardFields(), MarkerLimit: 100, FenceBytes: fences.LeastMemory, Now: time.Now,
	})
	require.NoError(t, err)
	b := &bank{&storetest.Bank{T: t, Store: store}}
	a := b.Attempt("order", b.Leg("alice", -60))
	assert.Equal(t, protocol.NotSent, b.On(a, storetest.Claim(protocol.Insert)).Result, "the server's time is not known")
	store.Clock.Read = time.Now()
	verify := storetest.About(protocol.Verify)
	for _, op := range []protocol.Operation{
		storetest.Claim(protocol.Insert), storetest.Claim(protocol.FromInitiated), storetest.Claim(protocol.TakeOver),
		storetest.Claim(protocol.TakeToCancel), verify,
		storetest.Decide(protocol.Committed, 1), storetest.Finish(protocol.Success), storetest.PrepareWith(0, ""),
		storetest.At(protocol.Settle, 0), storetest.At(protocol.Undo, 0),
		storetest.At(protocol.FenceOnly, 0),
	} {
		assert.Equal(t, protocol.NotSent, b.On(a, op).Result, "%+v", op)
	}
	for _, op := range []protocol.Operation{
		storetest.About(protocol.ReadTransfer), storetest.About(protocol.LookTransfer),
		storetest.At(protocol.ReadFence, 0), storetest.At(protocol.Look, 0),
	} {
		assert.Equal(t, protocol.Answer{Result: protocol.Unknown}, b.On(a, op), "%+v", op)
	}
}

// A write that never got a connection is certainly not sent.
func TestNoConnectionSendsNothing(t *testing.T) {
	b := newBank(t).reconnected(t, 1, options.Client().SetMaxPoolSize(1))
	b.Put(storetest.Account("alice", nil))
	a := b.Attempt("order", b.Leg("alice", -60))
	op := b.Ready(a)[0]
	b.Failing(1, []string{"find"}, bson.M{"blockConnection": true, "blockTimeMS": 3000})
	blocker := b.Attempt("other", b.Leg("nobody", -60))
	ended := make(chan struct{})
	b.Log.Take()
	go func() {
		defer close(ended)
		storetest.Perform(t.Context(), b.Store, blocker, storetest.At(protocol.ReadFence, 0))
	}()
	require.Eventually(t, func() bool {
		return len(b.Log.Take()) > 0
	}, 5*time.Minute, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	assert.Equal(t, protocol.NotSent, storetest.Perform(ctx, b.Store, a, op)[0].Result, a.Cause)
	<-ended
	b.Has("accounts", storetest.Account("alice", nil))
}

// Reads that the server does not answer are Unknown, and show nothing.
func TestAnswersToBrokenReads(t *testing.T) {
	origin := newBank(t)
	for number, op := range []protocol.Operation{
		storetest.About(protocol.ReadTransfer), storetest.About(protocol.LookTransfer),
		storetest.At(protocol.ReadFence, 0), storetest.At(protocol.Look, 0),
	} {
		b := origin.reconnected(t, number)
		id := fmt.Sprintf("order %d", number)
		b.Put(storetest.Account(id, nil))
		a := b.Claimed(id, b.Leg(id, -60))
		b.Failing(1, []string{"find"}, bson.M{"errorCode": 50})
		assert.Equal(t, protocol.Answer{Result: protocol.Unknown}, b.On(a, op), "%+v", op)
		require.Error(t, a.Cause)
	}
}
