package recovery

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/queries"
)

const (
	// stepWidth is how many stalled transfers a sweep begins with at once.
	// They share commands.
	stepWidth = 256
	// sweepWidth is how many it works on at once.
	// There are more of these, so that those that hang leave enough slots for the others.
	sweepWidth = 4 * stepWidth
	// sweepPatience is how long one scan of a sweep waits for what it has begun.
	// Then it passes over what has no room: what has stalled in a slow cluster holds up
	// the others no longer.
	sweepPatience = 5 * time.Second
	// sweepPause is how soon a sweep comes back to what had no room.
	sweepPause = 50 * time.Millisecond
	// stepLimit is how long a sweep waits for one step before it begins the next one.
	// A recovery replaces the fences of its accounts, and an execution that has read them
	// before has to read them again.
	// So those that go on together are best off.
	stepLimit = 2 * time.Second
	// maxExecutions is how many executions of one transfer a process has under way at
	// once.
	// It keeps a sweep that comes by again and again from piling up work on a transfer
	// whose server is away.
	maxExecutions = 2
)

// sweep goes through all that has stalled or expired.
// It works on what it finds in the background.
type sweep struct {
	*Settings
	*tally
	slots  *slots
	begun  time.Time
	all    sync.WaitGroup
	latest *sync.WaitGroup // those that were begun since the latest step
	still  time.Duration   // how long what it takes over has stood still, by the claim

	revisits bool          // it comes back to what hangs
	last     bool          // but not any more: this round counts what still hangs
	hanging  bool          // this round has left out something that hangs
	others   bool          // or something else
	rest     time.Duration // the pause before the next round, at least
}

func newSweep(settings *Settings, slots *slots) *sweep {
	return &sweep{
		Settings: settings, tally: newTally(settings.Log), slots: slots, begun: settings.Now(), latest: new(sync.WaitGroup),
		still: settings.Threshold,
	}
}

// everything recovers all holds that have expired, and all that has stalled.
// It comes back to what had no room.
// Where the sweep revisits what hangs it comes back to that as well, until it has hung
// for too long.
func (s *sweep) everything(ctx context.Context) error {
	var until time.Time
	for {
		if err := s.round(ctx); err != nil {
			return err
		}
		switch now := s.Now(); {
		case s.others:
		case !s.hanging || !s.revisits || s.last:
			return nil
		case until.IsZero():
			until = now.Add(Limit)
		case !now.Before(until):
			s.last = true
		}
		if s.pause(ctx, max(sweepPause, s.rest), nil); s.stops(ctx) {
			return nil
		}
	}
}

func (s *sweep) round(ctx context.Context) error {
	s.hanging, s.others, s.rest = false, false, 0
	stalled := func(without ...queries.Route) iter.Seq2[document.Transfer, error] {
		return s.Queries.Stalled(ctx, s.Threshold, without...)
	}
	return errors.Join(s.recoverExpired(ctx), s.recoverEach(ctx, stalled, s.TakeOver))
}

// recoverExpired recovers the holds that have expired.
func (s *sweep) recoverExpired(ctx context.Context) error {
	expired := func(without ...queries.Route) iter.Seq2[document.Transfer, error] {
		return s.Queries.Expired(ctx, without...)
	}
	return s.recoverEach(ctx, expired, s.Expire)
}

// search finds transfers, but for those on the given routes.
type search func(without ...queries.Route) iter.Seq2[document.Transfer, error]

// recoverEach begins with each transfer that a search finds and that has room, until the
// sweep has to end.
// It returns the error that has ended the search early.
func (s *sweep) recoverEach(ctx context.Context, find search, start protocol.Start) error {
	n := s.slots.newScan(sweepPatience)
	if s.last {
		n.thorough, n.without = true, nil
	}
	for n.next() {
		if err := s.recoverFound(ctx, n, find(n.leftOut()...), start); err != nil {
			return err
		}
	}
	hanging, others := n.rest()
	s.hanging, s.others, s.rest = s.hanging || hanging, s.others || others, max(s.rest, n.pause())
	return nil
}

// recoverFound is recoverEach for one search of a scan.
func (s *sweep) recoverFound(
	ctx context.Context, n *scan, found iter.Seq2[document.Transfer, error], start protocol.Start,
) error {
	begun := 0
	for t, failure := range found {
		if s.stops(ctx) {
			return nil
		}
		if failure != nil && !errors.Is(failure, document.ErrUnreadable) {
			return fmt.Errorf("find stalled transfers: %w", s.Named(failure))
		}
		if s.knows(t.ID) {
			continue
		}
		if failure != nil {
			s.reportStuck(t.ID, failure)
			continue
		}
		s.begin(ctx, n, t, start)
		if n.anew {
			return nil
		}
		if begun++; begun%stepWidth == 0 {
			n.wait(s.waitForStep)
		}
	}
	return nil
}

// begin begins with one transfer, in the background, unless it is in progress.
// Otherwise sweeps that don't wait for the ones before them would pile up work on a
// transfer whose server is away.
func (s *sweep) begin(ctx context.Context, n *scan, t document.Transfer, start protocol.Start) {
	if !s.slots.reserve(t.ID) {
		return
	}
	r := s.slots.routeOf(t)
	if !n.enter(ctx, r) {
		s.slots.release(t.ID)
		if !s.stops(ctx) {
			s.passOver(t.ID, r)
		}
		return
	}
	step := s.latest
	if !s.slots.steady(r) {
		step = new(sync.WaitGroup) // nobody waits for a trial
	}
	step.Add(1)
	s.all.Add(1)
	begun := s.Now()
	go func() {
		how := Inconclusive
		defer func() {
			s.slots.leave(r, begun, how)
			s.slots.release(t.ID)
			step.Done()
			s.all.Done()
		}()
		how = s.recover(ctx, t, r, start)
	}()
}

// passOver counts a transfer that is not begun because others on its route hang, unless
// the sweep comes back to it.
func (s *sweep) passOver(id string, r *route) {
	if s.slots.hangs(r) && (!s.revisits || s.last) {
		s.reportHanging(id, r, r.skipCause())
	}
}

// recover takes one transfer over, and returns what that shows about its route.
// A transfer that was not begun because the sweep ends early is neither stuck nor done:
// it is not counted.
func (s *sweep) recover(ctx context.Context, t document.Transfer, r *route, start protocol.Start) Ending {
	if n, since := s.Engine.Executions(t.ID); n >= maxExecutions {
		if s.Engine.Awaited(t.ID) && s.Now().Sub(since) < Limit {
			s.skip(t.ID) // the caller who waits for it learns its outcome
			return Inconclusive
		}
		s.reportStuck(t.ID, fmt.Errorf("this process has been at it since %s", since.UTC().Format(time.RFC3339)))
		return Inconclusive
	}
	result := s.Finish(ctx, t, start, s.still)
	cause := result.Cause
	if result.Err != nil {
		cause = result.Err
	}
	switch {
	case result.Err != nil && s.cutShort(ctx, result.Err):
	case s.Denied(cause):
		s.reportDenied(t.ID, cause)
		return Answered
	case result.Unanswered:
		s.reportHanging(t.ID, r, cause)
		return Unanswered
	case result.Err != nil:
		s.reportStuck(t.ID, cause)
	case result.Outcome == protocol.Finished:
		s.countFinished(t.ID, result.State, result.Transfer)
		return Answered
	case result.Outcome == protocol.Stuck && result.Stuck.Code != "": // which is logged
		s.countStuck(t.ID)
		return Answered
	case result.Outcome == protocol.Stuck, result.Outcome == protocol.Unclaimable:
		s.reportStuck(t.ID, cause)
	}
	return Inconclusive
}

// stops reports whether the sweep has to end early, because ctx has ended or the
// Coordinator is closed, and records which.
func (s *sweep) stops(ctx context.Context) bool {
	cause := ctx.Err()
	if s.Engine.Closed() {
		cause = s.ErrClosed
		if ctx.Err() != nil {
			cause = fmt.Errorf("%w: %w", ctx.Err(), s.ErrClosed)
		}
	}
	if cause != nil {
		s.endEarly(cause)
	}
	return cause != nil
}

// cutShort reports whether a transfer was not begun, or did not come to its end, because
// the sweep ends early.
func (s *sweep) cutShort(ctx context.Context, err error) bool {
	return (errors.Is(err, engine.ErrNothingSent) || s.Engine.Closed()) && s.stops(ctx)
}

// waitForStep waits until what was begun since the latest step is done, but not for long:
// what is held up must not hold up the rest.
func (s *sweep) waitForStep(patience time.Duration) {
	done := make(chan struct{})
	step := s.latest
	s.latest = new(sync.WaitGroup)
	go func() {
		step.Wait()
		close(done)
	}()
	timer := time.NewTimer(min(patience, stepLimit))
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// report reports a sweep to the observer, if there is one.
// A search that comes every second is reported only if it has brought something to its
// end.
func (s *sweep) report(report Report) {
	if s.Swept != nil && (report.Found > report.Stuck || !s.quiet) {
		s.Swept(report, s.Now().Sub(s.begun))
	}
}

// end waits for what was begun.
func (s *sweep) end() Report {
	s.all.Wait()
	return s.tally.end()
}
