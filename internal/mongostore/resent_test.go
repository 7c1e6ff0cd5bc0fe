package mongostore_test

import (
	"fmt"
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

// A pay or a clear that the driver sends twice is done once, by itself and in a statement
// that accounts share: whatever other processes do in between, the second one finds no
// trace that it needs.
func TestResentPayAndClear(t *testing.T) {
	for name, row := range map[string]struct {
		kind    protocol.Kind
		cleared bool // by another process, in between
		after   bson.M
		trace   protocol.Trace
	}{
		"pay":                        {protocol.Pay, false, bson.M{"order%": int64(60)}, protocol.Done},
		"pay, cleared in between":    {protocol.Pay, true, bson.M{}, protocol.NoTrace},
		"clear":                      {protocol.Clear, false, bson.M{}, protocol.NoTrace},
		"clear, another one follows": {protocol.Clear, true, bson.M{}, protocol.NoTrace},
	} {
		for _, accounts := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s, %d accounts", name, accounts), func(t *testing.T) {
				b := newBank(t)
				names := []string{"bob", "carol", "dave"}[:accounts]
				legs := []document.Leg{b.Leg("alice", int64(-60*accounts))}
				b.Put(storetest.Account("alice", bson.M{"balance": int64(1000)}))
				var operations, clears []protocol.Operation
				for i, name := range names {
					b.Put(storetest.Account(name, nil))
					legs = append(legs, b.Leg(name, 60))
					operations = append(operations, storetest.At(row.kind, i+1))
					clears = append(clears, storetest.At(protocol.Clear, i+1))
				}
				a, other := b.Prepared(b.Claimed("order", legs...)), b.process()
				if row.kind == protocol.Clear {
					for i := range names {
						b.Applied(a, storetest.At(protocol.Pay, i+1))
					}
				}
				b.trial()
				sent := b.resending("update", func() {
					if row.cleared {
						other.All(other.Attempt("order", legs...), clears...)
					}
				})
				for _, got := range b.All(a, operations...) {
					assert.Equal(t, protocol.NotMatched, got.Result, "of the second one: its execution looks")
				}
				sent()
				for i, name := range names {
					b.Has("accounts", storetest.Account(name, bson.M{"balance": int64(160), "pending": row.after}))
					assert.Equal(t, row.trace, b.On(a, storetest.At(protocol.Look, i+1)).Facts.Trace)
				}
			})
		}
	}
}

// A clear with a new fence that the driver sends twice doesn't bring that fence back,
// once another process has replaced it.
func TestResentClearBringsNoFenceBack(t *testing.T) {
	b := newBank(t)
	b.Put(storetest.Account("alice", nil), storetest.Account("bob", nil))
	a, other := b.Prepared(b.Claimed("order", b.Leg("alice", -10), b.Leg("bob", 10))), b.process()
	b.Applied(a, storetest.At(protocol.Pay, 1))
	pinned := other.Attempt("pins", other.Leg("bob", -60))
	var late protocol.Operation
	sent := b.resending("update", func() {
		require.Eventually(t, func() bool {
			late = other.Ready(pinned)[0]
			return late.Fence != document.FenceOfToken(storetest.Fence0())
		}, 5*time.Minute, time.Millisecond, "the first one is stored")
		other.Applied(other.Attempt("rolls back", other.Leg("bob", -5)), storetest.At(protocol.FenceOnly, 0))
	})
	assert.Equal(t, protocol.NotMatched, b.On(a, storetest.Replacing(storetest.At(protocol.Clear, 1))).Result)
	sent()
	before := b.Raw("accounts", "bob")
	assert.Equal(t, protocol.NotMatched, other.On(pinned, late).Result, "the first fence is back, and a late prepare fits")
	assert.Equal(t, before, b.Raw("accounts", "bob"))
	b.checkCleared(storetest.Account("bob", bson.M{"balance": int64(110)}), true)
}
