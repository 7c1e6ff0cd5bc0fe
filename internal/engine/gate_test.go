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
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/retention"
)

// clustersOf returns n clusters, none of which exists.
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
		store, err := mongostore.New(catalog, retention.New(catalog, 0), mongostore.Limits{})
		require.NoError(t, err)
		all[i] = store.ClustersOf(document.Transfer{})
	}
	return all
}

// fill admits executions until there is no more room, and returns how many it admitted.
func fill(g *gate, clusters []collections.Cluster) int {
	for n := 0; ; n++ {
		if !g.hasRoom(clusters, 0) {
			return n
		}
		g.occupy(clusters)
	}
}

// Executions that hang on one cluster, or on several, never have all places: each of k
// clusters has at most 1/(k+1) of them.
func TestPlacesAreShared(t *testing.T) {
	clusters := clustersOf(t, 3)
	g := newGate(60, true)
	require.Equal(t, 30, fill(g, clusters[0]))
	require.Equal(t, 15, fill(g, clusters[1]))
	require.Equal(t, 8, fill(g, clusters[2]), "half of what is free")
	for range 15 {
		g.release(g.waitlistFor(clusters[1]))
	}
	require.Zero(t, fill(g, clusters[0]), "it has more than are free")
	require.Equal(t, 7, fill(g, slices.Concat(clusters[1], clusters[2])), "each of both must have room")
}

// A single cluster may have all places.
func TestOneClusterHasAllPlaces(t *testing.T) {
	require.Equal(t, 60, fill(newGate(60, false), clustersOf(t, 1)[0]))
}

// Waiting executions are admitted in the order in which they came, and those of one
// cluster don't delay those of another.
// An execution that leaves the waitlist is passed over.
func TestWaitingForAPlace(t *testing.T) {
	clusters := clustersOf(t, 2)
	g := newGate(4, true)
	closing := make(chan struct{})
	require.Equal(t, 2, fill(g, clusters[0]))
	require.Equal(t, 1, fill(g, clusters[1]))
	enter := func(ctx context.Context, clusters []collections.Cluster) chan error {
		w := g.waitlistFor(clusters)
		waiting := w.waiting.Len()
		entered := make(chan error, 1)
		go func() { entered <- g.acquire(ctx, closing, w) }()
		require.Eventually(t, func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return w.waiting.Len() > waiting || len(entered) > 0
		}, eventually, tick)
		return entered
	}
	gone, leave := context.WithCancel(t.Context())
	first, second := enter(gone, clusters[0]), enter(t.Context(), clusters[0])
	third := enter(t.Context(), clusters[1])
	leave()
	require.ErrorIs(t, <-first, ErrNothingSent)
	g.release(g.waitlistFor(clusters[1]))
	require.NoError(t, <-third, "the other cluster's may not enter yet")
	require.Empty(t, second)
	g.release(g.waitlistFor(clusters[0]))
	require.NoError(t, <-second)
	last := enter(t.Context(), clusters[0])
	close(closing)
	require.ErrorIs(t, <-last, ErrClosed)
	require.Equal(t, 1, g.free)
	require.Equal(t, 2, g.inUse[clusters[0][0]])
}

// When there are never enough places for all, each waitlist gets its share, also one that
// needs two clusters at once.
// In a gate with few places that one doesn't get all of them.
func TestNoWaitlistStarves(t *testing.T) {
	clusters := clustersOf(t, 2)
	for _, size := range []int{8, 2046, 2047, 2048} {
		g := newGate(size, true)
		lists := []*waitlist{g.waitlistFor(clusters[0]), g.waitlistFor(clusters[1]), g.waitlistFor(slices.Concat(clusters...))}
		var inside []*waitlist
		admitted := map[*waitlist]int{}
		refill := func() {
			for _, w := range lists {
				for w.waiting.Len() < 2 {
					w.waiting.PushBack(make(chan struct{}))
				}
			}
		}
		before := func() []int { return []int{lists[0].waiting.Len(), lists[1].waiting.Len(), lists[2].waiting.Len()} }
		enter := func(admit func()) {
			had := before()
			admit()
			for i, n := range before() {
				for range had[i] - n {
					inside = append(inside, lists[i])
					admitted[lists[i]]++
				}
			}
			refill()
		}
		refill()
		for range size {
			enter(g.admitWaiting)
		}
		clear(admitted)
		dice := rand.New(rand.NewPCG(1, uint64(size)))
		for range 10_000 {
			i := dice.IntN(len(inside))
			leaving := inside[i]
			inside[i] = inside[len(inside)-1]
			inside = inside[:len(inside)-1]
			enter(func() { g.release(leaving) })
		}
		for i, w := range lists {
			require.Greater(t, admitted[w], 1000, "waitlist %d of a gate of %d", i, size)
		}
	}
}
