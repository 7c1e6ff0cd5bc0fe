package transfer_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// A standalone server has no majority that could acknowledge anything. Every method says
// so at once, in one sentence and the same one, and nothing is created there.
func TestStandaloneServer(t *testing.T) {
	t.Parallel()
	server, err := mongotest.StartStandalone(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	client, err := mongo.Connect(options.Client().ApplyURI(server.URI()))
	require.NoError(t, err)
	db := client.Database("bank")
	for name, call := range verbs() {
		for _, opts := range [][]transfer.Option{nil, {transfer.WithRetention(time.Hour)}} {
			c, err := transfer.NewCoordinator(db, opts...)
			require.NoError(t, err)
			begun := time.Now()
			err = call(t.Context(), c)
			require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, name)
			require.NotErrorIs(t, err, transfer.ErrInDoubt, name)
			require.ErrorContains(t, err, "start it as a replica set", name)
			require.Equal(t, 1, strings.Count(err.Error(), "unsupported deployment"), "%s: %s", name, err)
			require.Less(t, time.Since(begun), quickly, name)
			require.NoError(t, c.Close(t.Context()))
		}
	}
	names, err := db.ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Empty(t, names)
	now, cancel := context.WithCancel(t.Context())
	cancel()
	_ = client.Disconnect(now)
}
