package retention_test

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
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/retention"
	"github.com/mongotransfer/transfer/internal/storetest"
)

const oneDay = 24 * time.Hour

// keeping changes a configuration so that final transfers are kept for a while.
func keeping(d time.Duration) func(*storetest.Config) {
	return func(c *storetest.Config) { c.Retention = d }
}

// newBankKeeping returns a bank that keeps final transfers for a while, and has said so.
func newBankKeeping(t *testing.T, d time.Duration) *storetest.Bank {
	t.Helper()
	b := storetest.New(t, keeping(d))
	require.NoError(t, b.Store.Connect(t.Context()))
	return b
}

// committed returns an attempt at a transfer that it has stored as Committed.
func committed(b *storetest.Bank, id string) *mongostore.Attempt {
	b.T.Helper()
	a := b.Claimed(id, b.Leg("alice", -60), b.Leg("bob", 60))
	b.Applied(a, storetest.Decide(protocol.Committed, 1))
	return a
}

// Each retention is stored before it purges anything, once per store, with the time of
// its first use.
func TestRetentionsAreDeclared(t *testing.T) {
	t.Parallel()
	b := newBankKeeping(t, oneDay)
	first := retentions(b)
	require.Len(t, first, 1)
	assert.WithinDuration(t, time.Now(), first[oneDay.Milliseconds()], time.Minute)
	b.Log.Take()
	require.NoError(t, b.Store.Connect(t.Context()))
	assert.Empty(t, b.Log.Take(), "it is known")

	for range 3 {
		require.NoError(t, another(b, keeping(oneDay)).Connect(t.Context()))
	}
	assert.Equal(t, first, retentions(b), "the first use counts")
	assert.EqualValues(t, 1, storetest.AsMap(t, b.Raw("transfers.retention", oneDay.Milliseconds()))["coordinators"], "one write is enough")
	require.NoError(t, another(b, keeping(time.Hour)).Connect(t.Context()))
	require.NoError(t, another(b).Connect(t.Context()))
	all := retentions(b)
	assert.Len(t, all, 2)
	assert.Contains(t, all, time.Hour.Milliseconds())
}

// another returns other rooms over the same collections.
func another(b *storetest.Bank, changes ...func(*storetest.Config)) *storetest.Rooms {
	b.T.Helper()
	ledgers := map[string]*mongo.Collection{}
	for name, l := range b.Store.Ledgers {
		ledgers[name] = l.Commands
	}
	config := storetest.Config{
		Transfers: b.Store.Transfers, Ledgers: ledgers, Fields: storetest.StandardFields(), MarkerLimit: 100, Now: time.Now,
	}
	for _, change := range changes {
		change(&config)
	}
	s, err := storetest.NewRooms(config)
	require.NoError(b.T, err)
	return s
}

// retentions returns the first use of each stored retention, by its milliseconds.
func retentions(b *storetest.Bank) map[int64]time.Time {
	b.T.Helper()
	var documents []retention.UsedRetention
	cursor, err := b.DB.Collection("transfers.retention").Find(b.T.Context(), bson.D{})
	require.NoError(b.T, err)
	require.NoError(b.T, cursor.All(b.T.Context(), &documents))
	used := map[int64]time.Time{}
	for _, d := range documents {
		used[d.Milliseconds] = d.Since
	}
	return used
}

// If a retention can't be stored as used, nothing is purged: work is refused, and a
// finish that is sent all the same keeps its transfer for good.
func TestUndeclaredRetentionPurgesNothing(t *testing.T) {
	t.Parallel()
	b := storetest.New(t, keeping(oneDay))
	create := bson.D{{Key: "create", Value: "transfers.retention"}, {Key: "validator", Value: bson.M{"never": true}}}
	require.NoError(t, b.DB.RunCommand(t.Context(), create).Err())
	require.ErrorIs(t, b.Store.Connect(t.Context()), collections.ErrUnsupported)
	require.ErrorIs(t, b.Store.Setup(t.Context()), collections.ErrUnsupported)
	a := committed(b, "order")
	b.Applied(a, storetest.Finish(protocol.Success))
	assert.NotContains(t, storetest.AsMap(t, b.Raw("transfers", "order")), "purgeAt")
	assert.True(t, a.Transfer.PurgeAt.IsZero())

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, b.Store.Connect(ended))
	repair := bson.D{{Key: "collMod", Value: "transfers.retention"}, {Key: "validator", Value: bson.M{}}}
	require.NoError(t, b.DB.RunCommand(t.Context(), repair).Err())
	require.NoError(t, b.Store.Connect(t.Context()))
	b.Applied(committed(b, "next"), storetest.Finish(protocol.Success))
	purgeAt, isTime := b.Raw("transfers", "next").Lookup("purgeAt").TimeOK()
	require.True(t, isTime, "it is kept for good")
	require.WithinDuration(t, time.Now().Add(oneDay), purgeAt, time.Minute)
}

// Any process knows since when the history is whole. It reaches back as far as the
// shortest retention that can have purged anything by now, less a margin. All of it is
// whole where none can have.
func TestHistoryFrom(t *testing.T) {
	t.Parallel()
	origin := storetest.New(t)
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
		"a longer one before":       {map[int64]time.Duration{week: 100 * oneDay, hour: 10 * time.Minute}, 7*oneDay - retention.HistoryMargin},
		"the shortest counts":       {map[int64]time.Duration{week: 100 * oneDay, hour: oneDay}, time.Hour - retention.HistoryMargin},
		"the longer one is not due": {map[int64]time.Duration{week: 6 * oneDay, hour: oneDay}, time.Hour - retention.HistoryMargin},
		"neither is due":            {map[int64]time.Duration{week: 6 * oneDay, hour: time.Minute}, 0},
		"shorter than is allowed":   {map[int64]time.Duration{1000: oneDay}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.New(t)
			for _, milliseconds := range slices.Sorted(maps.Keys(row.used)) {
				b.PutIn("transfers.retention", bson.M{"_id": milliseconds, "since": time.Now().Add(-row.used[milliseconds])})
			}
			from, err := b.Store.HistoryFrom(t.Context())
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
	origin.PutIn("transfers.retention", bson.M{"_id": hour, "since": "long ago"})
	_, err := origin.Store.HistoryFrom(t.Context())
	require.ErrorContains(t, err, "transfers.retention")
}

// The retentions that were read are used for a minute. This is safe: a retention that
// came into use since purges nothing for an hour.
func TestHistoryFromIsRemembered(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	b.Log.Take()
	for range 3 {
		from, err := b.Store.HistoryFrom(t.Context())
		require.NoError(t, err)
		require.Zero(t, from)
	}
	assert.Equal(t, []string{"find"}, storetest.Names(b.Log.Take()))
	b.PutIn("transfers.retention", bson.M{"_id": time.Hour.Milliseconds(), "since": time.Now().Add(-oneDay)})
	b.Store.AgeReading()
	from, err := b.Store.HistoryFrom(t.Context())
	require.NoError(t, err)
	require.NotZero(t, from)
	assert.Less(t, retention.ReadingAge, retention.Shortest-retention.HistoryMargin)
	checkReads(b, b.Log.Take())
}

// checkReads requires that all finds read what a majority has stored, from the primary.
func checkReads(b *storetest.Bank, commands []*storetest.Command) {
	b.T.Helper()
	for _, c := range commands {
		if c.Name == "find" {
			assert.Equal(b.T, "majority", c.Text("readConcern", "level"))
			assert.Contains(b.T, storetest.PrimaryModes(), c.Text("$readPreference", "mode"))
		}
	}
}
