package queries_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
)

const oneDay = 24 * time.Hour

// initiated stores a transfer for a worker.
func initiated(b *storetest.Bank, id string, notBefore time.Time) {
	b.T.Helper()
	a := b.Attempt(id, b.Leg("alice", -1), b.Leg("bob", 1))
	a.Transfer.NotBefore = notBefore
	result, err := b.Store.InsertInitiated(b.T.Context(), &a.Transfer)
	require.NoError(b.T, err)
	require.Equal(b.T, protocol.Applied, result)
}

// waiting returns the IDs of the transfers that a worker finds.
func waiting(b *storetest.Bank) []string {
	b.T.Helper()
	var found []string
	for transfer, err := range b.Store.Initiated(b.T.Context(), 0) {
		require.NoError(b.T, err)
		found = append(found, transfer.ID)
	}
	return found
}

// The server's clock decides whether the time of a transfer has come. The process's may
// be off by a year. Transfers that had to wait come first, in the order of their times,
// and then the others, in the order in which they were stored.
func TestScheduledGoByTheServersClock(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"right": 0, "a year ahead": 365 * oneDay, "a year behind": -365 * oneDay} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.New(t, func(c *storetest.Config) { c.Now = func() time.Time { return time.Now().Add(off) } })
			initiated(b, "stored first", time.Time{})
			initiated(b, "tomorrow", time.Now().Add(oneDay))
			initiated(b, "a minute ago", time.Now().Add(-time.Minute))
			initiated(b, "in a minute", time.Now().Add(time.Minute))
			initiated(b, "an hour ago", time.Now().Add(-time.Hour))
			b.Change("transfers", "stored first", bson.M{"$set": bson.M{"createdAt": time.Now().Add(-oneDay)}})
			initiated(b, "stored second", time.Time{})
			assert.Equal(t, []string{"an hour ago", "a minute ago", "stored first", "stored second"}, waiting(b))
		})
	}
}

// A worker examines only what is due: neither transfers that are scheduled for later, or
// were put off because they lack funds, however many there are, nor finished ones.
func TestSearchForWorkSkipsWhatIsLater(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	require.NoError(t, b.Store.Setup(t.Context()))
	var others []any
	for i := range 2000 {
		later := bson.M{"_id": fmt.Sprint("later", i), "state": "Initiated", "open": true, "epoch": int64(0),
			"createdAt": time.Now(), "notBefore": time.Now().Add(time.Hour)}
		putOff := maps.Clone(later)
		maps.Copy(putOff, bson.M{"_id": fmt.Sprint("put off", i), "fundsUntil": time.Now().Add(time.Hour), "postponed": int64(9)})
		done := bson.M{"_id": fmt.Sprint("done", i), "state": "Success", "epoch": int64(1), "createdAt": time.Now()}
		others = append(others, later, putOff, done)
	}
	_, err := b.DB.Collection("transfers").InsertMany(t.Context(), others)
	require.NoError(t, err)
	for i := range 3 {
		initiated(b, fmt.Sprint("due", i), time.Now().Add(-time.Hour+time.Duration(i)*time.Minute))
		initiated(b, fmt.Sprint("at once", i), time.Time{})
	}
	b.Log.Take()
	assert.Equal(t, []string{"due0", "due1", "due2", "at once0", "at once1", "at once2"}, waiting(b))
	finds := b.Log.Take()
	require.Len(t, finds, 2)
	for _, find := range finds {
		examined := b.Examined(find)
		assert.LessOrEqual(t, examined, int64(4), "%s", find.Body)
		plan := b.Explain(find)
		assert.Contains(t, plan, `"indexName": "unfinished"`)
		assert.NotContains(t, plan, `"stage": "SORT"`, "each search would sort a long queue")
	}
}

// Unfinished transfers are listed by their IDs, with those that somebody has worked on
// since, but without what was created within a while.
func TestUnfinishedIDs(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	for id, created := range map[string]time.Duration{"a": -oneDay, "b": -time.Minute, "c": -oneDay, "d": oneDay, "e": time.Minute} {
		b.Change("transfers", b.Claimed(id, b.Leg("alice", -60)).Transfer.ID, bson.M{"$set": bson.M{"createdAt": time.Now().Add(created)}})
	}
	initiated(b, "f", time.Time{})
	holding(b, "g", b.Leg("alice", -60))
	for _, row := range []struct {
		beyond string
		while  time.Duration
		limit  int
		want   []string
	}{
		{"", 0, 10, []string{"a", "b", "c", "d", "e"}},
		{"a", 0, 2, []string{"b", "c"}},
		{"", time.Hour, 10, []string{"a", "c", "d"}},
		{"a", time.Hour, 10, []string{"c", "d"}},
	} {
		ids, err := b.Store.UnfinishedIDs(t.Context(), row.beyond, row.while, row.limit)
		require.NoError(t, err)
		require.Equal(t, row.want, ids, "%+v", row)
	}
}
