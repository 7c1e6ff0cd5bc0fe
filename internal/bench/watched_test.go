package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
)

// With -watched a change stream is open, and the conditions say so.
func TestWatched(t *testing.T) {
	var s settings
	require.NoError(t, s.parse([]string{"-only", "floor-1/zipf/1", "-for", "50ms", "-rounds", "1", "-watched"}))
	var out bytes.Buffer
	require.NoError(t, measureAll(t.Context(), &s, &out))
	require.Contains(t, out.String(), "a change stream open")

	r := run{deployments: map[int]*deployment{}, watched: true}
	d, err := r.deployment(t.Context(), 1)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.close(context.Background())) })
	open := mongo.Pipeline{
		{{Key: "$currentOp", Value: bson.D{{Key: "allUsers", Value: true}, {Key: "idleCursors", Value: true}}}},
		{{Key: "$match", Value: bson.D{{Key: "ns", Value: d.prefix + "watched.nothing"}}}},
	}
	admin := d.client.Database("admin", options.Database().SetReadConcern(readconcern.Local()))
	require.Eventually(t, func() bool { // between two of its commands the cursor is in neither list
		found, err := admin.Aggregate(t.Context(), open)
		require.NoError(t, err)
		return found.Next(t.Context())
	}, time.Minute, 10*time.Millisecond, "nobody reads the oplog")
}

// A change stream that ends before the measurements do is an error.
// The server ends one when its collection is dropped.
func TestWatchEndsEarly(t *testing.T) {
	d, err := deploy(t.Context(), 1)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.close(context.Background())) })
	stream, err := d.openWatch(t.Context())
	require.NoError(t, err)
	watched := d.client.Database(d.prefix + "watched")
	require.NoError(t, watched.CreateCollection(t.Context(), "nothing"))
	require.NoError(t, watched.Collection("nothing").Drop(t.Context()))
	require.ErrorContains(t, readUntilDone(t.Context(), stream), "it has ended")
	require.NoError(t, stream.Close(t.Context()))
}
