package mongostore_test

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
	"github.com/mongotransfer/transfer/internal/storetest"
	"github.com/mongotransfer/transfer/internal/wire"
)

// An insert with a used ID is NotMatched, even if the server adds that it could not wait
// for the majority, because the ID existed before.
func TestDuplicateIDComesBeforeWriteConcernError(t *testing.T) {
	b := newBank(t).reconnected(t, 1)
	b.Claimed("order", b.Leg("alice", -60))
	before := b.Raw("transfers", "order")
	second := b.Attempt("order", b.Leg("alice", -61))
	require.Equal(t, protocol.NotMatched, b.On(second, storetest.Claim(protocol.Insert)).Result)
	b.Failing(1, []string{"insert"}, bson.M{"writeConcernError": bson.M{"code": 64, "errmsg": "waiting for replication timed out"}})
	b.Log.Take()
	require.Equal(t, protocol.NotMatched, b.On(second, storetest.Claim(protocol.Insert)).Result)
	_, broken := b.Log.Take()[0].Reply.Lookup("writeConcernError").DocumentOK()
	require.True(t, broken, "the server was to add a write concern error")
	assert.Equal(t, before, b.Raw("transfers", "order"))
}

// unique makes the server refuse two documents of a collection with the same value.
func (b *bank) unique(collection, field string) {
	b.T.Helper()
	_, err := b.DB.Collection(collection).Indexes().CreateOne(b.T.Context(), mongo.IndexModel{
		Keys: bson.M{field: 1}, Options: options.Index().SetUnique(true).SetPartialFilterExpression(bson.M{field: bson.M{"$exists": true}}),
	})
	require.NoError(b.T, err)
}

// A duplicate key of a unique index of the user's is a refusal.
// It doesn't mean that the ID is used, since there is no such transfer.
func TestDuplicateKeyOfAnotherIndexIsFailed(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.unique("transfers", "digest")
	b.unique("transfers", "failure.code")
	b.unique("accounts", "balance")
	b.Claimed("order 1", b.Leg("alice", -60))
	b.Put(storetest.Account("alice", nil), storetest.Account("bob", bson.M{"balance": int64(160)}))

	second := b.Attempt("order 2", b.Leg("bob", -60))
	assert.Equal(t, protocol.Failed, b.On(second, storetest.Claim(protocol.Insert)).Result)
	assert.Nil(t, b.Raw("transfers", "order 2"))
	assert.Equal(t, protocol.Failed, b.On(second, b.Ready(second)[0]).Result, "the balance of 100 is taken")
	b.Has("accounts", storetest.Account("bob", bson.M{"balance": int64(160)}))
	result, err := b.Store.Open(t.Context(), "", document.Account{ID: "carol", Balance: money.Units(100)}, bson.NewObjectID())
	assert.Equal(t, protocol.Failed, result)
	require.Error(t, err)

	for i, id := range []string{"order 3", "order 4"} {
		a := b.Attempt(id)
		a.Transfer.Digest.Sum = []byte{1, byte(i)}
		a.TakeParticipants(second)
		require.Equal(t, protocol.Applied, b.On(a, storetest.Claim(protocol.Insert)).Result)
		want := protocol.Applied
		if i == 1 {
			want = protocol.Failed
		}
		assert.Equal(t, want, b.On(a, storetest.Decide(protocol.Rollback, 1)).Result)
	}
	assert.Equal(t, "Preparing", b.Raw("transfers", "order 4").Lookup("state").StringValue())
}

// A validator that refuses a prepare refuses only that one. The other participant in the
// same command is prepared.
func TestValidatorRefusesPrepare(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", nil), storetest.Account("bob", nil))
	a := b.Attempt("order", b.Leg("alice", -60), b.Leg("bob", 60))
	prepares := b.Ready(a)
	b.validate(bson.M{"balance": bson.M{"$gte": 50}})
	answers := b.All(a, prepares...)
	assert.Equal(t, protocol.Failed, answers[0].Result)
	assert.Equal(t, protocol.Applied, answers[1].Result)
	require.ErrorContains(t, a.Cause, "121")
	b.Has("accounts", storetest.Account("alice", nil))
	b.Has("accounts", storetest.Account("bob", bson.M{"pending": bson.M{"order": int64(60)}}))

	// If another one does not match, nothing is known about those that were not refused.
	answers = b.All(a, prepares...)
	assert.Equal(t, protocol.Failed, answers[0].Result)
	assert.Equal(t, protocol.NotMatched, answers[1].Result)
}

// validate sets the rule of the accounts.
func (b *bank) validate(rule bson.M) {
	b.T.Helper()
	require.NoError(b.T, b.DB.RunCommand(b.T.Context(), bson.D{{Key: "collMod", Value: "accounts"}, {Key: "validator", Value: rule}}).Err())
}

// A settle or undo that the server refuses is Failed, for any reason, and leaves the
// document as it was.
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
			b.Put(storetest.Account("alice", nil))
			a := b.Prepared(b.Attempt("order", b.Leg("alice", row.units)))
			if row.spoil != nil {
				b.Change("accounts", "alice", bson.M{"$set": row.spoil})
			}
			if row.rule != nil {
				b.validate(row.rule)
			}
			before := b.Raw("accounts", "alice")
			op := storetest.At(protocol.Undo, 0)
			if row.settle {
				op = storetest.At(protocol.Settle, 0)
			}
			for _, op := range []protocol.Operation{op, storetest.Replacing(op)} {
				assert.Equal(t, protocol.Failed, b.On(a, op).Result)
				assert.Equal(t, before, b.Raw("accounts", "alice"))
			}
			assert.Zero(t, b.Store.KnownFences())
		})
	}
}

// deafening makes connections that lose the next answer once it is armed, after the
// server has performed the command.
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

// A stored write whose answer is lost is Unknown, is not repeated by the driver, and is
// stored once.
func TestLostAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	dialer := new(deafening)
	b := newBank(t).reconnected(t, 1, options.Client().SetDialer(dialer).SetMaxPoolSize(1))
	for _, write := range writes() {
		a, op := write.ready(b, write.name)
		before := b.Raw(write.collection, write.name)
		b.Log.Take()
		dialer.armed.Store(true)
		assert.Equal(t, protocol.Unknown, b.On(a, op).Result, write.name)
		require.False(t, dialer.armed.Load())
		require.Error(t, a.Cause)
		assert.Equal(t, []string{write.command}, storetest.Names(b.Log.Take()), write.name)
		assert.NotEqual(t, before, b.Raw(write.collection, write.name), write.name)
	}
	b.Has("accounts", storetest.Account("prepare", bson.M{"balance": int64(40), "pending": bson.M{"prepare": int64(-60)}}))
	b.Has("accounts", storetest.Account("settle", bson.M{"balance": int64(40)}))
}

// Only a refusal of a statement that the server has examined is definite. An error about
// the server's own state, or from a mongos about a shard, is not.
func TestDefiniteCodes(t *testing.T) {
	t.Parallel()
	for _, code := range []int{2, 9, 14, 15, 22, 28, 40, 52, 56, 57, 66, 121, 11000, 17419} {
		assert.True(t, wire.IsRefusal(code), code)
	}
	for _, code := range []int{171, 201, 13026, 13027, 13068, 16746, 16755, 16756, 16766, 16804, 17261, 17262} { // keys of an index
		assert.True(t, wire.IsRefusal(code), code)
		assert.False(t, wire.IsEvaluation(code), "%d: it says nothing against shared statements", code)
	}
	for _, code := range []int{0, 1, 6, 7, 8, 13, 50, 64, 79, 89, 91, 96, 100, 112, 133, 189, 202, 251, 262, 9001, 10058, 10107,
		11600, 11601, 11602, 13388, 13435, 13436} {
		assert.False(t, wire.IsRefusal(code), code)
	}
}
