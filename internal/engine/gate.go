package engine

import (
	"container/list"
	"context"
	"slices"
	"sync"

	"github.com/mongotransfer/transfer/internal/collections"
)

// gate admits executions.
// It has a fixed number of places, and each execution keeps its place until it ends.
// So whatever hangs, the number of transfers that are claimed and unfinished is bounded.
//
// With several clusters, an execution is admitted only while each cluster that it touches
// has fewer places in use than places are free.
// A cluster that hangs then has at most half of the places, and k such clusters leave
// 1/(k+1) of them to the others.
// The rule is that of A. K. Choudhury and E. L. Hahne, "Dynamic queue length thresholds
// for shared-memory packet switches", 1998.
type gate struct {
	mu           sync.Mutex
	free         int
	multiCluster bool
	inUse        map[collections.Cluster]int
	waitlists    []*waitlist // one for each set of clusters
	next         int         // the waitlist that is served next
}

// waitlist is where executions wait that touch the same set of clusters, first come first
// served.
type waitlist struct {
	clusters  []collections.Cluster
	waiting   list.List // of chan struct{}, each closed when its execution is admitted
	overtaken int       // how often it was overtaken on one of its clusters
	pace      pace      // of its executions; guarded by the engine's lock
	crowd     crowd     // who want some of these
	yielding  chain     // claims of submitted transfers; guarded by the engine's lock
	locked    int       // executions that wait for documents that may be locked; likewise
}

func newGate(size int, multiCluster bool) *gate {
	return &gate{free: size, multiCluster: multiCluster, inUse: map[collections.Cluster]int{}}
}

// acquire waits on a waitlist for a place.
// The error is ErrClosed, or that of ctx.
func (g *gate) acquire(ctx context.Context, closing <-chan struct{}, w *waitlist) error {
	g.mu.Lock()
	if g.hasRoom(w.clusters, 0) { // its waitlist is empty then
		g.occupy(w.clusters)
		g.mu.Unlock()
		return nil
	}
	admitted := make(chan struct{})
	entry := w.waiting.PushBack(admitted)
	g.mu.Unlock()
	select {
	case <-admitted:
		return nil
	case <-closing:
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-admitted: // in the meantime
		return nil
	default:
	}
	w.waiting.Remove(entry)
	if ctx.Err() != nil {
		return withContextError(ctx, ErrNothingSent)
	}
	return ErrClosed
}

// release returns a place and admits those who may have it.
func (g *gate) release(w *waitlist) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free++
	for _, c := range w.clusters {
		g.inUse[c]--
	}
	g.admitWaiting()
}

// admitWaiting admits all executions that have room, one of each waitlist in turn.
// The caller holds the lock.
func (g *gate) admitWaiting() {
	for withoutRoom := 0; g.free > 0 && withoutRoom < len(g.waitlists); {
		w := g.waitlists[g.next%len(g.waitlists)]
		g.next++
		first := w.waiting.Front()
		if first == nil || !g.hasRoom(w.clusters, w.mayExceed()) {
			withoutRoom++
			continue
		}
		withoutRoom = 0
		g.occupy(w.clusters)
		g.countOvertaking(w)
		if admitted, ok := w.waiting.Remove(first).(chan struct{}); ok {
			close(admitted)
		}
	}
}

// countOvertaking counts an admission against the waitlists that share one of its
// clusters.
func (g *gate) countOvertaking(admitted *waitlist) {
	admitted.overtaken = 0
	isAdmitted := func(c collections.Cluster) bool { return slices.Contains(admitted.clusters, c) }
	for _, w := range g.waitlists {
		if w != admitted && w.waiting.Len() > 0 && slices.ContainsFunc(w.clusters, isAdmitted) {
			w.overtaken++
		}
	}
}

// mayExceed returns by how many places a cluster of the waitlist may exceed the rule.
//
//  1. The waitlists of clusters A and B are never empty.
//  2. Each place that A's executions return goes to the next one on A's waitlist, and the
//     same happens on B's.
//  3. A and B never have room at the same moment, and executions that need both would
//     wait forever.
//
// So a waitlist gets its turn after as many overtakings as it has clusters.
func (w *waitlist) mayExceed() int {
	if len(w.clusters) > 1 && w.overtaken >= len(w.clusters) {
		return 1
	}
	return 0
}

// hasRoom reports whether an execution that touches these clusters may have a place now.
func (g *gate) hasRoom(clusters []collections.Cluster, mayExceed int) bool {
	if g.free == 0 {
		return false
	}
	if !g.multiCluster {
		return true
	}
	isFull := func(c collections.Cluster) bool { return g.inUse[c] >= g.free+mayExceed }
	return !slices.ContainsFunc(clusters, isFull)
}

func (g *gate) occupy(clusters []collections.Cluster) {
	g.free--
	for _, c := range clusters {
		g.inUse[c]++
	}
}

// waitlistFor returns the waitlist of a set of clusters.
// There are few of them.
func (g *gate) waitlistFor(clusters []collections.Cluster) *waitlist {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.waitlists {
		if slices.Equal(w.clusters, clusters) {
			return w
		}
	}
	w := &waitlist{clusters: clusters}
	g.waitlists = append(g.waitlists, w)
	return w
}
