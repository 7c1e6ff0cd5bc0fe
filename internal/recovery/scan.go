package recovery

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/mongotransfer/transfer/internal/queries"
)

const (
	// roomPatience is how long a scan waits for room on one route.
	// Where transfers come to their ends at full speed that is more than enough, and a
	// scan reads each of thousands only once.
	roomPatience = 100 * time.Millisecond
	// skipLimit is how many transfers of a route a scan passes over before it leaves out
	// the rest.
	skipLimit = 100
	// pauseFactor is how many times as long as a scan took the pause after it is, at
	// least, where the scan has left out what hangs: the server has gone through all of
	// that.
	pauseFactor  = 4
	longestPause = 5 * time.Second
	// shortPause bounds the pause after a scan that has left out only what goes on.
	shortPause = time.Second
)

// scan is one search for work.
// It begins anew without a route where it would have to pass over too many transfers of
// that route.
type scan struct {
	slots    *slots
	begun    time.Time
	patience time.Duration // how long it may still wait, for anything
	waited   time.Duration
	without  []*route       // these are left out of the search
	skipped  map[*route]int // how many transfers of a route were passed over
	anew     bool           // the search is to begin, or to begin anew
	found    int            // how many there were, begun or not
	failed   bool           // the search has failed
	thorough bool           // it leaves nothing out, and passes over all that hangs
}

// newScan begins a scan that waits no longer than its patience.
func (s *slots) newScan(patience time.Duration) *scan {
	return &scan{
		slots: s, begun: s.Now(), patience: patience, without: s.fullRoutes(), skipped: map[*route]int{}, anew: true,
	}
}

// next reports whether to search, or to search anew.
// Where all transfers take one route, and that one is left out, there is nothing to be
// found.
func (n *scan) next() bool {
	anew := n.anew
	n.anew = false
	return anew && (len(n.without) == 0 || !n.slots.Queries.OneRoute())
}

// leftOut returns the names of the routes that are left out of the search.
func (n *scan) leftOut() []queries.Route {
	var names []queries.Route
	for _, r := range n.without {
		names = append(names, r.name)
	}
	return names
}

// leaveOut leaves more routes out of the search.
func (n *scan) leaveOut(routes []*route) {
	for _, r := range routes {
		if !slices.Contains(n.without, r) {
			n.without = append(n.without, r)
		}
	}
}

// enter takes a slot for a transfer of a route, or passes the transfer over.
// Once one transfer of a route was passed over, so are all others: the oldest ones go
// first.
func (n *scan) enter(ctx context.Context, r *route) bool {
	if n.skipped[r] == 0 && (!n.thorough || !n.slots.hangs(r)) {
		entered := false
		n.wait(func(patience time.Duration) {
			entered = n.slots.enterWithin(ctx, r, min(roomPatience, patience))
		})
		if entered {
			return true
		}
	}
	if n.skipped[r]++; n.skipped[r] == skipLimit && !n.thorough && !slices.Contains(n.without, r) {
		n.without = append(n.without, r)
		n.anew = true
	}
	return false
}

// wait calls a function that waits, within the patience that is left.
func (n *scan) wait(wait func(patience time.Duration)) {
	begun := n.slots.Now()
	wait(n.patience)
	took := n.slots.Now().Sub(begun)
	n.waited += took
	n.patience = max(0, n.patience-took)
}

// incomplete returns the routes whose transfers were left out, all or some, or may have
// been.
func (n *scan) incomplete() []*route {
	routes := slices.Collect(maps.Keys(n.skipped))
	for _, r := range n.without {
		if n.skipped[r] == 0 {
			routes = append(routes, r)
		}
	}
	return routes
}

// rest reports what the scan has left out, or may have: transfers of routes that hang,
// and others, for which it is worth to come back soon.
func (n *scan) rest() (hanging, others bool) {
	for _, r := range n.incomplete() {
		if n.slots.hangs(r) {
			hanging = true
		} else {
			others = true
		}
	}
	return hanging, others
}

// pause returns how long the pause after the scan is, at least.
func (n *scan) pause() time.Duration {
	took := max(0, n.slots.Now().Sub(n.begun)-n.waited)
	switch hanging, others := n.rest(); {
	case others:
		return min(took, shortPause)
	case hanging:
		return min(pauseFactor*took, longestPause)
	}
	return 0
}
