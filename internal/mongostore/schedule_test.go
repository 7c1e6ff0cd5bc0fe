package mongostore

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// initiated stores a transfer for a worker.
func (b *bank) initiated(id string, notBefore time.Time) {
	b.t.Helper()
	w := b.work(id, b.leg("alice", -1), b.leg("bob", 1))
	w.Transfer.NotBefore = notBefore
	result, err := b.store.InsertInitiated(b.t.Context(), &w.Transfer)
	require.NoError(b.t, err)
	require.Equal(b.t, protocol.Applied, result)
}

// waiting returns the transfers that a worker finds.
func (b *bank) waiting() []string {
	b.t.Helper()
	var found []string
	for transfer, err := range b.store.Initiated(b.t.Context(), 0) {
		require.NoError(b.t, err)
		found = append(found, transfer.ID)
	}
	return found
}

// Whether the time of a transfer has come is for the server's clock to say; the process's may be off by a year. What was due first comes
// first, and then what was stored first.
func TestScheduledGoByTheServersClock(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"right": 0, "a year ahead": 365 * oneDay, "a year behind": -365 * oneDay} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, func(c *config) { c.Now = func() time.Time { return time.Now().Add(off) } })
			b.initiated("stored first", time.Time{})
			b.initiated("tomorrow", time.Now().Add(oneDay))
			b.initiated("a minute ago", time.Now().Add(-time.Minute))
			b.initiated("in a minute", time.Now().Add(time.Minute))
			b.initiated("an hour ago", time.Now().Add(-time.Hour))
			b.change("transfers", "stored first", bson.M{"$set": bson.M{"createdAt": time.Now().Add(-oneDay)}})
			b.initiated("stored second", time.Time{})
			assert.Equal(t, []string{"an hour ago", "a minute ago", "stored first", "stored second"}, b.waiting())
		})
	}
}

// A worker looks only at what is due: neither at what is scheduled for later, however much that is, nor at what is done.
func TestSearchForWorkSkipsWhatIsLater(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	require.NoError(t, b.store.Setup(t.Context()))
	var others []any
	for i := range 2000 {
		later := bson.M{"_id": fmt.Sprint("later", i), "state": "Initiated", "open": true, "epoch": int64(0),
			"createdAt": time.Now(), "notBefore": time.Now().Add(time.Hour)}
		others = append(others, later, bson.M{"_id": fmt.Sprint("done", i), "state": "Success", "epoch": int64(1), "createdAt": time.Now()})
	}
	_, err := b.db.Collection("transfers").InsertMany(t.Context(), others)
	require.NoError(t, err)
	for i := range 3 {
		b.initiated(fmt.Sprint("due", i), time.Now().Add(-time.Hour+time.Duration(i)*time.Minute))
		b.initiated(fmt.Sprint("at once", i), time.Time{})
	}
	b.log.take()
	assert.Equal(t, []string{"due0", "due1", "due2", "at once0", "at once1", "at once2"}, b.waiting())
	finds := b.log.take()
	require.Len(t, finds, 2)
	for _, find := range finds {
		examined := b.examined(find)
		assert.LessOrEqual(t, examined, int64(4), "%s", find.body)
		plan := b.explain(find)
		assert.Contains(t, plan, `"indexName": "unfinished"`)
		assert.NotContains(t, plan, `"stage": "SORT"`, "a long queue would be sorted at each look")
	}
}

// examined returns how many keys and documents a find that was logged has looked at, whichever is more.
func (b *bank) examined(find *command) int64 {
	b.t.Helper()
	query := bson.D{{Key: "find", Value: find.text("find")}}
	for _, field := range []string{"filter", "sort"} {
		query = append(query, bson.E{Key: field, Value: find.body.Lookup(field)})
	}
	var reply struct {
		Stats struct {
			Keys      int64 `bson:"totalKeysExamined"`
			Documents int64 `bson:"totalDocsExamined"`
		} `bson:"executionStats"`
	}
	command := bson.D{{Key: "explain", Value: query}, {Key: "verbosity", Value: "executionStats"}}
	require.NoError(b.t, b.db.RunCommand(b.t.Context(), command).Decode(&reply))
	return max(reply.Stats.Keys, reply.Stats.Documents)
}
