package mongostore

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// Many commits are one statement, and many finishes are one.
func TestManyDecisionsAreOneStatement(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("alice", bson.M{"balance": int64(1000)}))
	works := b.crowd(5, 10)
	commit := decide(protocol.Committed, 1)
	commit.Clean = true
	refuse := decide(protocol.Rollback, 1)
	rs := append(of(commit, works[:3]...), of(refuse, works[3:]...)...)
	b.log.take()
	assert.Equal(t, all(5, protocol.Applied), b.batch(rs))
	assert.Equal(t, []int{3}, b.statements())
	rs = append(of(finish(protocol.Success), works[:3]...), of(finish(protocol.Fail), works[3:]...)...)
	assert.Equal(t, all(5, protocol.Applied), b.batch(rs))
	assert.Equal(t, []int{2}, b.statements())
	for i, w := range works {
		stored, found, err := b.store.ReadTransfer(t.Context(), w.Transfer.ID)
		require.NoError(t, err)
		require.True(t, found)
		assert.Equal(t, i < 3, !stored.CommittedAt.IsZero())
		stored.CommittedAt = time.Time{}
		assert.Equal(t, w.Transfer, stored)
	}
}

// Where some of many decisions don't match, a deciding read tells which are stored, and that only one's own count.
func TestSomeDecisionsDoNotMatch(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	works := b.crowd(4, 10)
	commit := decide(protocol.Committed, 1)
	commit.Clean = true
	b.applied(works[0], decide(protocol.Rollback, 1))
	b.applied(works[1], commit) // an earlier message of its own
	b.change("transfers", "t2", bson.M{"$set": bson.M{"owner": "another", "epoch": int64(2), "state": "Committed"}})
	applied, not := protocol.Applied, protocol.NotMatched
	assert.Equal(t, []protocol.Result{not, applied, not, applied}, b.batch(of(commit, works...)))
	assert.Equal(t, []protocol.Result{not, applied, applied, applied}, b.batch(of(finish(protocol.Success), works...)), "anybody may finish")
}

// A document that the server refuses to change keeps none of the others from being changed in the same statement.
func TestRefusedDecisionStandsAlone(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	works := b.crowd(5, 10)
	require.NoError(t, b.db.RunCommand(t.Context(), bson.D{
		{Key: "collMod", Value: "transfers"},
		{Key: "validator", Value: bson.M{"$or": bson.A{bson.M{"_id": bson.M{"$ne": "t2"}}, bson.M{"state": "Preparing"}}}},
	}).Err())
	commit := decide(protocol.Committed, 1)
	commit.Clean = true
	want := all(5, protocol.Applied)
	want[2] = protocol.Failed
	assert.Equal(t, want, b.batch(of(commit, works...)))
}

// A document that can't be stored keeps none of the others from being stored.
func TestRefusedInsertStandsAlone(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.claimed("t1", b.leg("alice", -1))
	require.NoError(t, b.db.RunCommand(t.Context(), bson.D{
		{Key: "collMod", Value: "transfers"}, {Key: "validator", Value: bson.M{"_id": bson.M{"$ne": "t2"}}},
	}).Err())
	var rs requests
	for i := range 4 {
		rs.add(b.work(fmt.Sprint("t", i), b.leg("alice", -1)), claim(protocol.Insert))
	}
	assert.Equal(t, []protocol.Result{protocol.Applied, protocol.NotMatched, protocol.Failed, protocol.Applied}, b.batch(rs))
}

// A document that the server can't read is refused with its whole command, and found out when it is alone. The others are stored then.
func TestUnreadableInsertStandsAlone(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	seven, err := bson.Marshal(bson.D{{Key: "x", Value: bson.RawValue{Type: bson.TypeBoolean, Value: []byte{7}}}})
	require.NoError(t, err)
	var rs requests
	for i := range 3 {
		rs.add(b.work(fmt.Sprint("t", i), b.leg("alice", -1)), claim(protocol.Insert))
	}
	rs[1].Attempt.Transfer.Metadata = seven
	assert.Equal(t, all(3, protocol.NotSent), b.batch(rs))
	for i, want := range []protocol.Result{protocol.Applied, protocol.Failed, protocol.Applied} {
		assert.True(t, rs[i].Alone)
		assert.Equal(t, []protocol.Result{want}, b.batch(rs[i:i+1]))
	}
}

// Of many claims each gets its own after-image, and what it doesn't get is another's.
func TestManyClaims(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	first := b.crowd(4, 10)
	b.applied(first[1], decide(protocol.Committed, 1))
	b.applied(first[2], decide(protocol.Rollback, 1))
	b.applied(first[2], finish(protocol.Fail))
	var rs requests
	for i, w := range first {
		next := b.work(w.Transfer.ID, w.Transfer.Legs...)
		next.Owner = fmt.Sprint("next of ", i)
		rs.add(next, claim(protocol.TakeOver))
	}
	applied := protocol.Applied
	assert.Equal(t, []protocol.Result{applied, applied, protocol.NotMatched, applied}, b.batch(rs))
	for i, state := range map[int]protocol.State{0: protocol.Preparing, 1: protocol.Committed, 3: protocol.Preparing} {
		assert.Equal(t, protocol.Image{Found: true, State: state, Epoch: 2, Mine: true}, rs[i].Answer.Transfer)
		assert.EqualValues(t, 1, rs[i].Attempt.Transfer.Attempts)
	}
}

// What is written down by hand is what the tags of the type say.
func TestEncodeTransfer(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for _, w := range []*Attempt{b.full("order"), b.work("plain", b.leg("alice", -1), b.leg("bob", 1))} {
		w.Transfer.State, w.Transfer.Epoch, w.Transfer.Owner = protocol.Preparing, 1, "me"
		w.Transfer.Open, w.Transfer.CreatedAt, w.Transfer.LastModified = true, time.UnixMilli(5), time.UnixMilli(7)
		want, err := bson.Marshal(w.Transfer)
		require.NoError(t, err)
		assert.Equal(t, bson.Raw(want), w.Transfer.Encode())
	}
}

// A command that this user may not send is refused for all that were to go out with it.
func TestUnauthorizedInsertFailsForAll(t *testing.T) {
	b := newBank(t)
	var rs requests
	for i := range 3 {
		rs.add(b.work(fmt.Sprint("t", i), b.leg("alice", -1)), claim(protocol.Insert))
	}
	b.claimed("first", b.leg("alice", -1)) // the server's time is known
	stop := b.failing(1, []string{"insert"}, bson.M{"errorCode": 13})
	assert.Equal(t, all(3, protocol.Failed), b.batch(rs))
	stop()
}

// A decision doesn't wait for the server's time where it was ever known: nothing is judged by the one that a finish stores.
func TestDecisionsDoNotAskForTheTime(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	works := b.crowd(2, 1)
	b.store.Clock.Mu.Lock()
	b.store.Clock.Read = time.Now().Add(-time.Hour)
	b.store.Clock.Offset = time.Hour
	b.store.Clock.Mu.Unlock()
	for range collections.MaxAsking { // as if hello were never answered
		b.store.Asking <- struct{}{}
	}
	assert.Equal(t, all(2, protocol.Applied), b.batch(of(decide(protocol.Committed, 1), works...)))
	assert.Equal(t, all(2, protocol.Applied), b.batch(of(finish(protocol.Success), works...)))
	b.stored("t0", "lastModified") // by the server's clock, then
}

// Only decisions that say the same are one statement: a commit at another epoch, or by an execution that is not clean, is stored as it is.
func TestOnlyLikeDecisionsShareAStatement(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	works := b.crowd(4, 1)
	clean := decide(protocol.Committed, 1)
	clean.Clean = true
	second := decide(protocol.Committed, 2)
	b.change("transfers", "t3", bson.M{"$set": bson.M{"epoch": int64(2)}})
	rs := append(of(decide(protocol.Committed, 1), works[0]), of(clean, works[1:3]...)...)
	rs = append(rs, of(second, works[3])...)
	b.log.take()
	assert.Equal(t, all(4, protocol.Applied), b.batch(rs))
	assert.Equal(t, []int{3}, b.statements())
	for i, want := range []any{nil, true, true, nil} {
		assert.Equal(t, want, asMap(t, b.raw("transfers", fmt.Sprint("t", i)))["clean"], i)
	}
}

// Through a mongos every decision is a statement for one document: one for many may change, and count, what a shard no longer owns.
func TestDecisionsThroughMongosAreSingle(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	works := b.crowd(3, 1)
	b.store.CheckedClients.Store(b.store.Transfers.Database().Client(), true)
	commit := decide(protocol.Committed, 1)
	commit.Clean = true
	b.log.take()
	assert.Equal(t, all(3, protocol.Applied), b.batch(of(commit, works...)))
	assert.Equal(t, []int{3}, b.statements())
}
