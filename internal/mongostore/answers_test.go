package mongostore

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

	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// write is a way to bring a bank to the point where a write is next.
type write struct {
	name       string
	command    string
	collection string
	ready      func(b *bank, id string) (*Attempt, protocol.Operation)
}

// writes are all writes of the protocol.
func writes() []write {
	debit := func(b *bank, id string) *Attempt {
		b.put(account(id, nil))
		return b.work(id, b.leg(id, -60))
	}
	claimed := func(b *bank, id string) *Attempt { return b.claimed(id, b.leg(id, -60)) }
	return []write{
		{"insert", "insert", "transfers", func(b *bank, id string) (*Attempt, protocol.Operation) {
			w := b.work(id, b.leg(id, -60))
			_, err := b.store.ReachedTime(b.t.Context())
			require.NoError(b.t, err)
			return w, claim(protocol.Insert)
		}},
		{"claim of an initiated transfer", "findAndModify", "transfers", func(b *bank, id string) (*Attempt, protocol.Operation) {
			w := b.work(id, b.leg(id, -60))
			result, err := b.store.InsertInitiated(b.t.Context(), &w.Transfer)
			require.NoError(b.t, err)
			require.Equal(b.t, protocol.Applied, result)
			return w, claim(protocol.FromInitiated)
		}},
		{"takeover", "findAndModify", "transfers", func(b *bank, id string) (*Attempt, protocol.Operation) {
			claimed(b, id)
			return b.work(id, b.leg(id, -60)), claim(protocol.TakeOver)
		}},
		{"verify", "update", "transfers", func(b *bank, id string) (*Attempt, protocol.Operation) {
			op := about(protocol.Verify)
			op.Epoch = 1
			return claimed(b, id), op
		}},
		{"decision", "update", "transfers", func(b *bank, id string) (*Attempt, protocol.Operation) {
			return claimed(b, id), decide(protocol.Rollback, 1)
		}},
		{"finish", "update", "transfers", func(b *bank, id string) (*Attempt, protocol.Operation) {
			w := claimed(b, id)
			b.applied(w, decide(protocol.Committed, 1))
			return w, finish(protocol.Success)
		}},
		{"prepare", "update", "accounts", func(b *bank, id string) (*Attempt, protocol.Operation) {
			w := debit(b, id)
			return w, b.ready(w)[0]
		}},
		{"settle", "update", "accounts", func(b *bank, id string) (*Attempt, protocol.Operation) {
			return b.prepared(debit(b, id)), at(protocol.Settle, 0)
		}},
		{"undo", "update", "accounts", func(b *bank, id string) (*Attempt, protocol.Operation) {
			return b.prepared(debit(b, id)), replacing(at(protocol.Undo, 0))
		}},
		{"fence-only", "update", "accounts", func(b *bank, id string) (*Attempt, protocol.Operation) {
			return debit(b, id), at(protocol.FenceOnly, 0)
		}},
	}
}

// reconnected returns the same bank with a store of another client: one that has seen a server fail looks for it again for
// half a second, and the tests don't wait for that. It polls, because a client that streams may take ten seconds to disconnect.
func (b *bank) reconnected(t *testing.T, number int, opts ...*options.ClientOptions) *bank {
	t.Helper()
	next := &bank{t: t, db: b.db, log: newCommandLog(), app: fmt.Sprintf("%s %d", b.db.Name(), number)}
	opts = append([]*options.ClientOptions{
		options.Client().SetAppName(next.app).SetMonitor(next.log.monitor()).SetServerMonitoringMode(options.ServerMonitoringModePoll)}, opts...)
	client, err := mongo.Connect(append([]*options.ClientOptions{options.Client().ApplyURI(mongotest.URI())}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		atOnce, cancel := context.WithCancel(context.Background())
		cancel()
		_ = client.Disconnect(atOnce)
	})
	db := client.Database(b.db.Name())
	next.store, err = newRooms(config{
		Transfers: db.Collection("transfers"), Ledgers: map[string]*mongo.Collection{"": db.Collection("accounts"),
			"eu": db.Collection("accounts_eu")},
		Fields: standardFields(), MarkerLimit: 100, FenceBytes: LeastFenceMemory, Now: time.Now,
	})
	require.NoError(t, err)
	return next
}

// fault is something that happens to a command.
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
	// One document and no right to insert it, or a refusal to change one that names its cause: that is certain. A command of updates may
	// have applied some of them.
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

// Whatever breaks a command on its way or on the server, its answer is Unknown as long as it may have been stored; and no write is
// sent a second time by itself.
func TestAnswersToBrokenCommands(t *testing.T) {
	origin := newBank(t)
	number := 0
	for _, write := range writes() {
		for _, fault := range faults() {
			number++
			t.Run(write.name+", "+fault.name, func(t *testing.T) {
				b := origin.reconnected(t, number)
				id := fmt.Sprintf("order %d", number)
				w, op := write.ready(b, id)
				before := b.raw(write.collection, id)
				b.failing(1, []string{write.command}, fault.how)
				b.log.take()

				answer := b.on(w, op)

				assert.Equal(t, fault.want(write.command), answer.Result, w.Cause)
				require.Error(t, w.Cause)
				assert.Equal(t, []string{write.command}, names(b.log.take()), "sent once")
				assert.Equal(t, fault.stored, string(before) != string(b.raw(write.collection, id)))
				assert.Zero(t, b.store.fences.count(), "a fence is believed after a broken write")
			})
		}
	}
}

// A deadline that passes while the server is busy makes a write Unknown: it may yet be stored.
func TestAnswerAfterADeadline(t *testing.T) {
	origin := newBank(t)
	for number, write := range writes() {
		t.Run(write.name, func(t *testing.T) {
			b := origin.reconnected(t, number)
			w, op := write.ready(b, write.name)
			stop := b.failing(1, []string{write.command}, bson.M{"blockConnection": true, "blockTimeMS": 1500})
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			assert.Equal(t, protocol.Unknown, perform(ctx, b.store, w, op)[0].Result)
			require.Error(t, w.Cause)
			stop()
		})
	}
}

// A write under a context that has ended is never sent, and says so.
func TestEndedContextSendsNothing(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for _, write := range writes() {
		w, op := write.ready(b, write.name)
		before := b.raw(write.collection, write.name)
		b.log.take()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		assert.Equal(t, protocol.NotSent, perform(ended, b.store, w, op)[0].Result, write.name)
		require.ErrorIs(t, w.Cause, context.Canceled)
		assert.Empty(t, b.log.take())
		assert.Equal(t, before, b.raw(write.collection, write.name))
	}
}

// Where no server can be reached, a write is certainly not sent; a read is not answered.
func TestNoServerSendsNothing(t *testing.T) {
	t.Parallel()
	client, err := mongo.Connect(options.Client().
		ApplyURI("mongodb://127.0.0.1:1/?replicaSet=rs").SetServerSelectionTimeout(20 * time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	db := client.Database("bank")
	store, err := newRooms(config{
		Transfers: db.Collection("transfers"), Ledgers: map[string]*mongo.Collection{"": db.Collection("accounts")},
		Fields: standardFields(), MarkerLimit: 100, FenceBytes: LeastFenceMemory, Now: time.Now,
	})
	require.NoError(t, err)
	b := &bank{t: t, store: store}
	w := b.work("order", b.leg("alice", -60))
	assert.Equal(t, protocol.NotSent, b.on(w, claim(protocol.Insert)).Result, "the server's time is not known")
	store.Clock.Read = time.Now()
	verify := about(protocol.Verify)
	for _, op := range []protocol.Operation{
		claim(protocol.Insert), claim(protocol.FromInitiated), claim(protocol.TakeOver), claim(protocol.TakeToCancel), verify,
		decide(protocol.Committed, 1), finish(protocol.Success), prepareWith(0, ""), at(protocol.Settle, 0), at(protocol.Undo, 0),
		at(protocol.FenceOnly, 0),
	} {
		assert.Equal(t, protocol.NotSent, b.on(w, op).Result, "%+v", op)
	}
	for _, op := range []protocol.Operation{
		about(protocol.ReadTransfer), about(protocol.LookTransfer), at(protocol.ReadFence, 0), at(protocol.Look, 0),
	} {
		assert.Equal(t, protocol.Answer{Result: protocol.Unknown}, b.on(w, op), "%+v", op)
	}
}

// A write that never got a connection is certainly not sent.
func TestNoConnectionSendsNothing(t *testing.T) {
	b := newBank(t).reconnected(t, 1, options.Client().SetMaxPoolSize(1))
	b.put(account("alice", nil))
	w := b.work("order", b.leg("alice", -60))
	op := b.ready(w)[0]
	b.failing(1, []string{"find"}, bson.M{"blockConnection": true, "blockTimeMS": 3000})
	blocker := b.work("other", b.leg("nobody", -60))
	ended := make(chan struct{})
	b.log.take()
	go func() {
		defer close(ended)
		perform(t.Context(), b.store, blocker, at(protocol.ReadFence, 0))
	}()
	require.Eventually(t, func() bool {
		return len(b.log.take()) > 0
	}, 10*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	assert.Equal(t, protocol.NotSent, perform(ctx, b.store, w, op)[0].Result, w.Cause)
	<-ended
	b.has("accounts", account("alice", nil))
}

// Reads that the server does not answer are Unknown, and show nothing.
func TestAnswersToBrokenReads(t *testing.T) {
	origin := newBank(t)
	for number, op := range []protocol.Operation{
		about(protocol.ReadTransfer), about(protocol.LookTransfer), at(protocol.ReadFence, 0), at(protocol.Look, 0),
	} {
		b := origin.reconnected(t, number)
		id := fmt.Sprintf("order %d", number)
		b.put(account(id, nil))
		w := b.claimed(id, b.leg(id, -60))
		b.failing(1, []string{"find"}, bson.M{"errorCode": 50})
		assert.Equal(t, protocol.Answer{Result: protocol.Unknown}, b.on(w, op), "%+v", op)
		require.Error(t, w.Cause)
	}
}
