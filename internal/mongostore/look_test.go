package mongostore

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// A look on the transfers' own servers is a majority read in the causally consistent session of a majority write to the transfer that
// matched. It asks for no linearizable read, which takes 100 ms on an idle server.
func TestLookFollowsAMatchedWrite(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("alice", nil), account("bob", nil))
	w := b.claimed("order", b.leg("alice", -60), b.leg("bob", 60))
	for _, step := range []func(){
		func() {},
		func() { b.prepared(w) },
		func() { b.applied(w, decide(protocol.Committed, 1)) },
		func() { b.applied(w, claim(protocol.TakeOver)) },
	} {
		step()
		before := b.raw("transfers", "order")
		b.log.take()
		b.applied(w, at(protocol.Look, 0), at(protocol.Look, 1))
		commands := b.log.take()
		require.Equal(t, []string{"update", "find"}, names(commands))
		write, read := commands[0], commands[1]
		assert.Equal(t, "transfers", write.text("update"))
		assert.Equal(t, "majority", write.text("writeConcern", "w"))
		for _, count := range []string{"n", "nModified"} {
			n, _ := write.reply.Lookup(count).AsInt64OK()
			assert.EqualValues(t, 1, n, count)
		}
		assert.NotEqual(t, before, b.raw("transfers", "order"))
		assert.Equal(t, "accounts", read.text("find"))
		assert.Equal(t, "majority", read.text("readConcern", "level"))
		assert.Equal(t, write.body.Lookup("lsid"), read.body.Lookup("lsid"))
		wrote, at := operationTime(write.reply.Lookup("operationTime")), operationTime(read.body.Lookup("readConcern", "afterClusterTime"))
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

// Where the write to the transfer does not match, because the transfer is another's, final or gone, it proves nothing: the look is
// linearizable. What is final is written to no more: its record stays the same for ever.
func TestLookWithoutAMatchedWriteIsLinearizable(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("alice", nil))
	overtaken := b.claimed("order", b.leg("alice", -60))
	b.applied(b.work("order", b.leg("alice", -60)), claim(protocol.TakeOver))
	other := b.work("order", b.leg("alice", -60))
	other.Owner, other.Transfer.Epoch = "another", 2
	final := b.claimed("done", b.leg("alice", -60))
	b.applied(final, decide(protocol.Rollback, 1), finish(protocol.Fail))
	for name, w := range map[string]*Attempt{
		"another epoch": overtaken, "another owner": other, "no such transfer": b.work("nothing", b.leg("alice", -60)), "final": final,
	} {
		before := b.raw("transfers", w.Transfer.ID)
		b.log.take()
		b.applied(w, at(protocol.Look, 0))
		commands := b.log.take()
		require.Equal(t, []string{"update", "find"}, names(commands), name)
		assert.Equal(t, "linearizable", commands[1].text("readConcern", "level"), name)
		assert.Equal(t, before, b.raw("transfers", w.Transfer.ID), name)
	}
}

// Through another client nothing is known of the transfers' servers: there each look is linearizable. The two ledgers are looked
// at side by side.
func TestLookThroughAnotherClientIsLinearizable(t *testing.T) {
	t.Parallel()
	log := newCommandLog()
	var far *mongo.Collection
	b := newBank(t, func(c *config) {
		client := mongotest.Client(t, log.options())
		far = client.Database(c.Transfers.Database().Name()).Collection("accounts_far")
		c.Ledgers["far"] = far
	})
	b.putIn("accounts_far", account("carol", nil))
	b.put(account("alice", nil))
	w := b.claimed("order", b.leg("alice", -60), b.legIn("far", "carol", dec("60")))
	b.log.take()
	answers := b.all(w, at(protocol.Look, 0), at(protocol.Look, 1))
	assert.True(t, answers[0].Facts.Kind)
	assert.False(t, answers[1].Facts.Kind)
	assert.Equal(t, []string{"update", "find"}, names(b.log.take()))
	commands := log.take()
	require.Equal(t, []string{"find"}, names(commands))
	assert.Equal(t, "linearizable", commands[0].text("readConcern", "level"))
}

// Through a mongos a session's time does not bind the shards of another collection: each look is linearizable.
func TestLookThroughMongosIsLinearizable(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.store.CheckedClients.Store(b.store.Transfers.Database().Client(), true)
	b.put(account("alice", nil))
	w := b.claimed("order", b.leg("alice", -60))
	b.log.take()
	b.applied(w, at(protocol.Look, 0))
	commands := b.log.take()
	require.Equal(t, []string{"find"}, names(commands))
	assert.Equal(t, "linearizable", commands[0].text("readConcern", "level"))
}

// The other reads say how old they may be: fences and the transfer by majority, a look at the transfer linearizable.
func TestReadsOfFencesAndTransfers(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("alice", nil))
	w := b.claimed("order", b.leg("alice", -60))
	b.log.take()
	for _, row := range []struct {
		op    protocol.Operation
		level string
	}{
		{at(protocol.ReadFence, 0), "majority"},
		{about(protocol.ReadTransfer), "majority"},
		{about(protocol.LookTransfer), "linearizable"},
	} {
		b.applied(w, row.op)
		commands := b.log.take()
		require.Equal(t, []string{"find"}, names(commands))
		assert.Equal(t, row.level, commands[0].text("readConcern", "level"))
	}
}

// A read of the transfer shows the stored state, and whose it is; one of a transfer that isn't there shows nothing.
func TestReadTransferShowsTheImage(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	mine := b.claimed("order", b.leg("alice", -60))
	other := b.work("order", b.leg("alice", -60))
	other.Owner = "another"
	b.change("transfers", "order", bson.M{"$set": bson.M{"epoch": int64(3), "state": "Committed"}})
	for _, kind := range []protocol.Kind{protocol.ReadTransfer, protocol.LookTransfer} {
		image := protocol.Image{Found: true, State: protocol.Committed, Epoch: 3, Mine: true}
		assert.Equal(t, protocol.Answer{Result: protocol.Applied, Transfer: image}, b.on(mine, about(kind)))
		assert.EqualValues(t, 3, mine.Transfer.Epoch)
		image.Mine = false
		assert.Equal(t, protocol.Answer{Result: protocol.Applied, Transfer: image}, b.on(other, about(kind)))
		assert.EqualValues(t, 0, other.Transfer.Epoch, "another's document was taken over")
		gone := b.work("gone", b.leg("alice", -60))
		assert.Equal(t, protocol.Answer{Result: protocol.Applied}, b.on(gone, about(kind)))
	}
	// One that can't be read is there, in a state that nobody knows.
	b.change("transfers", "order", bson.M{"$set": bson.M{"legs": "none"}})
	answer := b.on(mine, about(protocol.LookTransfer))
	assert.Equal(t, protocol.Answer{Result: protocol.Applied, Transfer: protocol.Image{Found: true}}, answer)
	require.ErrorIs(t, mine.Cause, document.ErrUnreadable)
}
