package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/words"
)

const (
	// recoveryWidth is how many stalled transfers a sweep begins with at once. They share commands.
	recoveryWidth = 256
	// sweepWidth is how many it works on at once: more, so that those that hang leave enough for the others.
	sweepWidth = 4 * recoveryWidth
	// sweepPatience is how long one search of a sweep waits for what it has begun, until it passes over what there is no room for. What
	// has stalled in a slow cluster holds up the others no longer.
	sweepPatience = 5 * time.Second
	// sweepPause is how soon a sweep comes back to what it had no room for.
	sweepPause = 50 * time.Millisecond
	// recoveryStep is how long a sweep waits for those before it begins with the next ones. A recovery replaces the fences of its
	// accounts, and whoever has read them before has to read them again: so those that go on together are best off.
	recoveryStep = 2 * time.Second
	// progressStep is after how many transfers a sweep logs how far it has come.
	progressStep = 1000
	// recoveryLimit is how long a sweep waits for one transfer, which then goes on in the background.
	recoveryLimit = 30 * time.Second
	// maxExecutions is how many executions of one transfer a process has under way at once. It keeps a sweep that
	// comes by again and again from piling up work on a transfer whose server is away.
	maxExecutions = 2
)

// RecoveryReport counts what a sweep has done. Found is the sum of Succeeded, Failed and Stuck.
type RecoveryReport struct {
	Found     int // stalled transfers that this sweep took over, or could not; not those that others have finished, or wait for
	Succeeded int // brought to StateSuccess
	Failed    int // brought to StateFail
	Expired   int // holds that ran out; part of Failed
	// Stuck were left as they are: a collection that is not registered here, an account that is gone, a server that is away, or this process
	// is at it already and nobody waits for that; see [Query]. Those that were under way when ctx ended go on in the background.
	Stuck int
}

// Recover takes over the transfers that have shown no sign of life for the stall
// threshold, by the server's clock, and brings them to their end: Committed ones to
// StateSuccess, others by the policy (see [WithStallPolicy]). Holds it leaves alone until
// they expire, and then voids. It is safe beside live executions and other sweeps. What
// is still StateInitiated is left to [Coordinator.Run].
//
// With an error not everything was begun: it is that of the search, ErrClosed when the
// Coordinator was closed, or that of ctx. The report tells of what was begun by then.
// With ErrUnauthorized transfers are Stuck for want of a right, if not all of them: grant
// it, and recover again.
//
// A server that is away doesn't hold up transfers that don't touch it: when many hang,
// the others that touch the same places wait until all else was begun, and if they still
// hang after 30 s more they are Stuck.
//
// A transfer that can't be finished, because an account is gone or the server refuses to
// write to it, doesn't hold up the others. Its [Record].Stuck tells why, [Query].Stuck
// lists all of these, and it is tried again, after twice the stall threshold, then four
// times, up to 64 times, until the cause is repaired. Who has repaired it and can't wait
// calls Recover on a Coordinator with a threshold of zero.
//
// What is younger than the threshold is not seen: a process that starts again at once
// after a crash finds nothing yet of what the crash has left, and a Recover at its start
// reports zero. [Coordinator.Run] finds it later; [UntilFinished] makes Recover wait for
// it.
func (c *Coordinator) Recover(ctx context.Context, opts ...RecoverOption) (RecoveryReport, error) {
	how, err := recoveringBy(opts)
	if err != nil {
		return RecoveryReport{}, err
	}
	if err := c.readyForAny(ctx); err != nil {
		return RecoveryReport{}, err
	}
	s := c.newSweep(c.newSweepHands())
	s.returns = true
	what := s.everything
	if how.untilFinished {
		what = s.untilFinished
	}
	err = what(ctx)
	report := s.end()
	return report, withCause(withCause(err, s.early), s.refused)
}

// newSweepHands returns the hands of sweeps. Callers get through beside what they work on.
func (c *Coordinator) newSweepHands() *hands {
	return c.newHands(min(sweepWidth, max(2, c.settings.group.MaxPending/2)))
}

// newSweep returns a sweep that leaves alone what is in hand already.
func (c *Coordinator) newSweep(h *hands) *sweep {
	return &sweep{
		coordinator: c, hands: h, seen: map[string]bool{}, skipped: map[string]bool{}, told: map[*route]bool{},
		latest: new(sync.WaitGroup), most: notedMost,
	}
}

// everything begins with all holds that have expired, and with all that has stalled. It comes back to what it had no room for, and, where
// the sweep returns to what hangs, to that as well, until it has hung for too long.
func (s *sweep) everything(ctx context.Context) error {
	var until time.Time
	for {
		if err := s.round(ctx); err != nil {
			return err
		}
		switch now := s.coordinator.now(); {
		case s.others:
		case !s.hanging || !s.returns || s.final:
			return nil
		case until.IsZero():
			until = now.Add(recoveryLimit)
		case !now.Before(until):
			s.final = true // which counts what is left
		}
		if s.coordinator.rests(ctx, max(sweepPause, s.rest), nil); s.stops(ctx) {
			return nil
		}
	}
}

func (s *sweep) round(ctx context.Context) error {
	c := s.coordinator
	s.hanging, s.others, s.rest = false, false, 0
	stalled := func(without ...queries.Route) iter.Seq2[document.Transfer, error] {
		return c.queries.Stalled(ctx, c.settings.stallThreshold, without...)
	}
	return errors.Join(s.recoverEach(ctx, s.expired(ctx), expire()), s.recoverEach(ctx, stalled, c.takeOver()))
}

// expired finds holds that have expired.
func (s *sweep) expired(ctx context.Context) search {
	return func(without ...queries.Route) iter.Seq2[document.Transfer, error] {
		return s.coordinator.queries.Expired(ctx, without...)
	}
}

// search finds transfers that take none of the given routes.
type search func(without ...queries.Route) iter.Seq2[document.Transfer, error]

// recoverEach begins with what a search finds and there is room for, until the sweep is to end. It returns the error that has ended the search
// early.
func (s *sweep) recoverEach(ctx context.Context, find search, start protocol.Start) error {
	l := s.hands.look(sweepPatience)
	if s.final {
		l.thorough, l.without = true, nil
	}
	for l.again() {
		if err := s.through(ctx, l, find(l.routes()...), start); err != nil {
			return err
		}
	}
	hanging, others := l.left()
	s.hanging, s.others, s.rest = s.hanging || hanging, s.others || others, max(s.rest, l.rest())
	return nil
}

// through is over for one search of a look.
func (s *sweep) through(ctx context.Context, l *look, found iter.Seq2[document.Transfer, error], start protocol.Start) error {
	n := 0
	for t, failure := range found {
		if s.stops(ctx) {
			return nil
		}
		if failure != nil && !errors.Is(failure, document.ErrUnreadable) {
			return fmt.Errorf("find stalled transfers: %w", named(failure))
		}
		if s.leaves(t.ID) {
			continue
		}
		if failure != nil {
			s.stuck(t.ID, failure)
			continue
		}
		s.begin(ctx, l, t, start)
		if l.anew {
			return nil
		}
		if n++; n%recoveryWidth == 0 {
			l.wait(s.step)
		}
	}
	return nil
}

// end waits for what was begun.
func (s *sweep) end() RecoveryReport {
	s.all.Wait()
	if s.report.Found > s.report.Stuck || s.report.Found > 0 && !s.often {
		s.log("a recovery sweep has ended")
	}
	return s.report
}

// sweep is one run of Recover.
type sweep struct {
	coordinator *Coordinator
	hands       *hands // what it works on, and other sweeps that share them
	all         sync.WaitGroup
	latest      *sync.WaitGroup // of those that were begun since the latest step
	mu          sync.Mutex
	report      RecoveryReport
	refused     error           // the first right that was found to be missing
	concerned   ids             // of the transfers that the report counts
	early       error           // why it has ended before everything was begun and done
	returns     bool            // it comes back to what hangs
	final       bool            // but no more
	hanging     bool            // in this round it has left out something that hangs
	others      bool            // or something else
	rest        time.Duration   // before the next round
	often       bool            // it comes again soon: what is left then is not worth a warning each time
	told        map[*route]bool // it has warned that a transfer hangs
	seen        map[string]bool // what could not be finished: a threshold of zero would find it again and again
	skipped     map[string]bool // what is left to others, for the same reason
	most        int             // transfers that it takes note of at once
}

// begin begins with one transfer, in the background, unless it is in hand: sweeps that don't wait for the ones before them would otherwise
// pile up on a transfer whose server is away.
func (s *sweep) begin(ctx context.Context, l *look, t document.Transfer, start protocol.Start) {
	if !s.hands.reserve(t.ID) {
		return
	}
	r := s.hands.of(t)
	if !l.enter(ctx, r) {
		s.hands.release(t.ID)
		if !s.stops(ctx) {
			s.passOver(t.ID, r)
		}
		return
	}
	latest := s.latest
	if !s.hands.steady(r) {
		latest = new(sync.WaitGroup) // nobody waits for a trial
	}
	latest.Add(1)
	s.all.Add(1)
	begun := s.coordinator.now()
	go func() {
		how := asNothing
		defer func() {
			s.hands.leave(r, begun, how)
			s.hands.release(t.ID)
			latest.Done()
			s.all.Done()
		}()
		how = s.recover(ctx, t, r, start)
	}()
}

// stops reports whether the sweep is to end early, because the coordinator closes or ctx has ended, and takes down why.
func (s *sweep) stops(ctx context.Context) bool {
	cause := withCause(ctx.Err(), s.coordinator.closedError())
	if cause == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.early = cause
	return true
}

// stopped reports whether a transfer was not begun, or not ended, because the sweep ends early.
func (s *sweep) stopped(ctx context.Context, err error) bool {
	return (errors.Is(err, engine.ErrNothingSent) || s.coordinator.engine.Closed()) && s.stops(ctx)
}

// step waits until what was begun since the latest step is done, but not for long: what is held up must not hold up the rest.
func (s *sweep) step(most time.Duration) {
	done := make(chan struct{})
	begun := s.latest
	s.latest = new(sync.WaitGroup)
	go func() {
		begun.Wait()
		close(done)
	}()
	patience := time.NewTimer(min(most, recoveryStep))
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
	}
}

// leaves reports whether a transfer was left before. Documents whose ID can't be read have none: each counts.
func (s *sweep) leaves(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return id != "" && (s.seen[id] || s.skipped[id])
}

// recover takes one transfer over, and returns what that tells of its route. What was not begun because the sweep ends early is neither
// stuck nor done: it is not counted.
func (s *sweep) recover(ctx context.Context, t document.Transfer, r *route, start protocol.Start) ending {
	c := s.coordinator
	line := c.lineOf(ctx, sweepVerb(start), t.ID)
	if n, since := c.engine.Executions(t.ID); n >= maxExecutions {
		if c.engine.Awaited(t.ID) && c.now().Sub(since) < recoveryLimit {
			s.skip(t.ID) // whoever waits for it tells what becomes of it
			return asNothing
		}
		s.stuck(t.ID, fmt.Errorf("this process has been at it since %s", since.UTC().Format(time.RFC3339)))
		return asNothing
	}
	limited, cancel := context.WithTimeout(ctx, recoveryLimit)
	defer cancel()
	w, err := c.newWork(ctx, t, reasonOf(start))
	var result engine.Result
	if err == nil {
		result, err = c.engine.Execute(limited, w, start, protocol.Success)
	}
	line.swept(ctx, result, err)
	switch {
	case err != nil && s.stopped(ctx, err):
	case refused(withCause(err, result.Cause)):
		s.lacks(t.ID, withCause(err, result.Cause))
		return asAlive
	case err != nil && gaveUp(ctx, err):
		s.hangs(t.ID, r, withCause(err, result.Cause))
		return asHanging
	case err != nil:
		s.stuck(t.ID, withCause(err, result.Cause))
	case result.Outcome == protocol.Finished:
		s.finished(t.ID, result)
		return asAlive
	case result.Outcome == protocol.Stuck && result.Stuck.Code != "": // which is logged
		s.countStuck(t.ID)
		return asAlive
	case result.Outcome == protocol.Stuck, result.Outcome == protocol.Unclaimable:
		s.stuck(t.ID, result.Cause)
	}
	return asNothing
}

// gaveUp reports whether an error says that a cluster has not answered, and not that the caller's time is over.
func gaveUp(ctx context.Context, err error) bool {
	if refused(err) {
		return false
	}
	for _, cause := range []error{errAway, engine.ErrUnfinished, engine.ErrNothingSent, ErrInDoubt} {
		if errors.Is(err, cause) {
			return ctx.Err() == nil
		}
	}
	return false
}

// lacks counts a transfer that can't be finished until a right is granted.
func (s *sweep) lacks(id string, cause error) {
	s.mu.Lock()
	s.refused = cmp.Or(s.refused, cause)
	s.mu.Unlock()
	s.stuck(id, cause)
}

func (s *sweep) finished(id string, result engine.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Found++
	switch {
	case result.State == protocol.Success:
		s.report.Succeeded++
	case ranOut(result.Transfer):
		s.report.Expired++
		s.report.Failed++
	default:
		s.report.Failed++
	}
	s.progress(id)
}

// ranOut reports whether a failed transfer is a hold that has expired, whoever has decided that.
func ranOut(t document.Transfer) bool {
	return t.Failure != nil && t.Failure.Code == protocol.Expired.String()
}

func (s *sweep) stuck(id string, cause error) {
	s.tell(slog.LevelWarn, id, cause)
	s.countStuck(id)
}

// passOver counts a transfer that is not begun because of others that hang, unless the sweep comes back to it.
func (s *sweep) passOver(id string, r *route) {
	if s.hands.hang(r) && (!s.returns || s.final) {
		s.hangs(id, r, r.hanging())
	}
}

// hangs counts a transfer that hangs, as others do that need the same clusters. There may be many: one warning is enough.
func (s *sweep) hangs(id string, r *route, cause error) {
	s.mu.Lock()
	level := slog.LevelWarn
	if s.told[r] {
		level = slog.LevelDebug
	}
	s.told[r] = true
	s.mu.Unlock()
	s.tell(level, id, cause)
	s.countStuck(id)
}

// tell logs a transfer that could not be finished.
func (s *sweep) tell(level slog.Level, id string, cause error) {
	if s.often {
		level = slog.LevelDebug
	}
	s.coordinator.log.LogAttrs(context.Background(), level, "a stalled transfer could not be finished",
		slog.String(words.KeyTransfer, words.Clip(id)), slog.Any(words.KeyCause, cause))
}

// skip leaves a transfer to others.
func (s *sweep) skip(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skipped[id] = true
}

// countStuck counts a transfer that can't be finished now.
func (s *sweep) countStuck(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Found++
	s.report.Stuck++
	s.seen[id] = true
	s.progress(id)
}

// progress takes down a transfer that was counted, and logs how far a long sweep has come.
// The caller holds the lock.
func (s *sweep) progress(id string) {
	s.concerned.add(id)
	if s.report.Found%progressStep == 0 {
		s.log("a recovery sweep is under way")
	}
}

// log writes the line of the sweep. Holds that nobody decides expire every second: that is
// normal business, and no news.
func (s *sweep) log(message string) {
	level := slog.LevelInfo
	if s.report.routine() {
		level = slog.LevelDebug
	}
	s.coordinator.log.LogAttrs(context.Background(), level, message, s.report.counts(s.concerned)...)
}
