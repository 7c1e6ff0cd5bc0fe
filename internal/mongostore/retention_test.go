package mongostore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/retention"
	"github.com/mongotransfer/transfer/internal/storetest"
)

const oneDay = 24 * time.Hour

func keeping(d time.Duration) func(*storetest.Config) {
	return func(c *storetest.Config) { c.Retention = d }
}

// newBankKeeping returns a bank that keeps final transfers for d.
func newBankKeeping(t *testing.T, d time.Duration) *bank {
	t.Helper()
	b := newBank(t, keeping(d))
	require.NoError(t, b.Store.Connect(t.Context()))
	return b
}

// purgeAt returns when a transfer is purged, and false if it isn't.
func (b *bank) purgeAt(id string) (time.Time, bool) {
	b.T.Helper()
	at, ok := storetest.AsMap(b.T, b.Raw("transfers", id))["purgeAt"].(bson.DateTime)
	return at.Time(), ok
}

func (b *bank) requirePurge(id string, after time.Duration) {
	b.T.Helper()
	at, ok := b.purgeAt(id)
	require.True(b.T, ok, "%s is kept for good", id)
	require.WithinDuration(b.T, time.Now().Add(after), at, time.Minute)
}

// Only the finish stores when a transfer is purged, in either end state, alone or with
// others in one statement.
// Without a retention no time is stored.
func TestFinishDatesThePurge(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]time.Duration{"kept for a day": oneDay, "kept for good": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBankKeeping(t, keep)
			attempts := b.crowd(6, 10)
			commit, refuse := storetest.Decide(protocol.Committed, 1), storetest.Decide(protocol.Rollback, 1)
			commit.Clean = true
			initiated := b.Attempt("initiated", b.Leg("alice", -10))
			_, err := b.Store.InsertInitiated(t.Context(), &initiated.Transfer)
			require.NoError(t, err)
			b.Applied(initiated, storetest.Claim(protocol.CancelInitiated))
			assert.Equal(t, all(6, protocol.Applied), b.batch(append(of(commit, attempts[:3]...), of(refuse, attempts[3:]...)...)))
			attempts[0].Threshold = 0
			b.Applied(attempts[0], storetest.Claim(protocol.TakeOver))
			for _, a := range append(attempts, initiated) {
				assert.NotContains(t, storetest.AsMap(t, b.Raw("transfers", a.Transfer.ID)), "purgeAt")
			}

			b.Log.Take()
			rs := append(of(storetest.Finish(protocol.Success), attempts[:2]...), of(storetest.Finish(protocol.Fail), attempts[3:5]...)...)
			assert.Equal(t, all(4, protocol.Applied), b.batch(rs))
			assert.Equal(t, []int{2}, b.statements())
			b.Applied(attempts[2], storetest.Finish(protocol.Success))
			b.Applied(attempts[5], storetest.Finish(protocol.Fail))
			b.Applied(initiated, storetest.Finish(protocol.Fail))
			for _, a := range append(attempts, initiated) {
				stored, _, err := b.Store.ReadTransfer(t.Context(), a.Transfer.ID)
				require.NoError(t, err)
				assert.Equal(t, stored.PurgeAt, a.Transfer.PurgeAt)
				if keep == 0 {
					assert.NotContains(t, storetest.AsMap(t, b.Raw("transfers", a.Transfer.ID)), "purgeAt")
					continue
				}
				b.requirePurge(a.Transfer.ID, keep)
			}
			assert.Equal(t, keep == 0, b.retentions() == 0)
		})
	}
}

// The time of the purge is the server's, whatever the process's clock shows.
func TestPurgeGoesByTheServersClock(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"a year ahead": 8760 * time.Hour, "a year behind": -8760 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, keeping(time.Hour), func(c *storetest.Config) { c.Now = func() time.Time { return time.Now().Add(off) } })
			require.NoError(t, b.Store.Connect(t.Context()))
			a := b.committed("order")
			b.Applied(a, storetest.Finish(protocol.Success))
			b.requirePurge("order", time.Hour)
		})
	}
}

// A finish that names the time of the purge counts only while that time is right.
// A late one would purge its transfer too soon, so it does nothing, and its execution
// sends another one.
func TestLateFinishDoesNothing(t *testing.T) {
	t.Parallel()
	b := newBankKeeping(t, time.Hour)
	attempts := b.crowd(3, 10)
	assert.Equal(t, all(3, protocol.Applied), b.batch(of(storetest.Decide(protocol.Committed, 1), attempts...)))
	stamped := func(age time.Duration, attempts ...*mongostore.Attempt) []protocol.Result {
		rs := of(storetest.Finish(protocol.Success), attempts...)
		b.Store.ChangeAt(t.Context(), rs, time.Now().Add(-age), time.Now().Add(time.Hour-age))
		var results []protocol.Result
		for _, call := range rs {
			results = append(results, call.Answer.Result)
		}
		return results
	}
	assert.Equal(t, all(2, protocol.NotMatched), stamped(retention.FinishLimit+5*time.Second, attempts[:2]...))
	assert.Equal(t, all(1, protocol.NotMatched), stamped(retention.FinishLimit+5*time.Second, attempts[2]))
	for _, a := range attempts {
		document := storetest.AsMap(t, b.Raw("transfers", a.Transfer.ID))
		assert.Equal(t, "Committed", document["state"])
		assert.NotContains(t, document, "purgeAt")
	}
	assert.Equal(t, all(2, protocol.Applied), stamped(retention.FinishLimit-20*time.Second, attempts[:2]...))
	b.Applied(attempts[2], storetest.Finish(protocol.Success))
	b.requirePurge("t2", time.Hour)
}

// A server may be ahead of the time that was measured, by more than a finish may be late.
// It finishes its transfers all the same, because it sets the date of the purge itself.
// The caller gets what is stored.
func TestFinishOfAServerThatIsAhead(t *testing.T) {
	t.Parallel()
	b := newBankKeeping(t, time.Hour)
	b.forgetTime()
	b.Store.Clock.Correct(time.Now().Add(-retention.FinishLimit - 30*time.Second))
	attempts := b.crowd(4, 10)
	assert.Equal(t, all(2, protocol.Applied), b.batch(of(storetest.Decide(protocol.Committed, 1), attempts[:2]...)))
	assert.Equal(t, all(2, protocol.Applied), b.batch(of(storetest.Decide(protocol.Rollback, 1), attempts[2:]...)))
	rs := append(of(storetest.Finish(protocol.Success), attempts[:2]...), of(storetest.Finish(protocol.Fail), attempts[2:]...)...)
	assert.Equal(t, all(4, protocol.NotMatched), b.batch(rs))
	ahead := time.Now().Add(30 * time.Minute).UTC().Truncate(time.Millisecond)
	b.Change("transfers", "t0", bson.M{"$set": bson.M{"lastModified": ahead, "stuck": bson.M{"code": "unwritable"}}})
	again := append(of(storetest.Finish(protocol.Success), attempts[:2]...), of(storetest.Finish(protocol.Fail), attempts[2:]...)...)
	assert.Equal(t, all(4, protocol.Applied), b.batch(again))
	for i, a := range attempts {
		stored, _, err := b.Store.ReadTransfer(t.Context(), a.Transfer.ID)
		require.NoError(t, err)
		assert.True(t, stored.State.Final())
		assert.False(t, stored.Open)
		assert.Nil(t, stored.Stuck)
		assert.Equal(t, stored, a.Transfer)
		if i > 0 {
			b.requirePurge(a.Transfer.ID, time.Hour)
		}
	}
	at, _ := b.purgeAt("t0")
	assert.WithinDuration(t, ahead.Add(time.Hour), at, 0, "the clock that has stamped it is the one that removes it")
	assert.Equal(t, all(4, protocol.NotMatched), b.batch(again), "final is final")
}

// A finish with a purge waits for the server's time, and isn't sent without it. The calls
// around it don't wait.
// A clock that was set, or a machine that was asleep, makes the time unknown.
func TestFinishAsksForTheTime(t *testing.T) {
	t.Parallel()
	b := newBankKeeping(t, time.Hour)
	attempts := b.crowd(3, 10)
	b.Applied(attempts[0], storetest.Decide(protocol.Committed, 1))
	b.forgetTime()
	for range collections.MaxAsking { // as if hello were never answered
		b.Store.Asking <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	rs := append(of(storetest.Finish(protocol.Success), attempts[0]), of(storetest.Decide(protocol.Rollback, 1), attempts[1:]...)...)
	b.Store.Perform(ctx, mongostore.LaneOf(attempts[0], storetest.Finish(protocol.Success)), rs)
	assert.Equal(t, protocol.NotSent, rs[0].Answer.Result)
	require.ErrorIs(t, rs[0].Cause, context.DeadlineExceeded)
	assert.Equal(t, "Committed", storetest.AsMap(t, b.Raw("transfers", "t0"))["state"])
	for _, call := range rs[1:] {
		assert.Equal(t, protocol.Applied, call.Answer.Result)
	}
	for range collections.MaxAsking {
		<-b.Store.Asking
	}
	b.Applied(attempts[0], storetest.Finish(protocol.Success))
	b.requirePurge("t0", time.Hour)
}

// If the server's time is unknown, a finish doesn't go out without a purge, which would
// keep its transfer for good. It is sent later.
func TestFinishIsNotSentWithoutTheTime(t *testing.T) {
	b := newBankKeeping(t, time.Hour)
	a := b.committed("order")
	b.forgetTime()
	stop := b.Failing(1000, []string{"hello"}, bson.M{"errorCode": 50})
	assert.Equal(t, protocol.NotSent, b.On(a, storetest.Finish(protocol.Success)).Result)
	assert.Equal(t, "Committed", storetest.AsMap(t, b.Raw("transfers", "order"))["state"])
	stop()
	b.Applied(a, storetest.Finish(protocol.Success))
	b.requirePurge("order", time.Hour)
}

// forgetTime makes the process's measured clock difference old.
func (b *bank) forgetTime() {
	b.Store.Clock.Mu.Lock()
	defer b.Store.Clock.Mu.Unlock()
	b.Store.Clock.Read = time.Now().Add(-time.Hour)
}

// The writes of a retention and of an obstacle are acknowledged by a journaled majority,
// whatever the client's settings are.
func TestRetentionAndObstaclesAreMajorityWrites(t *testing.T) {
	t.Parallel()
	b := newBankKeeping(t, oneDay)
	b.note(gone(b.committed("order")))
	for _, c := range b.Log.Take() {
		if c.Name != "update" {
			continue
		}
		concern, _ := c.Body.Lookup("writeConcern").DocumentOK()
		assert.Equal(t, encode(bson.D{{Key: "w", Value: "majority"}, {Key: "j", Value: true}}), concern, "%s", c.Body)
	}
}

// another returns another store over the same collections.
func (b *bank) another(changes ...func(*storetest.Config)) *storetest.Rooms {
	b.T.Helper()
	ledgers := map[string]*mongo.Collection{}
	for name, l := range b.Store.Ledgers {
		ledgers[name] = l.Commands
	}
	config := storetest.Config{Transfers: b.Store.Transfers, Ledgers: ledgers, Fields: storetest.StandardFields(),
		MarkerLimit: 100, Now: time.Now}
	for _, change := range changes {
		change(&config)
	}
	s, err := storetest.NewRooms(config)
	require.NoError(b.T, err)
	return s
}

// retentions counts the retentions that are stored.
func (b *bank) retentions() int64 {
	b.T.Helper()
	n, err := b.DB.Collection("transfers.retention").CountDocuments(b.T.Context(), bson.D{})
	require.NoError(b.T, err)
	return n
}
