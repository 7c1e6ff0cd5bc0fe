package queries_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/storetest"
)

// A stream reports transfers that become final or held and no others, and leaves no
// cursor open on the server when it is closed.
func TestStreamTellsWhatIsFinalOrHeld(t *testing.T) {
	b := storetest.New(t)
	open := func() int {
		cursor, err := b.DB.Client().Database("admin").Aggregate(t.Context(), bson.A{
			bson.M{"$currentOp": bson.M{"idleCursors": true}},
			bson.M{"$match": bson.M{"ns": b.DB.Name() + ".transfers", "cursor": bson.M{"$exists": true}}},
		})
		require.NoError(t, err)
		var found []bson.Raw
		require.NoError(t, cursor.All(t.Context(), &found))
		return len(found)
	}
	stream, err := b.Store.Watch(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, open())
	transfers := b.DB.Collection("transfers")
	for _, id := range []string{"success", "fail", "held", "committed", "touched"} {
		_, err := transfers.InsertOne(t.Context(), bson.M{"_id": id, "state": "Preparing"})
		require.NoError(t, err)
	}
	for _, c := range []struct {
		id  string
		set bson.M
	}{
		{"touched", bson.M{"lastModified": time.Now()}}, {"committed", bson.M{"state": "Committed"}},
		{"held", bson.M{"held": true}}, {"fail", bson.M{"state": "Fail"}}, {"success", bson.M{"state": "Success"}},
	} {
		_, err := transfers.UpdateByID(t.Context(), c.id, bson.M{"$set": c.set})
		require.NoError(t, err)
	}
	var reported []string
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for len(reported) < 3 {
		ids, err := stream.Next(ctx)
		require.NoError(t, err)
		reported = append(reported, ids...)
	}
	require.Equal(t, []string{"held", "fail", "success"}, reported)
	stream.Close(t.Context())
	require.Zero(t, open())
}
