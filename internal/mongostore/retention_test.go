package mongostore

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/deployment"
	"github.com/mongotransfer/transfer/internal/protocol"
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
	for name, retention := range map[string]time.Duration{"kept for a day": oneDay, "kept for good": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBankKeeping(t, retention)
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
				if retention == 0 {
					assert.NotContains(t, asMap(t, b.raw("transfers", w.Transfer.ID)), "purgeAt")
					continue
				}
				b.requirePurge(w.Transfer.ID, retention)
			}
			assert.Equal(t, retention == 0, len(b.retentions()) == 0)
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
		at := stamp{now: time.Now().Add(-age), fresh: true, purge: time.Now().Add(time.Hour - age)}
		b.store.changeAt(t.Context(), rs, at)
		var results []protocol.Result
		for _, r := range rs {
			results = append(results, r.Answer.Result)
		}
		return results
	}
	assert.Equal(t, all(2, protocol.NotMatched), stamped(deployment.FinishLimit+5*time.Second, works[:2]...))
	assert.Equal(t, all(1, protocol.NotMatched), stamped(deployment.FinishLimit+5*time.Second, works[2]))
	for _, w := range works {
		document := asMap(t, b.raw("transfers", w.Transfer.ID))
		assert.Equal(t, "Committed", document["state"])
		assert.NotContains(t, document, "purgeAt")
	}
	assert.Equal(t, all(2, protocol.Applied), stamped(deployment.FinishLimit-20*time.Second, works[:2]...))
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
	b.store.Clock.Correct(time.Now().Add(-deployment.FinishLimit - 30*time.Second))
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

// Every retention that is used is stored before it purges anything, once per store, with the time of its first use.
func TestRetentionsAreDeclared(t *testing.T) {
	t.Parallel()
	b := newBankKeeping(t, oneDay)
	first := b.retentions()
	require.Len(t, first, 1)
	assert.WithinDuration(t, time.Now(), first[oneDay.Milliseconds()], time.Minute)
	b.log.take()
	require.NoError(t, b.store.Connect(t.Context()))
	assert.Empty(t, b.log.take(), "it is known")

	for range 3 {
		require.NoError(t, b.another(keeping(oneDay)).Connect(t.Context()))
	}
	assert.Equal(t, first, b.retentions(), "the first use counts")
	assert.EqualValues(t, 1, asMap(t, b.raw("transfers.retention", oneDay.Milliseconds()))["coordinators"], "one write is enough")
	require.NoError(t, b.another(keeping(time.Hour)).Connect(t.Context()))
	require.NoError(t, b.another().Connect(t.Context()))
	all := b.retentions()
	assert.Len(t, all, 2)
	assert.Contains(t, all, time.Hour.Milliseconds())
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

// retentions returns what is stored of retentions.
func (b *bank) retentions() map[int64]time.Time {
	b.t.Helper()
	var documents []deployment.UsedRetention
	cursor, err := b.db.Collection("transfers.retention").Find(b.t.Context(), bson.D{})
	require.NoError(b.t, err)
	require.NoError(b.t, cursor.All(b.t.Context(), &documents))
	used := map[int64]time.Time{}
	for _, d := range documents {
		used[d.Milliseconds] = d.Since
	}
	return used
}

// Where it can't be stored which retention is in use, nothing is purged: the work is refused, and a finish that goes out all the same
// keeps its transfer.
func TestUndeclaredRetentionPurgesNothing(t *testing.T) {
	t.Parallel()
	b := newBank(t, keeping(oneDay))
	create := bson.D{{Key: "create", Value: "transfers.retention"}, {Key: "validator", Value: bson.M{"never": true}}}
	require.NoError(t, b.db.RunCommand(t.Context(), create).Err())
	require.ErrorIs(t, b.store.Connect(t.Context()), collections.ErrUnsupported)
	require.ErrorIs(t, b.store.Setup(t.Context()), collections.ErrUnsupported)
	w := b.committed("order")
	b.applied(w, finish(protocol.Success))
	assert.NotContains(t, asMap(t, b.raw("transfers", "order")), "purgeAt")
	assert.True(t, w.Transfer.PurgeAt.IsZero())

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, b.store.Connect(ended))
	repair := bson.D{{Key: "collMod", Value: "transfers.retention"}, {Key: "validator", Value: bson.M{}}}
	require.NoError(t, b.db.RunCommand(t.Context(), repair).Err())
	require.NoError(t, b.store.Connect(t.Context()))
	b.applied(b.committed("next"), finish(protocol.Success))
	b.requirePurge("next", oneDay)
}

// Any process can tell from when on the history is whole: since the shortest retention that can have purged anything by now, with a
// margin; all of it, where none can have.
func TestHistoryFrom(t *testing.T) {
	t.Parallel()
	origin := newBank(t)
	hour, week := time.Hour.Milliseconds(), 7*oneDay.Milliseconds()
	for name, row := range map[string]struct {
		used  map[int64]time.Duration // by milliseconds, how long ago it was first used
		whole time.Duration           // how far the history goes back; 0: all of it
	}{
		"none":                      {nil, 0},
		"first used just now":       {map[int64]time.Duration{hour: 0}, 0},
		"nothing is due yet":        {map[int64]time.Duration{hour: 54 * time.Minute}, 0},
		"the first is due":          {map[int64]time.Duration{hour: 56 * time.Minute}, 55 * time.Minute},
		"long in use":               {map[int64]time.Duration{hour: 100 * oneDay}, 55 * time.Minute},
		"a longer one before":       {map[int64]time.Duration{week: 100 * oneDay, hour: 10 * time.Minute}, 7*oneDay - deployment.HistoryMargin},
		"the shortest counts":       {map[int64]time.Duration{week: 100 * oneDay, hour: oneDay}, time.Hour - deployment.HistoryMargin},
		"the longer one is not due": {map[int64]time.Duration{week: 6 * oneDay, hour: oneDay}, time.Hour - deployment.HistoryMargin},
		"neither is due":            {map[int64]time.Duration{week: 6 * oneDay, hour: time.Minute}, 0},
		"shorter than is allowed":   {map[int64]time.Duration{1000: oneDay}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t)
			for _, milliseconds := range slices.Sorted(maps.Keys(row.used)) {
				b.putIn("transfers.retention", bson.M{"_id": milliseconds, "since": time.Now().Add(-row.used[milliseconds])})
			}
			from, err := b.store.HistoryFrom(t.Context())
			require.NoError(t, err)
			if name == "shorter than is allowed" {
				assert.True(t, from.After(time.Now()), "nothing is certain")
				return
			}
			if row.whole == 0 {
				assert.Zero(t, from)
				return
			}
			assert.WithinDuration(t, time.Now().Add(-row.whole), from, 30*time.Second)
		})
	}
	origin.putIn("transfers.retention", bson.M{"_id": hour, "since": "long ago"})
	_, err := origin.store.HistoryFrom(t.Context())
	require.ErrorContains(t, err, "transfers.retention")
}

// What is known of retentions is used for a minute, which is safe: one that came into use since purges nothing for an hour.
func TestHistoryFromIsRemembered(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.forgetTime()
	b.log.take()
	for range 3 {
		from, err := b.store.HistoryFrom(t.Context())
		require.NoError(t, err)
		require.Zero(t, from)
	}
	assert.Equal(t, []string{"find"}, names(b.log.take()))
	b.putIn("transfers.retention", bson.M{"_id": time.Hour.Milliseconds(), "since": time.Now().Add(-oneDay)})
	b.store.Retention.Read = time.Now().Add(-deployment.RetentionAge)
	from, err := b.store.HistoryFrom(t.Context())
	require.NoError(t, err)
	require.NotZero(t, from)
	assert.Less(t, deployment.RetentionAge, deployment.ShortestRetention-deployment.HistoryMargin)
	b.checkReads(b.log.take())
}

// checkReads requires that all finds read what a majority has stored, from the primary.
func (b *bank) checkReads(commands []*command) {
	b.t.Helper()
	for _, c := range commands {
		if c.name == "find" {
			assert.Equal(b.t, "majority", c.text("readConcern", "level"))
			assert.Contains(b.t, primaryModes(), c.text("$readPreference", "mode"))
		}
	}
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

// The index by which the server purges is one of a date and of nothing else: what has none is never removed.
func TestPurgeIndex(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	require.NoError(t, b.store.Setup(t.Context()))
	specs, err := b.db.Collection("transfers").Indexes().ListSpecifications(t.Context())
	require.NoError(t, err)
	found := false
	for _, spec := range specs {
		if spec.Name != "purge" {
			assert.Nil(t, spec.ExpireAfterSeconds, spec.Name)
			continue
		}
		found = true
		require.NotNil(t, spec.ExpireAfterSeconds)
		assert.Zero(t, *spec.ExpireAfterSeconds)
		assert.JSONEq(t, `{"purgeAt": {"$numberInt": "1"}}`, spec.KeysDocument.String())
	}
	assert.True(t, found)
}
