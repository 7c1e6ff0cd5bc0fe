package transferhttp

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mongotransfer/transfer"
)

const (
	// lateAfter is how long a transfer may stand still before it is shown as late.
	lateAfter = time.Minute
	// maxShown is how many transfers each part of the overview names.
	maxShown = 10
	// maxExamined is how many of a list are looked at to find these.
	maxExamined = 200
	// A look at the server is shown for at least leastAge, and for restFactor times as
	// long as it took, so that it costs the server a tenth of one connection at most,
	// however many pages are open.
	// One that has failed is taken again after as long as it took.
	leastAge   = time.Second
	restFactor = 10
	// mostAge bounds that for a process that stood still meanwhile.
	mostAge = time.Minute
	// healthShare is the part of a page's time in which all servers have to answer.
	healthShare = 4
)

// sight is what the overview shows of the server.
type sight struct {
	Stats transfer.Stats
	// At is when it was seen.
	At time.Time
	// Unhealthy says why the Coordinator can't work, "" if it can.
	Unhealthy string
	// Stuck, Overdue, Late and Undelivered are transfers that need attention.
	Stuck, Overdue, Late, Undelivered group
	// GivenUp counts those of Undelivered with an event that is not tried any more, which
	// come first.
	GivenUp int
	// MayGiveUp says that only the newest were looked at for these.
	MayGiveUp bool
}

// group is the beginning of a list.
type group struct {
	Records []transfer.Record
	// Unread are the errors of those that can't be read.
	Unread []string
	// More says that there may be others.
	More bool
}

// add adds the beginning of another list.
func (g *group) add(other group) {
	g.Records, g.Unread = append(g.Records, other.Records...), append(g.Unread, other.Unread...)
	g.More = g.More || other.More
}

// sights shares the looks of all that ask at the same time, and for a moment after.
type sights struct {
	mu      sync.Mutex
	last    *sight
	until   time.Time     // last, or failed, is shown until then
	looking chan struct{} // closed when the look under way has ended; nil: there is none
	failed  error         // of the look that has ended last
}

// sight returns the last look at the server, or takes one.
// Who comes while one is taken waits for that.
func (w *window) sight(ctx context.Context) (*sight, error) {
	s := &w.sights
	s.mu.Lock()
	now := w.now()
	if now.Before(s.until) {
		defer s.mu.Unlock()
		return s.shown()
	}
	looking := s.looking
	if looking == nil {
		looking = make(chan struct{})
		s.looking = looking
		s.mu.Unlock()
		return w.lookForAll(ctx, looking, now)
	}
	s.mu.Unlock()
	select {
	case <-looking:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.shown()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// shown returns what has come of the last look.
func (s *sights) shown() (*sight, error) {
	if s.failed != nil {
		return nil, s.failed
	}
	return s.last, nil
}

// lookForAll takes a look, for this request and all that wait.
// So it goes on when this one's reader goes away.
func (w *window) lookForAll(ctx context.Context, looking chan struct{}, begun time.Time) (seen *sight, err error) {
	s := &w.sights
	ended := false
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !ended {
			err = errors.New("the look at the server has ended early")
		}
		now, factor := w.now(), time.Duration(1)
		if s.failed = err; err == nil {
			s.last, factor = seen, restFactor
		}
		s.until = now.Add(min(max(factor*now.Sub(begun), leastAge), mostAge))
		s.looking = nil
		close(looking)
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.limit)
	defer cancel()
	seen, err = w.look(ctx)
	ended = true
	return seen, err
}

// look reads what the overview shows.
// Each list is read only where Stats says that there is something in it.
func (w *window) look(ctx context.Context) (*sight, error) {
	done, err := w.read(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	seen := &sight{}
	if seen.Stats, err = w.coordinator.Stats(ctx); err != nil {
		return nil, err
	}
	any := func(transfer.Record) bool { return true }
	triesOn := func(r transfer.Record) bool { return !hasGivenUp(r) }
	var stuck, overdue, decided, preparing, due, undelivered, givenUp group
	st := seen.Stats
	for _, part := range []struct {
		count int64
		into  *group
		query transfer.Query
		keep  func(transfer.Record) bool
	}{
		{st.Stuck, &stuck, transfer.Query{Stuck: true}, any},
		{st.Overdue, &overdue, transfer.Query{ExpiresBefore: w.now()}, any},
		{st.Committed + st.Rollback, &decided, transfer.Query{
			States: []transfer.State{transfer.StateCommitted, transfer.StateRollback}, IdleFor: lateAfter,
		}, w.isLate},
		{st.Preparing, &preparing, transfer.Query{States: []transfer.State{transfer.StatePreparing}, IdleFor: lateAfter}, w.isLate},
		{st.Due, &due, transfer.Query{States: []transfer.State{transfer.StateInitiated}, IdleFor: lateAfter}, w.isLate},
		{st.Undelivered, &undelivered, transfer.Query{Undelivered: true}, triesOn},
		{st.Undelivered, &givenUp, transfer.Query{Undelivered: true}, hasGivenUp},
	} {
		if part.count == 0 {
			continue
		}
		if *part.into, err = w.pick(ctx, part.query, part.keep); err != nil {
			return nil, err
		}
	}
	seen.Stuck, seen.Overdue, seen.Undelivered = stuck, overdue, givenUp
	seen.GivenUp, seen.MayGiveUp = len(givenUp.Records), givenUp.More
	undelivered.Unread = nil // they are among those of the other list
	seen.Undelivered.add(undelivered)
	for _, part := range []group{decided, preparing, due} {
		seen.Late.add(part)
	}
	seen.Unhealthy = w.unhealthy(ctx)
	seen.At = w.now()
	return seen, nil
}

// unhealthy returns why the Coordinator can't work, "" if it can.
// It comes last, and doesn't take all of the time: a ledger on another server may be
// away, and what is stored about the transfers is shown all the same.
func (w *window) unhealthy(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, w.limit/healthShare)
	defer cancel()
	if err := w.coordinator.Healthy(ctx); err != nil {
		return clip(err.Error(), maxTroubleBytes)
	}
	return ""
}

// isLate reports whether an unfinished transfer should have gone on, given that it was
// not touched for lateAfter, and is neither stuck nor an overdue hold: these are shown as
// what they are.
// A hold is not late before it expires, also if its process has died before all of it was
// held: its caller may ask again.
func (w *window) isLate(r transfer.Record) bool {
	switch {
	case r.Stuck != nil || r.Held:
		return false
	case r.Hold && r.State == transfer.StatePreparing:
		return !r.ExpiresAt.After(w.now())
	case r.State == transfer.StateInitiated:
		due := r.NotBefore
		if r.Waiting != nil {
			due = r.NextTry
		}
		return due.Before(w.now().Add(-lateAfter))
	}
	return true
}

// hasGivenUp reports whether an event of a transfer is not tried any more.
func hasGivenUp(r transfer.Record) bool {
	for _, u := range r.Undelivered {
		if u.GivenUp {
			return true
		}
	}
	return false
}

// pick returns the first transfers of a list that are worth being shown.
func (w *window) pick(ctx context.Context, q transfer.Query, keep func(transfer.Record) bool) (g group, err error) {
	q.Limit = maxExamined
	examined := 0
	for rec, err := range w.coordinator.List(ctx, q) {
		examined++
		switch {
		case err != nil && transfer.OutcomeOf(err) == transfer.InDoubt: // one that can't be read
			if len(g.Unread) < maxShown {
				g.Unread = append(g.Unread, clip(err.Error(), maxErrorBytes))
			}
			continue
		case err != nil:
			return g, err
		case !keep(rec):
			continue
		case len(g.Records) == maxShown:
			g.More = true
			return g, nil
		}
		g.Records = append(g.Records, rec)
	}
	g.More = examined == maxExamined
	return g, nil
}
