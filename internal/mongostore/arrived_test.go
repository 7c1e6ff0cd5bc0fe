package mongostore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// arrived asks whether the money of a transfer is there.
func (b *bank) arrived(a *mongostore.Attempt) bool {
	b.T.Helper()
	arrived, err := b.Store.Arrived(b.T.Context(), a)
	require.NoError(b.T, err)
	return arrived
}

// A transfer has arrived once it is recorded as committed and all who gain are paid.
// Those who lose may still have their markers.
func TestArrived(t *testing.T) {
	t.Parallel()
	b := newShop(t)
	b.Put(storetest.Account("alice", nil), storetest.Account("bob", nil))
	b.PutIn("accounts_eu", storetest.Account("carol", nil))
	b.PutIn("orders", bson.M{"_id": "o", "status": "unpaid"})
	legs := []document.Leg{b.Leg("alice", -60), b.Leg("bob", 20), b.LegIn("eu", "carol", money.Units(40))}
	a, err := b.Store.NewAttempt(document.Transfer{
		ID: "t", Legs: legs, Effects: []document.Effect{b.effect("o", unpaid(), paid())},
		Digest: document.Digest{Format: document.Format, Sum: []byte{1}},
	}, "me")
	require.NoError(t, err)
	require.False(t, b.arrived(a), "it is not stored")
	b.Applied(a, storetest.Claim(protocol.Insert))
	require.False(t, b.arrived(a), "no participant has a trace")
	b.Prepared(a)
	b.Applied(a, storetest.At(protocol.Pay, 1), storetest.At(protocol.Pay, 2), storetest.At(protocol.Pay, 3))
	require.False(t, b.arrived(a), "the record is not stored")
	b.Applied(a, storetest.Decide(protocol.Committed, 1))
	require.True(t, b.arrived(a))
	another := errors.New("it is another collection")
	for refused := range 2 { // before the read, or after it
		asked := -1
		b.Store.Ledgers["eu"].Confirm = func(context.Context) error {
			if asked++; asked == refused {
				return another
			}
			return nil
		}
		_, err = b.Store.Arrived(t.Context(), a)
		require.ErrorIs(t, err, another)
	}
	b.Store.Ledgers["eu"].Confirm = nil

	for i, gainer := range []struct{ collection, id string }{{"accounts", "bob"}, {"accounts_eu", "carol"}, {"orders", "o"}} {
		before := b.Raw(gainer.collection, gainer.id)
		b.Change(gainer.collection, gainer.id, bson.M{"$set": bson.M{"pending": bson.M{"t": int64(i)}}})
		require.False(t, b.arrived(a), "%s is not paid", gainer.id)
		b.Change(gainer.collection, gainer.id, bson.M{"$set": bson.M{"pending": bson.A{"t"}}})
		require.False(t, b.arrived(a), "nobody knows what %s has", gainer.id)
		b.remove(gainer.collection, gainer.id)
		require.False(t, b.arrived(a), "%s is gone", gainer.id)
		b.PutIn(gainer.collection, storetest.AsMap(t, before))
		require.True(t, b.arrived(a))
	}
	b.Applied(a, storetest.At(protocol.Clear, 1), storetest.At(protocol.Clear, 2), storetest.At(protocol.Clear, 3))
	require.True(t, b.arrived(a), "what is cleared was paid")
	b.Applied(a, storetest.At(protocol.Settle, 0), storetest.Finish(protocol.Success))
	require.True(t, b.arrived(a))
}

// remove removes a document.
func (b *bank) remove(collection, id string) {
	b.T.Helper()
	result, err := b.DB.Collection(collection).DeleteOne(b.T.Context(), bson.M{"_id": id})
	require.NoError(b.T, err)
	require.EqualValues(b.T, 1, result.DeletedCount)
}

// Of a hold, the payer may get a part back.
// Nothing is owed to the original of a reversal that was purged.
func TestArrivedOfHoldsAndReversals(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", nil), storetest.Account("bob", nil))
	hold := b.Attempt("hold", b.Leg("alice", -60), b.Leg("bob", 60))
	hold.Transfer.Hold = true
	b.Applied(hold, storetest.Claim(protocol.Insert))
	b.Prepared(hold)
	b.Applied(hold, storetest.Decide(protocol.Committed, 1), storetest.At(protocol.Settle, 1))
	require.False(t, b.arrived(hold), "the rest is not back")
	b.Applied(hold, storetest.At(protocol.Settle, 0))
	require.True(t, b.arrived(hold))

	b.PutIn("transfers", bson.M{"_id": "original", "state": "Success"})
	reversal, err := b.Store.NewAttempt(document.Transfer{
		ID: "reversal", Legs: []document.Leg{b.Leg("alice", -10), b.Leg("bob", 10)}, Reverses: "original",
		Digest: document.Digest{Format: document.Format, Sum: []byte{1}},
	}, "me")
	require.NoError(t, err)
	b.Applied(reversal, storetest.Claim(protocol.Insert))
	b.Prepared(reversal)
	b.Applied(reversal, storetest.Decide(protocol.Committed, 1), storetest.At(protocol.Settle, 0), storetest.At(protocol.Settle, 1))
	require.False(t, b.arrived(reversal), "the original is reserved")
	b.remove("transfers", "original")
	require.True(t, b.arrived(reversal))
}

// What shows no trace is believed only if the read is later than the record.
// On the transfers' servers it comes after a read of the record, in its session.
// Elsewhere it is linearizable.
func TestArrivedReadsAfterTheRecord(t *testing.T) {
	t.Parallel()
	log := storetest.NewCommandLog()
	var far *mongo.Collection
	b := newBank(t, func(c *storetest.Config) {
		far = mongotest.Client(t, log.Options()).Database(c.Transfers.Database().Name()).Collection("accounts_far")
		c.Ledgers["far"] = far
	})
	b.Put(storetest.Account("alice", nil), storetest.Account("bob", nil))
	b.PutIn("accounts_far", storetest.Account("dora", nil))
	leg := b.Leg("dora", 20)
	leg.Ledger, leg.Namespace = "far", far.Database().Name()+"."+far.Name()
	a := b.Claimed("t", b.Leg("alice", -60), b.Leg("bob", 40), leg)
	b.Prepared(a)
	b.Applied(a, storetest.At(protocol.Pay, 1), storetest.At(protocol.Pay, 2), storetest.Decide(protocol.Committed, 1))
	b.Log.Take()
	log.Take()
	require.True(t, b.arrived(a))
	commands := b.Log.Take()
	require.Equal(t, []string{"find", "find"}, storetest.Names(commands)[:2])
	record, money := commands[0], commands[1]
	assert.Equal(t, "transfers", record.Text("find"))
	assert.Equal(t, "accounts", money.Text("find"))
	assert.Equal(t, "majority", record.Text("readConcern", "level"))
	assert.Equal(t, "majority", money.Text("readConcern", "level"))
	assert.Equal(t, record.Body.Lookup("lsid"), money.Body.Lookup("lsid"))
	shown, at := operationTime(record.Reply.Lookup("operationTime")), operationTime(money.Body.Lookup("readConcern", "afterClusterTime"))
	require.NotZero(t, shown)
	assert.GreaterOrEqual(t, at, shown)
	elsewhere := log.Take()
	require.Equal(t, []string{"find"}, storetest.Names(elsewhere))
	assert.Equal(t, "linearizable", elsewhere[0].Text("readConcern", "level"))
}
