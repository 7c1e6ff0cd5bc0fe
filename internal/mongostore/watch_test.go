package mongostore

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
)

// A stream tells of what is final or held and of nothing else, and leaves no cursor open on
// the server when it is closed.
func TestStreamTellsWhatIsFinalOrHeld(t *testing.T) {
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
	stream, err := b.store.Watch(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, open())
	transfers := b.db.Collection("transfers")
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
	var told []string
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for len(told) < 3 {
		ids, err := stream.Next(ctx)
		require.NoError(t, err)
		told = append(told, ids...)
	}
	require.Equal(t, []string{"held", "fail", "success"}, told)
	stream.Close(t.Context())
	require.Zero(t, open())
}

// A read of many finds each that there is, whole or as a mark, and a mark changes with what
// it stands for.
func TestReadsOfMany(t *testing.T) {
	b := newBank(t)
	ctx := t.Context()
	transfers := b.db.Collection("transfers")
	ids := []string{"missing"}
	for _, id := range []string{"a", "b", "c"} {
		ids = append(ids, id)
		_, err := transfers.InsertOne(ctx, bson.M{"_id": id, "state": "Preparing", "epoch": int64(1), "lastModified": time.Now()})
		require.NoError(t, err)
	}
	_, err := transfers.InsertOne(ctx, bson.M{"_id": "garbage", "state": bson.A{}})
	require.NoError(t, err)
	ids = append(ids, "garbage")

	found, err := b.store.ReadTransfers(ctx, ids)
	require.NoError(t, err)
	require.Len(t, found, 4)
	require.ErrorIs(t, found["garbage"].Err, document.ErrUnreadable)
	marks, err := b.store.Fingerprints(ctx, ids)
	require.NoError(t, err)
	require.Len(t, marks, 4)
	for id, sight := range found {
		require.Equal(t, sight.Fingerprint, marks[id], "a mark is the same, whichever way it is read")
	}
	alone, err := b.store.ReadTransfers(ctx, []string{"a"})
	require.NoError(t, err)
	require.Equal(t, found["a"], alone["a"])
	existing, err := b.store.WhichExist(ctx, ids)
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"a": true, "b": true, "c": true, "garbage": true}, existing)

	for field, value := range map[string]any{
		"state": "Success", "epoch": int64(2), "held": true, "lastModified": time.Now().Add(time.Hour),
		"expiresAt": time.Now(), "stuckAt": time.Now(),
	} {
		before, err := b.store.Fingerprints(ctx, []string{"a"})
		require.NoError(t, err)
		_, err = transfers.UpdateByID(ctx, "a", bson.M{"$set": bson.M{field: value}})
		require.NoError(t, err)
		after, err := b.store.Fingerprints(ctx, []string{"a"})
		require.NoError(t, err)
		require.NotEqual(t, before["a"], after["a"], field)
	}
}
