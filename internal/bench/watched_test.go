package main

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
)

// A change stream is open from the first round to the last, and the conditions say so.
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
	found, err := admin.Aggregate(t.Context(), open)
	require.NoError(t, err)
	require.True(t, found.Next(t.Context()), "nobody reads the oplog")
}
