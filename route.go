package transfer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mongotransfer/transfer/internal/mongostore"
)

const (
	// routeLimit is for how long none of a route's transfers may come to its end before recovery passes over the others: as long as a
	// command may take.
	routeLimit = mongostore.CommandLimit
	// routeTrial is how many transfers of a route have to hang for that, and how many are tried after it: to notice when they no longer do.
	routeTrial = 16
	// routePoll is how often who waits for a route that hangs looks whether it still does.
	routePoll = 50 * time.Millisecond
)

// route is what recovery knows of the transfers that touch the same places. Where one of these is away they all hang, and which one it is
// can't be told. So each route has turns of its own:
//
//  1. Thousands of transfers to a cluster that is away have stalled.
//  2. A sweep begins with those, the oldest, as many as it may at once. None comes to its end.
//  3. What has stalled elsewhere would have to wait until each of the thousands has been given up: they are passed over.
type route struct {
	places string
	turns  chan struct{} // taken by transfers in hand

	mu    sync.Mutex
	quiet time.Time // since when enough for a judgement were in hand, and none came to its end
	hangs bool
}

// routes are those of a process, or of a call of Recover, by their places. The zero value is none.
type routes struct {
	mu  sync.Mutex
	all map[string]*route
}

// of returns the route of a transfer, of which so many may be in hand at once.
func (rs *routes) of(t mongostore.Transfer, width int) *route {
	var places []string
	for _, p := range t.Places() {
		places = append(places, p.String())
	}
	slices.Sort(places)
	key := strings.Join(places, ", ")
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.all == nil {
		rs.all = map[string]*route{}
	}
	if rs.all[key] == nil {
		rs.all[key] = &route{places: key, turns: make(chan struct{}, width)}
	}
	return rs.all[key]
}

// enter takes a turn, for which it waits while the route doesn't hang, and until the given time while it does. It reports false where that
// is in vain: ctx has ended, the coordinator closes, or the route hangs and is on trial already.
func (r *route) enter(ctx context.Context, closing <-chan struct{}, now func() time.Time, until time.Time) bool {
	for {
		turns := r.turns
		patience, hangs := r.judge(now())
		if hangs && len(r.turns) >= r.trial() {
			turns, patience = nil, min(until.Sub(now()), routePoll)
			if patience <= 0 {
				return false
			}
		}
		select {
		case turns <- struct{}{}:
			return true
		default:
		}
		judgement := time.NewTimer(patience)
		select {
		case turns <- struct{}{}:
			judgement.Stop()
			return true
		case <-judgement.C:
		case <-ctx.Done():
			return false
		case <-closing:
			return false
		}
	}
}

func (r *route) trial() int { return min(routeTrial, cap(r.turns)) }

// judge reports whether the route hangs, and in what time that would be said of it if nothing came to its end.
func (r *route) judge(now time.Time) (patience time.Duration, hangs bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.quiet.IsZero() || len(r.turns) < r.trial() {
		r.quiet = now
	}
	patience = r.quiet.Add(routeLimit).Sub(now)
	r.hangs = r.hangs || patience <= 0
	return patience, r.hangs
}

// leave gives a turn back. The route doesn't hang if its transfer has come to an end.
func (r *route) leave(now time.Time, ended bool) {
	if ended {
		r.mu.Lock()
		r.quiet, r.hangs = now, false
		r.mu.Unlock()
	} else {
		r.judge(now)
	}
	<-r.turns
}

// hanging is the cause of what is passed over.
func (r *route) hanging() error {
	return fmt.Errorf("others that touch the same places (%s) hang, and it was not begun", r.places)
}
