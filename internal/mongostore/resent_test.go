package mongostore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// resending makes the server perform the store's next command of a name, and answer that
// it was too busy to acknowledge it, so the driver sends the same message again.
// It calls between in the meantime. The returned function checks that all this happened.
func (b *bank) resending(name string, between func()) (check func()) {
	b.T.Helper()
	stop := b.Failing(1, []string{name}, bson.M{
		"writeConcernError": bson.M{"code": 64, "errmsg": "overloaded"},
		"errorLabels":       bson.A{"SystemOverloadedError", "RetryableError"},
	})
	b.Log.Take()
	b.Log.WhenAnswered(between)
	return func() {
		b.T.Helper()
		stop()
		sent := b.Log.Take()
		require.GreaterOrEqual(b.T, len(sent), 2)
		require.Equal(b.T, []string{name, name}, storetest.Names(sent)[:2], "it was sent twice")
		require.Equal(b.T, sent[0].Body.Lookup("updates").String(), sent[1].Body.Lookup("updates").String(), "it was the same")
	}
}

// process returns another process on the same documents, whose commands are not logged.
func (b *bank) process() *bank {
	b.T.Helper()
	store := b.another(func(c *storetest.Config) {
		c.Transfers, c.Ledgers = b.DB.Collection("transfers"), map[string]*mongo.Collection{"": b.DB.Collection("accounts")}
	})
	return &bank{&storetest.Bank{T: b.T, DB: b.DB, Store: store, Log: storetest.NewCommandLog()}}
}

// A fence-only that the driver sends twice doesn't bring its first fence back, even if a
// process has pinned that one, and another has replaced it since.
func TestResentFenceOnlyBringsNoFenceBack(t *testing.T) {
	b := newBank(t)
	b.Put(storetest.Account("alice", nil))
	a, other := b.Claimed("order", b.Leg("alice", -10)), b.process()
	pinned := other.Attempt("pins", other.Leg("alice", -60))
	var late protocol.Operation
	sent := b.resending("update", func() {
		require.Eventually(t, func() bool {
			late = other.Ready(pinned)[0]
			return late.Fence != document.FenceOfToken(storetest.Fence0())
		}, 5*time.Minute, time.Millisecond, "the first one is stored")
		other.Applied(other.Attempt("rolls back", other.Leg("alice", -5)), storetest.At(protocol.FenceOnly, 0))
	})
	b.Applied(a, storetest.At(protocol.FenceOnly, 0))
	sent()
	before := b.Raw("accounts", "alice")
	assert.Equal(t, protocol.NotMatched, other.On(pinned, late).Result, "the first fence is back, and a late prepare fits")
	assert.Equal(t, before, b.Raw("accounts", "alice"))
}
