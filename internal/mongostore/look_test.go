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
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// A look on the transfers' own servers is a majority read. It runs in the causally
// consistent session of a majority write to the transfer that matched.
// It needs no linearizable read, which takes 100 ms on an idle server.
func TestLookFollowsAMatchedWrite(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", nil), storetest.Account("bob", nil))
	a := b.Claimed("order", b.Leg("alice", -60), b.Leg("bob", 60))
	for _, step := range []func(){
		func() {},
		func() { b.Prepared(a) },
		func() { b.Applied(a, storetest.Decide(protocol.Committed, 1)) },
		func() { b.Applied(a, storetest.Claim(protocol.TakeOver)) },
	} {
		step()
		before := b.Raw("transfers", "order")
		b.Log.Take()
		b.Applied(a, storetest.At(protocol.Look, 0), storetest.At(protocol.Look, 1))
		commands := b.Log.Take()
		require.Equal(t, []string{"update", "find"}, storetest.Names(commands))
		write, read := commands[0], commands[1]
		assert.Equal(t, "transfers", write.Text("update"))
		assert.Equal(t, "majority", write.Text("writeConcern", "w"))
		for _, count := range []string{"n", "nModified"} {
			n, _ := write.Reply.Lookup(count).AsInt64OK()
			assert.EqualValues(t, 1, n, count)
		}
		assert.NotEqual(t, before, b.Raw("transfers", "order"))
		assert.Equal(t, "accounts", read.Text("find"))
		assert.Equal(t, "majority", read.Text("readConcern", "level"))
		assert.Equal(t, write.Body.Lookup("lsid"), read.Body.Lookup("lsid"))
		wrote, at := operationTime(write.Reply.Lookup("operationTime")), operationTime(read.Body.Lookup("readConcern", "afterClusterTime"))
		require.NotZero(t, wrote)
		assert.GreaterOrEqual(t, at, wrote, "the read may show what was there before the write")
	}
}

func operationTime(value bson.RawValue) uint64 {
	seconds, number, ok := value.TimestampOK()
	if !ok {
		return 0
	}
	return uint64(seconds)<<32 | uint64(number)
}

// If the write to the transfer does not match, because it belongs to another execution,
// is final or gone, it proves nothing, and the look is linearizable.
// A final transfer is never written again, and its record stays the same for ever.
func TestLookWithoutAMatchedWriteIsLinearizable(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", nil))
	overtaken := b.Claimed("order", b.Leg("alice", -60))
	b.Applied(b.Attempt("order", b.Leg("alice", -60)), storetest.Claim(protocol.TakeOver))
	other := b.Attempt("order", b.Leg("alice", -60))
	other.Owner, other.Transfer.Epoch = "another", 2
	final := b.Claimed("done", b.Leg("alice", -60))
	b.Applied(final, storetest.Decide(protocol.Rollback, 1), storetest.Finish(protocol.Fail))
	for name, a := range map[string]*mongostore.Attempt{
		"another epoch": overtaken, "another owner": other, "no such transfer": b.Attempt("nothing", b.Leg("alice", -60)), "final": final,
	} {
		before := b.Raw("transfers", a.Transfer.ID)
		b.Log.Take()
		b.Applied(a, storetest.At(protocol.Look, 0))
		commands := b.Log.Take()
		require.Equal(t, []string{"update", "find"}, storetest.Names(commands), name)
		assert.Equal(t, "linearizable", commands[1].Text("readConcern", "level"), name)
		assert.Equal(t, before, b.Raw("transfers", a.Transfer.ID), name)
	}
}

// A look through another client is linearizable, since nothing is known about the
// transfers' servers there.
// The two ledgers are read at the same time.
func TestLookThroughAnotherClientIsLinearizable(t *testing.T) {
	t.Parallel()
	log := storetest.NewCommandLog()
	var far *mongo.Collection
	b := newBank(t, func(c *storetest.Config) {
		client := mongotest.Client(t, log.Options())
		far = client.Database(c.Transfers.Database().Name()).Collection("accounts_far")
		c.Ledgers["far"] = far
	})
	b.PutIn("accounts_far", storetest.Account("carol", nil))
	b.Put(storetest.Account("alice", nil))
	a := b.Claimed("order", b.Leg("alice", -60), b.LegIn("far", "carol", dec("60")))
	b.Log.Take()
	answers := b.All(a, storetest.At(protocol.Look, 0), storetest.At(protocol.Look, 1))
	assert.True(t, answers[0].Facts.Kind)
	assert.False(t, answers[1].Facts.Kind)
	assert.Equal(t, []string{"update", "find"}, storetest.Names(b.Log.Take()))
	commands := log.Take()
	require.Equal(t, []string{"find"}, storetest.Names(commands))
	assert.Equal(t, "linearizable", commands[0].Text("readConcern", "level"))
}

// Through a mongos each look is linearizable, because a session's time does not bind the
// shards of another collection.
func TestLookThroughMongosIsLinearizable(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Store.CheckedClients.Store(b.Store.Transfers.Database().Client(), true)
	b.Put(storetest.Account("alice", nil))
	a := b.Claimed("order", b.Leg("alice", -60))
	b.Log.Take()
	b.Applied(a, storetest.At(protocol.Look, 0))
	commands := b.Log.Take()
	require.Equal(t, []string{"find"}, storetest.Names(commands))
	assert.Equal(t, "linearizable", commands[0].Text("readConcern", "level"))
}

// Each of the other reads has its concern: majority for fences and the transfer,
// linearizable for a look at the transfer.
func TestReadsOfFencesAndTransfers(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", nil))
	a := b.Claimed("order", b.Leg("alice", -60))
	b.Log.Take()
	for _, row := range []struct {
		op    protocol.Operation
		level string
	}{
		{storetest.At(protocol.ReadFence, 0), "majority"},
		{storetest.About(protocol.ReadTransfer), "majority"},
		{storetest.About(protocol.LookTransfer), "linearizable"},
	} {
		b.Applied(a, row.op)
		commands := b.Log.Take()
		require.Equal(t, []string{"find"}, storetest.Names(commands))
		assert.Equal(t, row.level, commands[0].Text("readConcern", "level"))
	}
}

// A read of the transfer shows the stored state and the owner. A read of a missing
// transfer shows nothing.
func TestReadTransferShowsTheImage(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	mine := b.Claimed("order", b.Leg("alice", -60))
	other := b.Attempt("order", b.Leg("alice", -60))
	other.Owner = "another"
	b.Change("transfers", "order", bson.M{"$set": bson.M{"epoch": int64(3), "state": "Committed"}})
	for _, kind := range []protocol.Kind{protocol.ReadTransfer, protocol.LookTransfer} {
		image := protocol.Image{Found: true, State: protocol.Committed, Epoch: 3, Mine: true}
		assert.Equal(t, protocol.Answer{Result: protocol.Applied, Transfer: image}, b.On(mine, storetest.About(kind)))
		assert.EqualValues(t, 3, mine.Transfer.Epoch)
		image.Mine = false
		assert.Equal(t, protocol.Answer{Result: protocol.Applied, Transfer: image}, b.On(other, storetest.About(kind)))
		assert.EqualValues(t, 0, other.Transfer.Epoch, "another's document was taken over")
		gone := b.Attempt("gone", b.Leg("alice", -60))
		assert.Equal(t, protocol.Answer{Result: protocol.Applied}, b.On(gone, storetest.About(kind)))
	}
	// An unreadable transfer exists, in an unknown state.
	b.Change("transfers", "order", bson.M{"$set": bson.M{"legs": "none"}})
	answer := b.On(mine, storetest.About(protocol.LookTransfer))
	assert.Equal(t, protocol.Answer{Result: protocol.Applied, Transfer: protocol.Image{Found: true}}, answer)
	require.ErrorIs(t, mine.Cause, document.ErrUnreadable)
}

// A look that finds no trace, where that counts, is believed only of the collection that
// was connected.
func TestConcludingLookIsConfirmed(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", nil))
	asked, refused := 0, 1
	b.Store.Ledgers[""].Confirm = func(context.Context) error {
		if asked++; asked == refused {
			return errors.New("it is another one")
		}
		return nil
	}
	a := b.Claimed("order", b.Leg("alice", -1))
	look := protocol.Operation{Kind: protocol.Look}
	require.Equal(t, protocol.Applied, b.On(a, look).Result)
	require.Zero(t, asked, "nothing is concluded")
	look.Concluding = true
	for refused = range 3 { // it is another one before the read, or after it
		asked = 0
		if refused == 0 {
			require.Equal(t, protocol.Applied, b.On(a, look).Result)
			require.Equal(t, 2, asked)
			continue
		}
		require.Equal(t, protocol.Unknown, b.On(a, look).Result)
		require.EqualError(t, a.Cause, "it is another one")
		require.Equal(t, refused, asked)
	}

	b.Change("accounts", "alice", bson.M{"$set": bson.M{"pending.order": int64(-1)}})
	asked = 0
	require.Equal(t, protocol.Applied, b.On(a, look).Result)
	require.Equal(t, 1, asked, "there is a trace")
}
