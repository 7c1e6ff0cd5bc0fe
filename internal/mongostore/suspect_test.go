package mongostore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
	"github.com/mongotransfer/transfer/internal/wire"
)

// lock makes another client's open transaction write to an account, until the returned
// function is called.
func (b *bank) lock(account string) (unlock func()) {
	b.T.Helper()
	session, err := b.DB.Client().StartSession()
	require.NoError(b.T, err)
	require.NoError(b.T, session.StartTransaction())
	ctx := mongo.NewSessionContext(b.T.Context(), session)
	touch := bson.M{"$set": bson.M{"touched": true}}
	_, err = b.DB.Collection("accounts").UpdateOne(ctx, bson.M{"_id": account}, touch)
	require.NoError(b.T, err)
	return func() {
		require.NoError(b.T, session.AbortTransaction(context.WithoutCancel(b.T.Context())))
		session.EndSession(context.WithoutCancel(b.T.Context()))
	}
}

// performLimited performs requests of one lane, within a time limit.
func (b *bank) performLimited(limit time.Duration, rs requests) {
	b.T.Helper()
	ctx, cancel := b.Store.Catalog.WithLimit(b.T.Context(), limit)
	defer cancel()
	b.Store.Perform(ctx, mongostore.LaneOf(rs[0].Attempt, rs[0].Op), rs)
}

// suspects returns the transfers of the requests that are suspected.
func (rs requests) suspects() []string {
	var ids []string
	for _, call := range rs {
		if call.Suspect {
			ids = append(ids, call.Attempt.Transfer.ID)
		}
	}
	return ids
}

// The server gives up a command that waits for a transaction, before the client does.
// The document at which it waited is found, for each kind of write.
// Others of the command were done, could not be done, or were not reached.
func TestSuspectIsFound(t *testing.T) {
	b := newBank(t)
	accounts := []bson.M{storetest.Account("poor", bson.M{"balance": int64(1)})}
	for _, name := range []string{"a", "b", "locked", "c", "to"} {
		accounts = append(accounts, storetest.Account(name, nil))
	}
	b.Put(accounts...)
	works := map[string]*mongostore.Attempt{}
	for _, name := range []string{"a", "poor", "b", "locked", "c"} {
		works[name] = b.Claimed("by "+name, b.Leg(name, -5), b.Leg("to", 5))
	}
	var rs requests
	for _, name := range []string{"a", "poor", "b", "locked", "c"} {
		rs.add(works[name], b.Ready(works[name])[0])
	}
	unlock := b.lock("locked")
	b.performLimited(3*time.Second, rs)
	for _, call := range rs {
		require.Equal(t, protocol.Unknown, call.Answer.Result)
		require.True(t, wire.HeldUp(call.Cause), "%v", call.Cause)
	}
	require.Equal(t, []string{"by locked"}, rs.suspects())

	var alone requests
	alone.add(works["locked"], rs[3].Op)
	b.performLimited(2*time.Second, alone)
	require.Equal(t, []string{"by locked"}, alone.suspects(), "a single one is")
	unlock()

	for _, kind := range []protocol.Kind{protocol.Settle, protocol.Undo} {
		var prepared, cleared requests
		for _, name := range []string{"a", "locked", "c"} {
			a := b.Claimed(kind.String()+name, b.Leg(name, -5), b.Leg("to", 5))
			prepared.add(a, b.Ready(a)[0])
			cleared.add(a, protocol.Operation{Kind: kind, Participant: 0, ReplaceFence: kind == protocol.Undo})
		}
		require.Equal(t, all(3, protocol.Applied), b.batch(prepared))
		unlock = b.lock("locked")
		b.performLimited(2*time.Second, cleared)
		require.Equal(t, []string{kind.String() + "locked"}, cleared.suspects())
		unlock()
	}

	var fences requests
	for _, name := range []string{"a", "locked", "c"} {
		fences.add(b.Claimed("fence "+name, b.Leg(name, -5), b.Leg("to", 5)), protocol.Operation{Kind: protocol.FenceOnly})
	}
	unlock = b.lock("locked")
	b.performLimited(2*time.Second, fences)
	require.Equal(t, []string{"fence locked"}, fences.suspects())
	unlock()
}

// Each write asks the server to give up a second before the client does.
// This holds through a client with a timeout of its own, for which the driver would ask
// by itself.
func TestServerGivesUpFirst(t *testing.T) {
	for _, client := range []*options.ClientOptions{options.Client(), options.Client().SetTimeout(30 * time.Second)} {
		b := newBankOf(t, client)
		b.Put(storetest.Account("alice", nil), storetest.Account("bob", nil))
		a := b.Claimed("t", b.Leg("alice", -5), b.Leg("bob", 5))
		unlock := b.lock("alice")
		var rs requests
		rs.add(a, b.Ready(a)[0])
		ctx, cancel := b.Store.Catalog.WithLimit(t.Context(), 4*time.Second)
		b.Store.Perform(ctx, mongostore.LaneOf(a, rs[0].Op), rs)
		require.NoError(t, ctx.Err(), "the client has not given up")
		cancel()
		require.True(t, wire.HeldUp(rs[0].Cause))
		require.True(t, wire.GaveUp(rs[0].Cause))
		require.False(t, wire.Silent(rs[0].Cause))
		unlock()
	}
}

// A write that isn't answered in time says so, and wraps the deadline's error, because it
// was not cancelled.
func TestSilentServer(t *testing.T) {
	b := newBank(t)
	b.Put(storetest.Account("alice", nil), storetest.Account("bob", nil))
	a := b.Claimed("t", b.Leg("alice", -5), b.Leg("bob", 5))
	stop := b.Failing(1, []string{"update"}, bson.M{"blockConnection": true, "blockTimeMS": 3000})
	defer stop()
	var rs requests
	rs.add(a, b.Ready(a)[0])
	b.performLimited(time.Second, rs)
	require.Equal(t, protocol.Unknown, rs[0].Answer.Result)
	require.True(t, wire.Silent(rs[0].Cause))
	require.False(t, wire.GaveUp(rs[0].Cause))
	require.ErrorIs(t, rs[0].Cause, context.DeadlineExceeded)
	require.NotErrorIs(t, rs[0].Cause, context.Canceled)
	require.ErrorContains(t, rs[0].Cause, "no answer in time")
}
