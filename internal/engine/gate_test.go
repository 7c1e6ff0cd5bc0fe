package engine

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/deployment"
	"github.com/mongotransfer/transfer/internal/mongostore"
)

// clustersOf returns so many clusters, none of which is there.
func clustersOf(t *testing.T, n int) [][]collections.Cluster {
	t.Helper()
	all := make([][]collections.Cluster, n)
	for i := range all {
		client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1"))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
		catalog, err := collections.New(collections.Config{
			Transfers: client.Database("nowhere").Collection("transfers"), Now: time.Now,
		})
		require.NoError(t, err)
		store, err := mongostore.New(deployment.New(catalog, 0), mongostore.Limits{})
		require.NoError(t, err)
		all[i] = store.ClustersOf(&mongostore.Attempt{})
	}
	return all
}

// fill lets executions in until no more may enter, and returns how many that are.
func fill(g *gate, clusters []collections.Cluster) int {
	for n := 0; ; n++ {
		if !g.admits(clusters, 0) {
			return n
		}
		g.take(clusters)
	}
}

// What hangs on one cluster, or on several, never has all places: each of k has 1/(k+1)
// of them at most.
func TestPlacesAreShared(t *testing.T) {
	clusters := clustersOf(t, 3)
	g := newGate(60, true)
	require.Equal(t, 30, fill(g, clusters[0]))
	require.Equal(t, 15, fill(g, clusters[1]))
	require.Equal(t, 8, fill(g, clusters[2]), "half of what is free")
	for range 15 {
		g.leave(g.line(clusters[1]))
	}
	require.Zero(t, fill(g, clusters[0]), "it has more than are free")
	require.Equal(t, 7, fill(g, slices.Concat(clusters[1], clusters[2])), "each of both must have room")
}

// Where there is one cluster it may have all places.
func TestOneClusterHasAllPlaces(t *testing.T) {
	require.Equal(t, 60, fill(newGate(60, false), clustersOf(t, 1)[0]))
}

// Those who wait are admitted in the order in which they came, and those of one cluster
// don't keep those of another one waiting. Who leaves the line is passed over.
func TestWaitingForAPlace(t *testing.T) {
	clusters := clustersOf(t, 2)
	g := newGate(4, true)
	closing := make(chan struct{})
	require.Equal(t, 2, fill(g, clusters[0]))
	require.Equal(t, 1, fill(g, clusters[1]))
	enter := func(ctx context.Context, clusters []collections.Cluster) chan error {
		l := g.line(clusters)
		waiting := l.waiting.Len()
		entered := make(chan error, 1)
		go func() { entered <- g.enter(ctx, closing, l) }()
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
	g.leave(g.line(clusters[1]))
	require.NoError(t, <-third, "the other cluster's may not enter yet")
	require.Empty(t, second)
	g.leave(g.line(clusters[0]))
	require.NoError(t, <-second)
	last := enter(t.Context(), clusters[0])
	close(closing)
	require.ErrorIs(t, <-last, ErrClosed)
	require.Equal(t, 1, g.free)
	require.Equal(t, 2, g.taken[clusters[0][0]])
}

// Where the places are never enough for all, each line has its part of them, and also
// those who need two clusters at once; and in a gate of few places those don't have all
// of them.
func TestNoLineStarvesAtTheGate(t *testing.T) {
	clusters := clustersOf(t, 2)
	for _, size := range []int{8, 2046, 2047, 2048} {
		g := newGate(size, true)
		lines := []*line{g.line(clusters[0]), g.line(clusters[1]), g.line(slices.Concat(clusters...))}
		var inside []*line
		admitted := map[*line]int{}
		refill := func() {
			for _, l := range lines {
				for l.waiting.Len() < 2 {
					l.waiting.PushBack(make(chan struct{}))
				}
			}
		}
		before := func() []int { return []int{lines[0].waiting.Len(), lines[1].waiting.Len(), lines[2].waiting.Len()} }
		enter := func(admit func()) {
			had := before()
			admit()
			for i, n := range before() {
				for range had[i] - n {
					inside = append(inside, lines[i])
					admitted[lines[i]]++
				}
			}
			refill()
		}
		refill()
		for range size {
			enter(g.admitNext)
		}
		clear(admitted)
		dice := rand.New(rand.NewPCG(1, uint64(size)))
		for range 10_000 {
			i := dice.IntN(len(inside))
			leaving := inside[i]
			inside[i] = inside[len(inside)-1]
			inside = inside[:len(inside)-1]
			enter(func() { g.leave(leaving) })
		}
		for i, l := range lines {
			require.Greater(t, admitted[l], 1000, "line %d of a gate of %d", i, size)
		}
	}
}
