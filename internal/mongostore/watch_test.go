package mongostore

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A watch that is ended, or whose waiting is cut off, leaves no cursor open on the server.
func TestWatchGivesItsCursorBack(t *testing.T) {
	b := newBank(t)
	open := func() int {
		cursor, err := b.db.Client().Database("admin").Aggregate(t.Context(), bson.A{
			bson.M{"$currentOp": bson.M{"idleCursors": true}},
			bson.M{"$match": bson.M{"ns": b.db.Name() + ".transfers", "cursor": bson.M{"$exists": true}}},
		})
		require.NoError(t, err)
		var found []bson.Raw
		require.NoError(t, cursor.All(t.Context(), &found))
		return len(found)
	}
	for range 5 {
		watch, err := b.store.Watch(t.Context(), "order")
		require.NoError(t, err)
		require.Eventually(t, func() bool { return open() == 1 }, 20*time.Second, time.Millisecond, "a watch holds a cursor")
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_ = watch.Wait(short)
		cancel()
		watch.End()
		require.Eventually(t, func() bool { return open() == 0 }, 20*time.Second, 10*time.Millisecond)
	}
}
