package mongostore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// resending makes the server carry out the store's next command of a name, and answer
// that it was too busy to have it acknowledged: the driver sends the same message again.
// What is to happen in between does. It returns what checks that this was so.
func (b *bank) resending(name string, between func()) (check func()) {
	b.t.Helper()
	stop := b.failing(1, []string{name}, bson.M{
		"writeConcernError": bson.M{"code": 64, "errmsg": "overloaded"},
		"errorLabels":       bson.A{"SystemOverloadedError", "RetryableError"},
	})
	b.log.take()
	b.log.whenAnswered(between)
	return func() {
		b.t.Helper()
		stop()
		sent := b.log.take()
		require.GreaterOrEqual(b.t, len(sent), 2)
		require.Equal(b.t, []string{name, name}, names(sent)[:2], "it was sent twice")
		require.Equal(b.t, sent[0].body.Lookup("updates").String(), sent[1].body.Lookup("updates").String(), "it was the same")
	}
}

// process returns another process on the same documents, whose commands are not in the log.
func (b *bank) process() *bank {
	b.t.Helper()
	store := b.another(func(c *config) {
		c.Transfers, c.Ledgers = b.db.Collection("transfers"), map[string]*mongo.Collection{"": b.db.Collection("accounts")}
	})
	return &bank{t: b.t, db: b.db, store: store, log: newCommandLog()}
}

// A fence-only that the driver sends twice brings no fence back, whoever has pinned the
// first one, and whoever has replaced it in between.
func TestResentFenceOnlyBringsNoFenceBack(t *testing.T) {
	b := newBank(t)
	b.put(account("alice", nil))
	w, other := b.claimed("order", b.leg("alice", -10)), b.process()
	pinned := other.work("pins", other.leg("alice", -60))
	var late protocol.Operation
	sent := b.resending("update", func() {
		require.Eventually(t, func() bool {
			late = other.ready(pinned)[0]
			return late.Fence != document.FenceOfToken(fence0())
		}, 20*time.Second, time.Millisecond, "the first one is stored")
		other.applied(other.work("rolls back", other.leg("alice", -5)), at(protocol.FenceOnly, 0))
	})
	b.applied(w, at(protocol.FenceOnly, 0))
	sent()
	before := b.raw("accounts", "alice")
	assert.Equal(t, protocol.NotMatched, other.on(pinned, late).Result, "the first fence is back, and a late prepare fits")
	assert.Equal(t, before, b.raw("accounts", "alice"))
}
