package mongostore

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/retention"
)

const oneDay = 24 * time.Hour

func keeping(d time.Duration) func(*config) { return func(c *config) { c.Retention = d } }

// newBankKeeping returns a bank that keeps final transfers for so long.
func newBankKeeping(t *testing.T, d time.Duration) *bank {
	t.Helper()
	b := newBank(t, keeping(d))
	require.NoError(t, b.store.Connect(t.Context()))
	return b
}

// purgeAt returns when a transfer is purged, and false if it isn't.
func (b *bank) purgeAt(id string) (time.Time, bool) {
	b.t.Helper()
	at, ok := asMap(b.t, b.raw("transfers", id))["purgeAt"].(bson.DateTime)
	return at.Time(), ok
}

func (b *bank) requirePurge(id string, after time.Duration) {
	b.t.Helper()
	at, ok := b.purgeAt(id)
	require.True(b.t, ok, "%s is kept for good", id)
	require.WithinDuration(b.t, time.Now().Add(after), at, time.Minute)
}

// The finish, and no other write, says when a transfer is purged, in either end state, alone or with others, which are one
// statement still. Without a retention nobody says so.
func TestFinishDatesThePurge(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]time.Duration{"kept for a day": oneDay, "kept for good": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBankKeeping(t, keep)
			works := b.crowd(6, 10)
			commit, refuse := decide(protocol.Committed, 1), decide(protocol.Rollback, 1)
			commit.Clean = true
			initiated := b.work("initiated", b.leg("alice", -10))
			_, err := b.store.InsertInitiated(t.Context(), &initiated.Transfer)
			require.NoError(t, err)
			b.applied(initiated, claim(protocol.CancelInitiated))
			assert.Equal(t, all(6, protocol.Applied), b.batch(append(of(commit, works[:3]...), of(refuse, works[3:]...)...)))
			works[0].Threshold = 0
			b.applied(works[0], claim(protocol.TakeOver))
			for _, w := range append(works, initiated) {
				assert.NotContains(t, asMap(t, b.raw("transfers", w.Transfer.ID)), "purgeAt")
			}

			b.log.take()
			rs := append(of(finish(protocol.Success), works[:2]...), of(finish(protocol.Fail), works[3:5]...)...)
			assert.Equal(t, all(4, protocol.Applied), b.batch(rs))
			assert.Equal(t, []int{2}, b.statements())
			b.applied(works[2], finish(protocol.Success))
			b.applied(works[5], finish(protocol.Fail))
			b.applied(initiated, finish(protocol.Fail))
			for _, w := range append(works, initiated) {
				stored, _, err := b.store.ReadTransfer(t.Context(), w.Transfer.ID)
				require.NoError(t, err)
				assert.Equal(t, stored.PurgeAt, w.Transfer.PurgeAt)
				if keep == 0 {
					assert.NotContains(t, asMap(t, b.raw("transfers", w.Transfer.ID)), "purgeAt")
					continue
				}
				b.requirePurge(w.Transfer.ID, keep)
			}
			assert.Equal(t, keep == 0, b.retentions() == 0)
		})
	}
}

// The time of the purge is the server's, whatever the process's clock says.
func TestPurgeGoesByTheServersClock(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"a year ahead": 8760 * time.Hour, "a year behind": -8760 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, keeping(time.Hour), func(c *config) { c.Now = func() time.Time { return time.Now().Add(off) } })
			require.NoError(t, b.store.Connect(t.Context()))
			w := b.committed("order")
			b.applied(w, finish(protocol.Success))
			b.requirePurge("order", time.Hour)
		})
	}
}

// A finish that names the time of the purge counts only while that time is right. One that arrives late would purge its transfer too
// soon; it does nothing, and its execution sends another one.
func TestLateFinishDoesNothing(t *testing.T) {
	t.Parallel()
	b := newBankKeeping(t, time.Hour)
	works := b.crowd(3, 10)
	assert.Equal(t, all(3, protocol.Applied), b.batch(of(decide(protocol.Committed, 1), works...)))
	stamped := func(age time.Duration, works ...*Attempt) []protocol.Result {
		rs := of(finish(protocol.Success), works...)
		at := stamp{now: time.Now().Add(-age), fresh: true, purgeAt: time.Now().Add(time.Hour - age)}
		b.store.changeAt(t.Context(), rs, at)
		var results []protocol.Result
		for _, r := range rs {
			results = append(results, r.Answer.Result)
		}
		return results
	}
	assert.Equal(t, all(2, protocol.NotMatched), stamped(retention.FinishLimit+5*time.Second, works[:2]...))
	assert.Equal(t, all(1, protocol.NotMatched), stamped(retention.FinishLimit+5*time.Second, works[2]))
	for _, w := range works {
		document := asMap(t, b.raw("transfers", w.Transfer.ID))
		assert.Equal(t, "Committed", document["state"])
		assert.NotContains(t, document, "purgeAt")
	}
	assert.Equal(t, all(2, protocol.Applied), stamped(retention.FinishLimit-20*time.Second, works[:2]...))
	b.applied(works[2], finish(protocol.Success))
	b.requirePurge("t2", time.Hour)
}

// A server that is ahead of the time that was told for it, by more than a finish may be
// late, ends its transfers all the same: it dates the purge itself. What the caller is
// told is what is stored.
func TestFinishOfAServerThatIsAhead(t *testing.T) {
	t.Parallel()
	b := newBankKeeping(t, time.Hour)
	b.forgetTime()
	b.store.Clock.Correct(time.Now().Add(-retention.FinishLimit - 30*time.Second))
	works := b.crowd(4, 10)
	assert.Equal(t, all(2, protocol.Applied), b.batch(of(decide(protocol.Committed, 1), works[:2]...)))
	assert.Equal(t, all(2, protocol.Applied), b.batch(of(decide(protocol.Rollback, 1), works[2:]...)))
	rs := append(of(finish(protocol.Success), works[:2]...), of(finish(protocol.Fail), works[2:]...)...)
	assert.Equal(t, all(4, protocol.NotMatched), b.batch(rs))
	ahead := time.Now().Add(30 * time.Minute).UTC().Truncate(time.Millisecond)
	b.change("transfers", "t0", bson.M{"$set": bson.M{"lastModified": ahead, "stuck": bson.M{"code": "unwritable"}}})
	again := append(of(finish(protocol.Success), works[:2]...), of(finish(protocol.Fail), works[2:]...)...)
	assert.Equal(t, all(4, protocol.Applied), b.batch(again))
	for i, w := range works {
		stored, _, err := b.store.ReadTransfer(t.Context(), w.Transfer.ID)
		require.NoError(t, err)
		assert.True(t, stored.State.Final())
		assert.False(t, stored.Open)
		assert.Nil(t, stored.Stuck)
		assert.Equal(t, stored, w.Transfer)
		if i > 0 {
			b.requirePurge(w.Transfer.ID, time.Hour)
		}
	}
	at, _ := b.purgeAt("t0")
	assert.WithinDuration(t, ahead.Add(time.Hour), at, 0, "the clock that has stamped it is the one that removes it")
	assert.Equal(t, all(4, protocol.NotMatched), b.batch(again), "final is final")
}

// A finish with a purge waits for the server's time, and isn't sent without it; what goes out with it doesn't wait. A clock that was
// set, or a machine that was asleep, makes the time unknown.
func TestFinishAsksForTheTime(t *testing.T) {
	t.Parallel()
	b := newBankKeeping(t, time.Hour)
	works := b.crowd(3, 10)
	b.applied(works[0], decide(protocol.Committed, 1))
	b.forgetTime()
	for range collections.MaxAsking { // as if hello were never answered
		b.store.Asking <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	rs := append(of(finish(protocol.Success), works[0]), of(decide(protocol.Rollback, 1), works[1:]...)...)
	b.store.Perform(ctx, LaneOf(works[0], finish(protocol.Success)), rs)
	assert.Equal(t, protocol.NotSent, rs[0].Answer.Result)
	require.ErrorIs(t, rs[0].Cause, context.DeadlineExceeded)
	assert.Equal(t, "Committed", asMap(t, b.raw("transfers", "t0"))["state"])
	for _, r := range rs[1:] {
		assert.Equal(t, protocol.Applied, r.Answer.Result)
	}
	for range collections.MaxAsking {
		<-b.store.Asking
	}
	b.applied(works[0], finish(protocol.Success))
	b.requirePurge("t0", time.Hour)
}

// A finish whose server does not tell its time keeps no transfer for good, by going out without a purge: it is sent later.
func TestFinishIsNotSentWithoutTheTime(t *testing.T) {
	b := newBankKeeping(t, time.Hour)
	w := b.committed("order")
	b.forgetTime()
	stop := b.failing(1000, []string{"hello"}, bson.M{"errorCode": 50})
	assert.Equal(t, protocol.NotSent, b.on(w, finish(protocol.Success)).Result)
	assert.Equal(t, "Committed", asMap(t, b.raw("transfers", "order"))["state"])
	stop()
	b.applied(w, finish(protocol.Success))
	b.requirePurge("order", time.Hour)
}

// forgetTime makes the correction of the process's clock an old one.
func (b *bank) forgetTime() {
	b.store.Clock.Mu.Lock()
	defer b.store.Clock.Mu.Unlock()
	b.store.Clock.Read = time.Now().Add(-time.Hour)
}

// The writes of a retention and of an obstacle are acknowledged by a journaled majority, whatever the client's settings are.
func TestRetentionAndObstaclesAreMajorityWrites(t *testing.T) {
	t.Parallel()
	b := newBankKeeping(t, oneDay)
	b.note(gone(b.committed("order")))
	for _, c := range b.log.take() {
		if c.name != "update" {
			continue
		}
		concern, _ := c.body.Lookup("writeConcern").DocumentOK()
		assert.Equal(t, encode(bson.D{{Key: "w", Value: "majority"}, {Key: "j", Value: true}}), concern, "%s", c.body)
	}
}

// another returns another store over the same collections.
func (b *bank) another(changes ...func(*config)) *rooms {
	b.t.Helper()
	ledgers := map[string]*mongo.Collection{}
	for name, l := range b.store.Ledgers {
		ledgers[name] = l.Commands
	}
	config := config{Transfers: b.store.Transfers, Ledgers: ledgers, Fields: standardFields(), MarkerLimit: 100, Now: time.Now}
	for _, change := range changes {
		change(&config)
	}
	s, err := newRooms(config)
	require.NoError(b.t, err)
	return s
}

// retentions counts the retentions that are stored.
func (b *bank) retentions() int64 {
	b.t.Helper()
	n, err := b.db.Collection("transfers.retention").CountDocuments(b.t.Context(), bson.D{})
	require.NoError(b.t, err)
	return n
}
