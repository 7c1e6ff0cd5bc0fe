package engine

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/mongostore"
)

// clustersOf returns so many clusters, none of which is there.
func clustersOf(t *testing.T, n int) [][]mongostore.Cluster {
	t.Helper()
	all := make([][]mongostore.Cluster, n)
	for i := range all {
		client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1"))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
		store, err := mongostore.New(mongostore.Config{
			Transfers: client.Database("nowhere").Collection("transfers"), Now: time.Now,
		})
		require.NoError(t, err)
		all[i] = store.ClustersOf(&mongostore.Work{})
	}
	return all
}

// fill lets executions in until no more may enter, and returns how many that are.
func fill(g *gate, clusters []mongostore.Cluster) int {
	for n := 0; ; n++ {
		if !g.admits(clusters) {
			return n
		}
		g.take(clusters)
	}
}

// What hangs on one cluster, or on several, never has all places: each of k has 1/(k+1) of them at most.
func TestPlacesAreShared(t *testing.T) {
	clusters := clustersOf(t, 3)
	g := newGate(60, true)
	require.Equal(t, 30, fill(g, clusters[0]))
	require.Equal(t, 15, fill(g, clusters[1]))
	require.Equal(t, 8, fill(g, clusters[2]), "half of what is free")
	for range 15 {
		g.leave(clusters[1])
	}
	require.Zero(t, fill(g, clusters[0]), "it has more than are free")
	require.Equal(t, 7, fill(g, slices.Concat(clusters[1], clusters[2])), "each of both must have room")
}

// Where there is one cluster it may have all places.
func TestOneClusterHasAllPlaces(t *testing.T) {
	require.Equal(t, 60, fill(newGate(60, false), clustersOf(t, 1)[0]))
}

// Those who wait are admitted in the order in which they came, and those of one cluster don't keep those of
// another one waiting. Who leaves the line is passed over.
func TestWaitingForAPlace(t *testing.T) {
	clusters := clustersOf(t, 2)
	g := newGate(4, true)
	closing := make(chan struct{})
	require.Equal(t, 2, fill(g, clusters[0]))
	require.Equal(t, 1, fill(g, clusters[1]))
	enter := func(ctx context.Context, clusters []mongostore.Cluster) chan error {
		l := g.line(clusters)
		waiting := l.waiting.Len()
		entered := make(chan error, 1)
		go func() { entered <- g.enter(ctx, closing, clusters) }()
		require.Eventually(t, func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return l.waiting.Len() > waiting || len(entered) > 0
		}, eventually, tick)
		return entered
	}
	gone, leave := context.WithCancel(t.Context())
	first, second := enter(gone, clusters[0]), enter(t.Context(), clusters[0])
	third := enter(t.Context(), clusters[1])
	leave()
	require.ErrorIs(t, <-first, ErrNothingSent)
	g.leave(clusters[1])
	require.NoError(t, <-third, "the other cluster's may not enter yet")
	require.Empty(t, second)
	g.leave(clusters[0])
	require.NoError(t, <-second)
	last := enter(t.Context(), clusters[0])
	close(closing)
	require.ErrorIs(t, <-last, ErrClosed)
	require.Equal(t, 1, g.free)
	require.Equal(t, 2, g.taken[clusters[0][0]])
}
