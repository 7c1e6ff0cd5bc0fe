package engine

import (
	"container/list"
	"context"
	"slices"
	"sync"

	"github.com/mongotransfer/transfer/internal/collections"
)

// gate admits executions. At most so many are under way at once, and each keeps its place
// until it ends: what was claimed and is unfinished is bounded, whatever hangs.
//
// Where a coordinator knows several clusters, an execution is admitted only while each
// cluster that it touches has fewer executions under way than there are places free. A
// cluster that hangs then has at most half of the places, and k of them leave 1/(k+1) to
// the others. The rule is that of A. K. Choudhury and E. L. Hahne, "Dynamic queue length
// thresholds for shared-memory packet switches", 1998.
type gate struct {
	mu      sync.Mutex
	free    int
	several bool // clusters
	taken   map[collections.Cluster]int
	lines   []*line // of those who wait; one for each set of clusters that was asked for
	turn    int     // the line that is looked at first
}

// line is where executions wait that touch the same clusters, in the order in which they
// came.
type line struct {
	clusters []collections.Cluster
	waiting  list.List // of chan struct{}, each closed when its execution is admitted
	passed   int       // how often others were admitted to one of its clusters since somebody waits
	pace     pace      // of those that were admitted; the engine's lock guards it
}

func newGate(size int, several bool) *gate {
	return &gate{free: size, several: several, taken: map[collections.Cluster]int{}}
}

// enter waits for a place in a line. The error is ErrClosed, or that of ctx.
func (g *gate) enter(ctx context.Context, closing <-chan struct{}, l *line) error {
	g.mu.Lock()
	if g.admits(l.clusters, 0) { // so nobody waits in its line: whoever could enter has
		g.take(l.clusters)
		g.mu.Unlock()
		return nil
	}
	admitted := make(chan struct{})
	waiting := l.waiting.PushBack(admitted)
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
	case <-admitted: // meanwhile
		return nil
	default:
	}
	l.waiting.Remove(waiting)
	if ctx.Err() != nil {
		return ended(ctx, ErrNothingSent)
	}
	return ErrClosed
}

// leave gives a place back, and admits those who may have it.
func (g *gate) leave(l *line) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free++
	for _, c := range l.clusters {
		g.taken[c]--
	}
	g.admitNext()
}

// admitNext lets everybody in who may enter, one of each line in turn. The caller holds
// the lock.
func (g *gate) admitNext() {
	for passed := 0; g.free > 0 && passed < len(g.lines); {
		l := g.lines[g.turn%len(g.lines)]
		g.turn++
		first := l.waiting.Front()
		if first == nil || !g.admits(l.clusters, l.tolerance()) {
			passed++
			continue
		}
		passed = 0
		g.take(l.clusters)
		g.passes(l)
		if admitted, ok := l.waiting.Remove(first).(chan struct{}); ok {
			close(admitted)
		}
	}
}

// passes counts an admission for those who wait for one of the same clusters.
func (g *gate) passes(admitted *line) {
	admitted.passed = 0
	for _, l := range g.lines {
		shares := slices.ContainsFunc(l.clusters, func(c collections.Cluster) bool { return slices.Contains(admitted.clusters, c) })
		if l != admitted && l.waiting.Len() > 0 && shares {
			l.passed++
		}
	}
}

// tolerance returns how many more than are free a cluster of the line may have. Where the
// lines of two clusters are never empty, each place that one of them gives back is taken
// by the next of the same: both never have room at once, and those who need both would
// wait for ever. After as many admissions as they need clusters it is their turn.
func (l *line) tolerance() int {
	if len(l.clusters) > 1 && l.passed >= len(l.clusters) {
		return 1
	}
	return 0
}

// admits reports whether an execution that touches these clusters may have a place now.
func (g *gate) admits(clusters []collections.Cluster, tolerance int) bool {
	if g.free == 0 {
		return false
	}
	if !g.several {
		return true
	}
	return !slices.ContainsFunc(clusters, func(c collections.Cluster) bool { return g.taken[c] >= g.free+tolerance })
}

func (g *gate) take(clusters []collections.Cluster) {
	g.free--
	for _, c := range clusters {
		g.taken[c]++
	}
}

// line returns where those wait who touch these clusters. There are few: one for each set
// of clusters.
func (g *gate) line(clusters []collections.Cluster) *line {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.lines {
		if slices.Equal(l.clusters, clusters) {
			return l
		}
	}
	l := &line{clusters: clusters}
	g.lines = append(g.lines, l)
	return l
}
