package recovery

import (
	"fmt"
	"time"

	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/wire"
)

const (
	// routeLimit is how long none of a route's transfers may come to its end before the
	// route is said to hang: as long as a command may take.
	routeLimit = wire.CommandLimit
	// routeTrial is how many transfers of a route have to hang for that.
	// As many may be in progress on a route that hangs, to notice when it no longer does,
	// and on one that has not shown yet that it doesn't.
	routeTrial = 16
	// routePause is how long a route that hangs is left alone after a transfer on it was
	// given up: as long as the store remembers that a cluster was away.
	routePause = time.Second
	// homeWeight is the weight of the route that needs no cluster but that of the
	// transfers.
	// The searches themselves go there, so it is known to answer.
	homeWeight = 4
)

// route is what is known of the transfers that need the same clusters.
// Where one of these is away they all hang, and nothing else shows which one it is.
// So each route has a share of its own:
//
//  1. Thousands of transfers to a cluster that is away wait, or have stalled.
//  2. The oldest of those are begun, as many as there are slots.
//     None comes to its end.
//  3. Without shares, what needs other clusters would wait until each of the thousands
//     was given up.
//
// The size of a share depends on how many slots are free: a route may have as many
// transfers in progress as there are free slots for others.
// So k routes that hang leave a part of 1/(k+1) to the rest, and a route that is alone
// gets half.
// That is the rule of A. K. Choudhury and E. L. Hahne, "Dynamic queue length thresholds
// for shared-memory packet switches", IEEE/ACM Transactions on Networking 6 (1998), by
// which the queues of a switch share its memory.
// It needs no verdict: it holds from the first moment of the first hang on.
// The verdict, which takes longer, makes the share smaller.
//
// A route belongs to its slots, whose lock guards it.
type route struct {
	name       queries.Route
	weight     int // the route may have this many times the free slots
	inProgress int
	proven     bool      // one of its transfers has come to its end
	hangs      bool      // enough of them have not
	skipped    bool      // transfers were passed over since it hangs
	lastEnd    time.Time // when the latest one came to its end
	stillSince time.Time // since then enough for a verdict were in progress, and none ended
	nextTry    time.Time // while it hangs, when it may be tried again
}

func newRoute(name queries.Route) *route {
	if name == "" {
		return &route{weight: homeWeight, proven: true}
	}
	return &route{name: name, weight: 1}
}

// hasRoom reports whether one more transfer of the route may begin, by the number of free
// slots.
func (r *route) hasRoom(now time.Time, free int) bool {
	r.judge(now)
	switch {
	case r.inProgress >= r.weight*free:
		return false
	case r.hangs:
		return r.inProgress < routeTrial && !now.Before(r.nextTry)
	}
	return r.proven || r.inProgress < routeTrial
}

// judge records whether the route hangs.
func (r *route) judge(now time.Time) {
	if r.stillSince.IsZero() || r.inProgress < routeTrial {
		r.stillSince = now
	}
	r.hangs = r.hangs || !r.answers() && now.Sub(r.stillSince) >= routeLimit
}

// answers reports whether the route is known to answer, whatever hangs on it: it is where
// the searches go.
//
//  1. A user's transaction locks an account, and twenty submitted transfers wait for it.
//  2. Nothing else is submitted for a while, and so nothing comes to its end.
//  3. Whatever comes then, for other accounts, would not be begun until the twenty are
//     given up.
func (r *route) answers() bool { return r.name == "" }

// Ending is what the end of the work on a transfer shows about its route.
type Ending int

const (
	// Inconclusive means that the work ended for reasons of its own.
	Inconclusive Ending = iota + 1
	// Answered means that every cluster has answered.
	Answered
	// Unanswered means that a cluster has not.
	Unanswered
	// Overtaken means that another worker was first.
	Overtaken
)

// ended records how the work on a transfer ended that began at a given time.
// One that was given up shows nothing where others came to their end meanwhile.
func (r *route) ended(now, begun time.Time, how Ending) {
	switch {
	case how == Answered:
		r.lastEnd, r.stillSince, r.proven, r.hangs = now, now, true, false
	case how == Unanswered && !r.answers() && r.lastEnd.Before(begun):
		r.hangs, r.nextTry = true, now.Add(routePause)
	}
	r.judge(now)
	r.inProgress--
}

// skipCause is the cause that is logged for a transfer that is passed over.
func (r *route) skipCause() error {
	return fmt.Errorf("others that need %s hang, and it was not begun", r.name)
}
