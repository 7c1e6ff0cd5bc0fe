package transfer

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/mongotransfer/transfer/internal/queries"
)

const (
	// roomPatience is how long a search waits for room on one route. Where transfers come
	// to their ends at full speed that is more than enough, and a search reads each of
	// thousands but once.
	roomPatience = 100 * time.Millisecond
	// passLimit is how many transfers of a route a search passes over before it leaves
	// out the rest.
	passLimit = 100
	// restFactor is how many times as long as a search took the pause after it is at
	// least, where it has left out what hangs: the server has gone through all of that.
	restFactor  = 4
	longestRest = 5 * time.Second
	// shortRest bounds the pause after a search that has left out only what goes on.
	shortRest = time.Second
)

// look is one search for work, which is begun anew without a route where too many on it
// would have to be passed over.
type look struct {
	hands    *hands
	begun    time.Time
	patience time.Duration // how long it may still wait, for whatever
	waited   time.Duration
	without  []*route
	passed   map[*route]int
	anew     bool
	thorough bool // it leaves nothing out, and passes over all that hangs
}

// look begins a search that waits for so long at most.
func (h *hands) look(patience time.Duration) *look {
	return &look{
		hands: h, begun: h.coordinator.now(), patience: patience, without: h.full(), passed: map[*route]int{}, anew: true,
	}
}

// again reports whether to search, or to search anew.
func (l *look) again() bool {
	anew := l.anew
	l.anew = false
	return anew
}

// routes returns the names of the routes that are left out.
func (l *look) routes() []queries.Route {
	var names []queries.Route
	for _, r := range l.without {
		names = append(names, r.name)
	}
	return names
}

// leaveOut makes the search leave out more routes.
func (l *look) leaveOut(routes []*route) {
	for _, r := range routes {
		if !slices.Contains(l.without, r) {
			l.without = append(l.without, r)
		}
	}
}

// enter counts one more of a route, or passes it over. After the first one of a route the
// others are passed over as well: the oldest ones go first.
func (l *look) enter(ctx context.Context, r *route) bool {
	if l.passed[r] == 0 && (!l.thorough || !l.hands.hang(r)) {
		entered := false
		l.wait(func(most time.Duration) { entered = l.hands.enterWithin(ctx, r, min(roomPatience, most)) })
		if entered {
			return true
		}
	}
	if l.passed[r]++; l.passed[r] == passLimit && !l.thorough && !slices.Contains(l.without, r) {
		l.without = append(l.without, r)
		l.anew = true
	}
	return false
}

// wait does what waits, for as long as there is patience left.
func (l *look) wait(what func(most time.Duration)) {
	begun := l.hands.coordinator.now()
	what(l.patience)
	took := l.hands.coordinator.now().Sub(begun)
	l.waited += took
	l.patience = max(0, l.patience-took)
}

// behind returns the routes of which it has left something out, or may have.
func (l *look) behind() []*route {
	for _, r := range l.without {
		l.passed[r]++
	}
	return slices.Collect(maps.Keys(l.passed))
}

// left reports whether the look has left anything out, or may have: of routes that hang,
// and of others, to which it is worth to come back soon.
func (l *look) left() (hanging, others bool) {
	for _, r := range l.behind() {
		if l.hands.hang(r) {
			hanging = true
		} else {
			others = true
		}
	}
	return hanging, others
}

// rest returns how long the pause after the look is at least.
func (l *look) rest() time.Duration {
	took := max(0, l.hands.coordinator.now().Sub(l.begun)-l.waited)
	switch hanging, others := l.left(); {
	case others:
		return min(took, shortRest)
	case hanging:
		return min(restFactor*took, longestRest)
	}
	return 0
}
