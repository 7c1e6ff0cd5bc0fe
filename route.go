package transfer

import (
	"fmt"
	"time"

	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/wire"
)

const (
	// routeLimit is for how long none of a route's transfers may come to its end before the route
	// is said to hang: as long as a command may take.
	routeLimit = wire.CommandLimit
	// routeTrial is how many transfers of a route have to hang for that. It is also how many are in
	// hand at once on a route that hangs, to notice when it no longer does, and on one that has not
	// shown yet that it doesn't.
	routeTrial = 16
	// routePause is how long a route that hangs is left alone after a transfer on it was given up:
	// as long as the store remembers that a cluster was away.
	routePause = time.Second
	// homeWeight is how many times as many as are free may be in hand that need no cluster but that
	// of the transfers. The searches themselves go there, so it is known to answer.
	homeWeight = 4
)

// route is what is known of the transfers that need the same clusters. Where one of these is away
// they all hang, and nothing else tells which one it is. So each route has a share of its own:
//
//  1. Thousands of transfers to a cluster that is away wait, or have stalled.
//  2. The oldest of those are begun, as many as may be in hand at once. None comes to its end.
//  3. What touches other clusters would have to wait until each of the thousands was given up.
//
// How large a share is depends on what is free: a route may have as many transfers in hand as
// there is room left for others, so that k routes that hang leave a part of 1/(k+1) to the rest,
// and one that is alone gets half. That is the rule of A. K. Choudhury and E. L. Hahne, "Dynamic
// queue length thresholds for shared-memory packet switches", IEEE/ACM Transactions on Networking
// 6 (1998), by which the queues of a switch share its memory. It needs no verdict: it holds from
// the first moment of the first hang on. The verdict, which takes longer, makes the share smaller.
//
// A route belongs to its hands, whose lock guards it.
type route struct {
	name       queries.Route
	weight     int // how many times as many as are free it may have in hand
	inProgress int
	proven     bool      // one of its transfers has come to its end
	hangs      bool      // enough of them have not
	passed     bool      // since it hangs, others were passed over
	ended      time.Time // when the latest one came to its end
	quiet      time.Time // since when enough for a verdict were in hand, and none came to its end
	next       time.Time // while it hangs, when it may be tried again
}

func newRoute(name queries.Route) *route {
	if name == "" {
		return &route{weight: homeWeight, proven: true}
	}
	return &route{name: name, weight: 1}
}

// room reports whether the route may have one more in hand, where so many are free.
func (r *route) room(now time.Time, free int) bool {
	r.judge(now)
	switch {
	case r.inProgress >= r.weight*free:
		return false
	case r.hangs:
		return r.inProgress < routeTrial && !now.Before(r.next)
	}
	return r.proven || r.inProgress < routeTrial
}

// judge takes down whether the route hangs.
func (r *route) judge(now time.Time) {
	if r.quiet.IsZero() || r.inProgress < routeTrial {
		r.quiet = now
	}
	r.hangs = r.hangs || now.Sub(r.quiet) >= routeLimit
}

// ending is what the end of the work on a transfer tells of its route.
type ending int

const (
	asNothing ending = iota + 1 // it ended for reasons of its own
	asAlive                     // every cluster has answered
	asHanging                   // a cluster has not
)

// left takes down how the work on a transfer of the route ended that was begun at the given time.
// One that was given up says nothing where others came to their end meanwhile.
func (r *route) left(now, begun time.Time, how ending) {
	switch {
	case how == asAlive:
		r.ended, r.quiet, r.proven, r.hangs = now, now, true, false
	case how == asHanging && r.ended.Before(begun):
		r.hangs, r.next = true, now.Add(routePause)
	}
	r.judge(now)
	r.inProgress--
}

// hanging is the cause of what is passed over.
func (r *route) hanging() error {
	return fmt.Errorf("others that need %s hang, and it was not begun", r.name)
}
