package mongostore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// Many commits are one statement, and many finishes are one.
func TestManyDecisionsAreOneStatement(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", bson.M{"balance": int64(1000)}))
	attempts := b.crowd(5, 10)
	commit := storetest.Decide(protocol.Committed, 1)
	commit.Clean = true
	refuse := storetest.Decide(protocol.Rollback, 1)
	rs := append(of(commit, attempts[:3]...), of(refuse, attempts[3:]...)...)
	b.Log.Take()
	assert.Equal(t, all(5, protocol.Applied), b.batch(rs))
	assert.Equal(t, []int{3}, b.statements())
	rs = append(of(storetest.Finish(protocol.Success), attempts[:3]...), of(storetest.Finish(protocol.Fail), attempts[3:]...)...)
	assert.Equal(t, all(5, protocol.Applied), b.batch(rs))
	assert.Equal(t, []int{2}, b.statements())
	for i, a := range attempts {
		stored, found, err := b.Store.ReadTransfer(t.Context(), a.Transfer.ID)
		require.NoError(t, err)
		require.True(t, found)
		assert.Equal(t, i < 3, !stored.CommittedAt.IsZero())
		assert.Equal(t, i < 3, !a.Transfer.CommittedAt.IsZero())
		assert.WithinDuration(t, stored.CommittedAt, a.Transfer.CommittedAt, time.Minute)
		stored.CommittedAt = a.Transfer.CommittedAt
		assert.Equal(t, a.Transfer, stored)
	}
}

// If some of many decisions don't match, a deciding read shows which are stored.
// Only an attempt's own decision counts.
func TestSomeDecisionsDoNotMatch(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	attempts := b.crowd(4, 10)
	commit := storetest.Decide(protocol.Committed, 1)
	commit.Clean = true
	b.Applied(attempts[0], storetest.Decide(protocol.Rollback, 1))
	b.Applied(attempts[1], commit) // an earlier message of this attempt
	b.Change("transfers", "t2", bson.M{"$set": bson.M{"owner": "another", "epoch": int64(2), "state": "Committed"}})
	applied, not := protocol.Applied, protocol.NotMatched
	assert.Equal(t, []protocol.Result{not, applied, not, applied}, b.batch(of(commit, attempts...)))
	assert.Equal(t, []protocol.Result{not, applied, applied, applied}, b.batch(of(storetest.Finish(protocol.Success),
		attempts...)), "anybody may finish")
}

// A document that the server refuses to change doesn't keep others in the same statement
// from being changed.
func TestRefusedDecisionStandsAlone(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	attempts := b.crowd(5, 10)
	require.NoError(t, b.DB.RunCommand(t.Context(), bson.D{
		{Key: "collMod", Value: "transfers"},
		{Key: "validator", Value: bson.M{"$or": bson.A{bson.M{"_id": bson.M{"$ne": "t2"}}, bson.M{"state": "Preparing"}}}},
	}).Err())
	commit := storetest.Decide(protocol.Committed, 1)
	commit.Clean = true
	want := all(5, protocol.Applied)
	want[2] = protocol.Failed
	assert.Equal(t, want, b.batch(of(commit, attempts...)))
}

// A document that can't be stored doesn't keep others from being stored.
func TestRefusedInsertStandsAlone(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Claimed("t1", b.Leg("alice", -1))
	require.NoError(t, b.DB.RunCommand(t.Context(), bson.D{
		{Key: "collMod", Value: "transfers"}, {Key: "validator", Value: bson.M{"_id": bson.M{"$ne": "t2"}}},
	}).Err())
	var rs requests
	for i := range 4 {
		rs.add(b.Attempt(fmt.Sprint("t", i), b.Leg("alice", -1)), storetest.Claim(protocol.Insert))
	}
	assert.Equal(t, []protocol.Result{protocol.Applied, protocol.NotMatched, protocol.Failed, protocol.Applied}, b.batch(rs))
}

// A document that the server can't read is refused with its whole command, and found when
// it is alone. The others are stored then.
func TestUnreadableInsertStandsAlone(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	seven, err := bson.Marshal(bson.D{{Key: "x", Value: bson.RawValue{Type: bson.TypeBoolean, Value: []byte{7}}}})
	require.NoError(t, err)
	var rs requests
	for i := range 3 {
		rs.add(b.Attempt(fmt.Sprint("t", i), b.Leg("alice", -1)), storetest.Claim(protocol.Insert))
	}
	rs[1].Attempt.Transfer.Metadata = seven
	assert.Equal(t, all(3, protocol.NotSent), b.batch(rs))
	for i, want := range []protocol.Result{protocol.Applied, protocol.Failed, protocol.Applied} {
		assert.True(t, rs[i].Alone)
		assert.Equal(t, []protocol.Result{want}, b.batch(rs[i:i+1]))
	}
}

// Each of many claims gets its own after-image. If it gets none, another claim has won.
func TestManyClaims(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	first := b.crowd(4, 10)
	b.Applied(first[1], storetest.Decide(protocol.Committed, 1))
	b.Applied(first[2], storetest.Decide(protocol.Rollback, 1))
	b.Applied(first[2], storetest.Finish(protocol.Fail))
	var rs requests
	for i, a := range first {
		next := b.Attempt(a.Transfer.ID, a.Transfer.Legs...)
		next.Owner = fmt.Sprint("next of ", i)
		rs.add(next, storetest.Claim(protocol.TakeOver))
	}
	applied := protocol.Applied
	assert.Equal(t, []protocol.Result{applied, applied, protocol.NotMatched, applied}, b.batch(rs))
	for i, state := range map[int]protocol.State{0: protocol.Preparing, 1: protocol.Committed, 3: protocol.Preparing} {
		assert.Equal(t, protocol.Image{Found: true, State: state, Epoch: 2, Mine: true}, rs[i].Answer.Transfer)
		assert.EqualValues(t, 1, rs[i].Attempt.Transfer.Attempts)
	}
}

// The handwritten encoding agrees with the tags of the type.
func TestEncodeTransfer(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for _, a := range []*mongostore.Attempt{b.full("order"), b.Attempt("plain", b.Leg("alice", -1), b.Leg("bob", 1))} {
		a.Transfer.State, a.Transfer.Epoch, a.Transfer.Owner = protocol.Preparing, 1, "me"
		a.Transfer.Open, a.Transfer.CreatedAt, a.Transfer.LastModified = true, time.UnixMilli(5), time.UnixMilli(7)
		want, err := bson.Marshal(a.Transfer)
		require.NoError(t, err)
		assert.Equal(t, bson.Raw(want), a.Transfer.Encode())
	}
}

// A command without the right to it is refused for all its inserts.
func TestUnauthorizedInsertFailsForAll(t *testing.T) {
	b := newBank(t)
	var rs requests
	for i := range 3 {
		rs.add(b.Attempt(fmt.Sprint("t", i), b.Leg("alice", -1)), storetest.Claim(protocol.Insert))
	}
	b.Claimed("first", b.Leg("alice", -1)) // the server's time is known from here on
	stop := b.Failing(1, []string{"insert"}, bson.M{"errorCode": 13})
	assert.Equal(t, all(3, protocol.Failed), b.batch(rs))
	stop()
}

// A decision doesn't wait for the server's time once that was known, because the time
// which it stores decides nothing.
func TestDecisionsDoNotAskForTheTime(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	attempts := b.crowd(2, 1)
	b.Store.Clock.Mu.Lock()
	b.Store.Clock.Read = time.Now().Add(-time.Hour)
	b.Store.Clock.Offset = time.Hour
	b.Store.Clock.Mu.Unlock()
	for range collections.MaxAsking { // as if hello were never answered
		b.Store.Asking <- struct{}{}
	}
	assert.Equal(t, all(2, protocol.Applied), b.batch(of(storetest.Decide(protocol.Committed, 1), attempts...)))
	assert.Equal(t, all(2, protocol.Applied), b.batch(of(storetest.Finish(protocol.Success), attempts...)))
	b.stored("t0", "lastModified") // by the server's clock, then
}

// Only equal decisions share a statement.
// A commit at another epoch, or by an execution that is not clean, is stored as it is.
func TestOnlyLikeDecisionsShareAStatement(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	attempts := b.crowd(4, 1)
	clean := storetest.Decide(protocol.Committed, 1)
	clean.Clean = true
	second := storetest.Decide(protocol.Committed, 2)
	b.Change("transfers", "t3", bson.M{"$set": bson.M{"epoch": int64(2)}})
	rs := append(of(storetest.Decide(protocol.Committed, 1), attempts[0]), of(clean, attempts[1:3]...)...)
	rs = append(rs, of(second, attempts[3])...)
	b.Log.Take()
	assert.Equal(t, all(4, protocol.Applied), b.batch(rs))
	assert.Equal(t, []int{3}, b.statements())
	for i, want := range []any{nil, true, true, nil} {
		assert.Equal(t, want, storetest.AsMap(t, b.Raw("transfers", fmt.Sprint("t", i)))["clean"], i)
	}
}

// Through a mongos each decision has a statement of its own.
// A common one may change, and count, a document that a shard no longer owns.
func TestDecisionsThroughMongosAreSingle(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	attempts := b.crowd(3, 1)
	b.Store.CheckedClients.Store(b.Store.Transfers.Database().Client(), true)
	commit := storetest.Decide(protocol.Committed, 1)
	commit.Clean = true
	b.Log.Take()
	assert.Equal(t, all(3, protocol.Applied), b.batch(of(commit, attempts...)))
	assert.Equal(t, []int{3}, b.statements())
}
