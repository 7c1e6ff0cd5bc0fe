package queries_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// A read of several transfers finds each that exists, whole or as a fingerprint, and a
// fingerprint changes with its transfer.
func TestReadsOfMany(t *testing.T) {
	b := storetest.New(t)
	ctx := t.Context()
	transfers := b.DB.Collection("transfers")
	ids := []string{"missing"}
	for _, id := range []string{"a", "b", "c"} {
		ids = append(ids, id)
		stored := bson.M{"_id": id, "state": "Preparing", "epoch": int64(1), "lastModified": time.Now()}
		_, err := transfers.InsertOne(ctx, stored)
		require.NoError(t, err)
	}
	_, err := transfers.InsertOne(ctx, bson.M{"_id": "garbage", "state": bson.A{}})
	require.NoError(t, err)
	ids = append(ids, "garbage")

	found, err := b.Store.ReadTransfers(ctx, ids)
	require.NoError(t, err)
	require.Len(t, found, 4)
	require.ErrorIs(t, found["garbage"].Err, document.ErrUnreadable)
	fingerprints, err := b.Store.Fingerprints(ctx, ids)
	require.NoError(t, err)
	require.Len(t, fingerprints, 4)
	for id, snapshot := range found {
		require.Equal(t, snapshot.Fingerprint, fingerprints[id], "it is the same, whichever way it is read")
	}
	alone, err := b.Store.ReadTransfers(ctx, []string{"a"})
	require.NoError(t, err)
	require.Equal(t, found["a"], alone["a"])
	existing, err := b.Store.WhichExist(ctx, ids)
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"a": true, "b": true, "c": true, "garbage": true}, existing)

	for field, value := range map[string]any{
		"state": "Success", "epoch": int64(2), "held": true, "lastModified": time.Now().Add(time.Hour),
		"expiresAt": time.Now(), "stuckAt": time.Now(),
	} {
		before, err := b.Store.Fingerprints(ctx, []string{"a"})
		require.NoError(t, err)
		_, err = transfers.UpdateByID(ctx, "a", bson.M{"$set": bson.M{field: value}})
		require.NoError(t, err)
		after, err := b.Store.Fingerprints(ctx, []string{"a"})
		require.NoError(t, err)
		require.NotEqual(t, before["a"], after["a"], field)
	}
}
