package mongostore

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// An insert whose ID is taken is NotMatched, even when the server adds that it could not wait for the majority: the ID was there before.
func TestDuplicateIDComesBeforeWriteConcernError(t *testing.T) {
	b := newBank(t).reconnected(t, 1)
	b.claimed("order", b.leg("alice", -60))
	before := b.raw("transfers", "order")
	second := b.work("order", b.leg("alice", -61))
	require.Equal(t, protocol.NotMatched, b.on(second, claim(protocol.Insert)).Result)
	b.failing(1, []string{"insert"}, bson.M{"writeConcernError": bson.M{"code": 64, "errmsg": "waiting for replication timed out"}})
	b.log.take()
	require.Equal(t, protocol.NotMatched, b.on(second, claim(protocol.Insert)).Result)
	_, broken := b.log.take()[0].reply.Lookup("writeConcernError").DocumentOK()
	require.True(t, broken, "the server was to add a write concern error")
	assert.Equal(t, before, b.raw("transfers", "order"))
}

// unique makes the server refuse two documents of a collection with the same value.
func (b *bank) unique(collection, field string) {
	b.t.Helper()
	_, err := b.db.Collection(collection).Indexes().CreateOne(b.t.Context(), mongo.IndexModel{
		Keys: bson.M{field: 1}, Options: options.Index().SetUnique(true).SetPartialFilterExpression(bson.M{field: bson.M{"$exists": true}}),
	})
	require.NoError(b.t, err)
}

// A duplicate key of a unique index of the user's is a refusal. It is not the answer that the ID is taken: there is no such transfer.
func TestDuplicateKeyOfAnotherIndexIsFailed(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.unique("transfers", "digest")
	b.unique("transfers", "failure.code")
	b.unique("accounts", "balance")
	b.claimed("order 1", b.leg("alice", -60))
	b.put(account("alice", nil), account("bob", bson.M{"balance": int64(160)}))

	second := b.work("order 2", b.leg("bob", -60))
	assert.Equal(t, protocol.Failed, b.on(second, claim(protocol.Insert)).Result)
	assert.Nil(t, b.raw("transfers", "order 2"))
	assert.Equal(t, protocol.Failed, b.on(second, b.ready(second)[0]).Result, "the balance of 100 is taken")
	b.has("accounts", account("bob", bson.M{"balance": int64(160)}))
	result, err := b.store.Open(t.Context(), "", document.Account{ID: "carol", Balance: money.Units(100)}, bson.NewObjectID())
	assert.Equal(t, protocol.Failed, result)
	require.Error(t, err)

	for i, id := range []string{"order 3", "order 4"} {
		w := b.work(id)
		w.Transfer.Digest = []byte{1, byte(i)}
		w.participants = second.participants
		require.Equal(t, protocol.Applied, b.on(w, claim(protocol.Insert)).Result)
		want := protocol.Applied
		if i == 1 {
			want = protocol.Failed
		}
		assert.Equal(t, want, b.on(w, decide(protocol.Rollback, 1)).Result)
	}
	assert.Equal(t, "Preparing", b.raw("transfers", "order 4").Lookup("state").StringValue())
}

// A validator that refuses a prepare refuses that one alone: the other participant in the same command is prepared.
func TestValidatorRefusesPrepare(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("alice", nil), account("bob", nil))
	w := b.work("order", b.leg("alice", -60), b.leg("bob", 60))
	prepares := b.ready(w)
	b.validate(bson.M{"balance": bson.M{"$gte": 50}})
	answers := b.all(w, prepares...)
	assert.Equal(t, protocol.Failed, answers[0].Result)
	assert.Equal(t, protocol.Applied, answers[1].Result)
	require.ErrorContains(t, w.Cause, "121")
	b.has("accounts", account("alice", nil))
	b.has("accounts", account("bob", bson.M{"pending": bson.M{"order": int64(60)}}))

	// Where another one does not match, nothing is known of those that were not refused.
	answers = b.all(w, prepares...)
	assert.Equal(t, protocol.Failed, answers[0].Result)
	assert.Equal(t, protocol.NotMatched, answers[1].Result)
}

// validate sets the rule of the accounts.
func (b *bank) validate(rule bson.M) {
	b.t.Helper()
	require.NoError(b.t, b.db.RunCommand(b.t.Context(), bson.D{{Key: "collMod", Value: "accounts"}, {Key: "validator", Value: rule}}).Err())
}

// What the server refuses to settle or to undo is Failed, whatever the reason, and leaves the document as it was.
func TestRefusedSettleIsFailed(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		units  int64
		spoil  bson.M
		rule   bson.M
		settle bool
	}{
		"validator, credit":              {60, nil, bson.M{"balance": bson.M{"$lt": 150}}, true},
		"validator, debit":               {-60, nil, bson.M{"pending.order": bson.M{"$exists": true}}, true},
		"validator, undone debit":        {-60, nil, bson.M{"balance": bson.M{"$lt": 50}}, false},
		"balance became a string":        {60, bson.M{"balance": "100"}, nil, true},
		"balance became null":            {60, bson.M{"balance": nil}, nil, true},
		"balance became a list":          {60, bson.M{"balance": bson.A{int64(100)}}, nil, true},
		"balance became the largest one": {60, bson.M{"balance": int64(math.MaxInt64)}, nil, true},
		"undone debit on a string":       {-60, bson.M{"balance": "40"}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t)
			b.put(account("alice", nil))
			w := b.prepared(b.work("order", b.leg("alice", row.units)))
			if row.spoil != nil {
				b.change("accounts", "alice", bson.M{"$set": row.spoil})
			}
			if row.rule != nil {
				b.validate(row.rule)
			}
			before := b.raw("accounts", "alice")
			op := at(protocol.Undo, 0)
			if row.settle {
				op = at(protocol.Settle, 0)
			}
			for _, op := range []protocol.Operation{op, replacing(op)} {
				assert.Equal(t, protocol.Failed, b.on(w, op).Result)
				assert.Equal(t, before, b.raw("accounts", "alice"))
			}
			assert.Zero(t, b.store.fences.count())
		})
	}
}

// deafening makes connections whose next answer, once armed, is never heard: the server has done what it was asked for.
type deafening struct{ armed atomic.Bool }

type deafenedConn struct {
	net.Conn
	dialer *deafening
	deaf   bool
}

func (d *deafening) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	return &deafenedConn{Conn: conn, dialer: d}, err
}

func (c *deafenedConn) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("majority")) && c.dialer.armed.CompareAndSwap(true, false) {
		c.deaf = true
	}
	return c.Conn.Write(p)
}

func (c *deafenedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.deaf {
		_ = c.Close()
		return 0, errors.Join(errors.New("the answer is lost"), err)
	}
	return n, err
}

// A write that is stored and whose answer is lost is Unknown, is not sent again by the driver, and is stored once.
func TestLostAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	dialer := new(deafening)
	b := newBank(t).reconnected(t, 1, options.Client().SetDialer(dialer).SetMaxPoolSize(1))
	for _, write := range writes() {
		w, op := write.ready(b, write.name)
		before := b.raw(write.collection, write.name)
		b.log.take()
		dialer.armed.Store(true)
		assert.Equal(t, protocol.Unknown, b.on(w, op).Result, write.name)
		require.False(t, dialer.armed.Load())
		require.Error(t, w.Cause)
		assert.Equal(t, []string{write.command}, names(b.log.take()), write.name)
		assert.NotEqual(t, before, b.raw(write.collection, write.name), write.name)
	}
	b.has("accounts", account("prepare", bson.M{"balance": int64(40), "pending": bson.M{"prepare": int64(-60)}}))
	b.has("accounts", account("settle", bson.M{"balance": int64(40)}))
}

// Only refusals of a statement that the server looked at are definite; what it says of its own state, or a mongos of a shard, is not.
func TestDefiniteCodes(t *testing.T) {
	t.Parallel()
	for _, code := range []int{2, 9, 14, 15, 22, 28, 40, 52, 56, 57, 66, 121, 11000, 17419} {
		assert.True(t, wire.IsRefusal(code), code)
	}
	for _, code := range []int{0, 1, 6, 7, 8, 13, 50, 64, 79, 89, 91, 96, 100, 112, 133, 189, 202, 251, 262, 9001, 10058, 10107,
		11600, 11601, 11602, 13388, 13435, 13436} {
		assert.False(t, wire.IsRefusal(code), code)
	}
}
