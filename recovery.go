package transfer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
)

const (
	// recoveryWidth is how many stalled transfers a sweep begins with at once. They share commands.
	recoveryWidth = 256
	// sweptRoutes is how many routes have to hang, all at once and as never before, before they hold up the others: for recoveryLimit, once.
	sweptRoutes = 4
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

// Recover takes over the transfers that have shown no sign of life for the stall threshold, by the server's clock, and brings them to
// their end: Committed ones to StateSuccess, others by the policy (see [WithStallPolicy]). Holds it leaves alone until they expire, and
// then voids. It is safe beside live executions and other sweeps. What is still StateInitiated is left to [Coordinator.Run].
//
// With an error not everything was begun: it is that of the search, ErrClosed when the Coordinator was closed, or that of ctx. The report
// tells of what was begun by then.
//
// A server that is away doesn't hold up transfers that don't touch it: when many hang, the others that touch the same places wait until all
// else was begun, and if they still hang after 30 s more they are Stuck.
//
// A transfer that can't be finished, because an account is gone or the server refuses to write to it, doesn't hold up the others. Its
// [Record].Stuck tells why, [Query].Stuck lists all of these, and it is tried again, after twice the stall threshold, then four times, up
// to 64 times, until the cause is repaired. Who has repaired it and can't wait calls Recover on a Coordinator with a threshold of zero.
func (c *Coordinator) Recover(ctx context.Context) (RecoveryReport, error) {
	if err := c.ready(ctx); err != nil {
		return RecoveryReport{}, err
	}
	s := c.newSweep(&inHand{})
	s.returns = true
	err := s.everything(ctx)
	if err == nil && s.passed > 0 {
		s.passed, s.returns, s.until = 0, false, c.now().Add(recoveryLimit)
		err = s.everything(ctx)
	}
	report := s.end()
	return report, because(err, s.early)
}

// newSweep returns a sweep that leaves alone what is in hand already.
func (c *Coordinator) newSweep(hands *inHand) *sweep {
	width := min(2*recoveryWidth, max(1, c.settings.group.MaxPending/2)) // callers get through beside a route that hangs
	return &sweep{
		coordinator: c, left: map[string]bool{}, hands: hands, latest: new(sync.WaitGroup),
		width: width, slots: make(chan struct{}, sweptRoutes*width),
	}
}

// everything begins with all holds that have expired, and with all that has stalled.
func (s *sweep) everything(ctx context.Context) error {
	c := s.coordinator
	expired := s.over(ctx, c.store.Expired(ctx), expire())
	stalled := s.over(ctx, c.store.Stalled(ctx, c.settings.stallThreshold), c.takeOver())
	return errors.Join(expired, stalled)
}

// over begins with each transfer of a search, until the sweep is to end. It returns the error that has ended the search early.
func (s *sweep) over(ctx context.Context, found iter.Seq2[mongostore.Transfer, error], start protocol.Start) error {
	n := 0
	for t, failure := range found {
		if s.stops(ctx) {
			return nil
		}
		if failure != nil && !errors.Is(failure, mongostore.ErrUnreadable) {
			return fmt.Errorf("find stalled transfers: %w", failure)
		}
		if s.leaves(t.ID) {
			continue
		}
		if failure != nil {
			s.stuck(t.ID, failure)
			continue
		}
		s.begin(ctx, t, start)
		if n++; n%recoveryWidth == 0 {
			s.step()
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
	hands       *inHand       // what it works on, and other sweeps that share it
	width       int           // how many transfers of one route it works on at once
	slots       chan struct{} // taken by transfers that it works on
	all         sync.WaitGroup
	latest      *sync.WaitGroup // of those that were begun since the latest step
	mu          sync.Mutex
	report      RecoveryReport
	early       error           // why it has ended before everything was begun and done
	returns     bool            // it comes back to what it passes over
	until       time.Time       // how long it then waits for routes that hang
	passed      int             // how often it has passed over a transfer since
	often       bool            // it comes again soon: what is left then is not worth a warning each time
	left        map[string]bool // what could not be finished, or is left to others: a threshold of zero would find it again and again
}

// begin begins with one transfer, in the background, unless it is in hand: sweeps that don't wait for the ones before them would otherwise
// pile up on a transfer whose server is away.
func (s *sweep) begin(ctx context.Context, t mongostore.Transfer, start protocol.Start) {
	if !s.hands.reserve(t.ID) {
		return
	}
	r := s.hands.routes.of(t, s.width)
	if !s.enter(ctx, t, r) {
		s.hands.release(t.ID)
		return
	}
	latest := s.latest
	if _, hangs := r.judge(s.coordinator.now()); hangs {
		latest = new(sync.WaitGroup) // nobody waits for a trial
	}
	latest.Add(1)
	s.all.Add(1)
	go func() {
		ended := false
		defer func() {
			r.leave(s.coordinator.now(), ended)
			<-s.slots
			s.hands.release(t.ID)
			latest.Done()
			s.all.Done()
		}()
		ended = s.recover(ctx, t, start)
	}()
}

// enter waits for a turn of a transfer's route, and for a slot. It reports false if the transfer is passed over.
func (s *sweep) enter(ctx context.Context, t mongostore.Transfer, r *route) bool {
	closing := s.coordinator.engine.Closing()
	if !r.enter(ctx, closing, s.coordinator.now, s.until) {
		if !s.stops(ctx) {
			s.passOver(t.ID, r)
		}
		return false
	}
	select {
	case s.slots <- struct{}{}:
		return true
	case <-ctx.Done():
	case <-closing:
	}
	r.leave(s.coordinator.now(), false)
	s.stops(ctx)
	return false
}

// stops reports whether the sweep is to end early, because the coordinator closes or ctx has ended, and takes down why.
func (s *sweep) stops(ctx context.Context) bool {
	cause := because(ctx.Err(), s.coordinator.closedError())
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
func (s *sweep) step() {
	done := make(chan struct{})
	begun := s.latest
	s.latest = new(sync.WaitGroup)
	go func() {
		begun.Wait()
		close(done)
	}()
	patience := time.NewTimer(recoveryStep)
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
	return id != "" && s.left[id]
}

// recover takes one transfer over. It reports whether that came to an end, be it that others have the transfer or that it is stuck. What
// was not begun because the sweep ends early is neither stuck nor done: it is not counted.
func (s *sweep) recover(ctx context.Context, t mongostore.Transfer, start protocol.Start) (ended bool) {
	c := s.coordinator
	if n, since := c.engine.Executions(t.ID); n >= maxExecutions {
		if c.engine.Awaited(t.ID) && c.now().Sub(since) < recoveryLimit {
			s.pass(t.ID) // whoever waits for it tells what becomes of it
			return false
		}
		s.stuck(t.ID, fmt.Errorf("this process has been at it since %s", since.UTC().Format(time.RFC3339)))
		return false
	}
	limited, cancel := context.WithTimeout(ctx, recoveryLimit)
	defer cancel()
	w, err := c.newWork(ctx, t, reasonOf(start))
	var result engine.Result
	if err == nil {
		result, err = c.engine.Execute(limited, w, start, protocol.Success)
	}
	switch {
	case err != nil && s.stopped(ctx, err):
	case err != nil:
		s.stuck(t.ID, because(err, result.Cause))
	case result.Outcome == protocol.Finished:
		s.finished(t.ID, result)
	case result.Outcome == protocol.Stuck && result.Stuck.Code != "": // which is logged
		s.leave(t.ID)
	case result.Outcome == protocol.Stuck, result.Outcome == protocol.Unclaimable:
		s.stuck(t.ID, result.Cause)
	}
	return err == nil
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
	s.coordinator.log.Debug("recovered a transfer", slog.String("transfer", id), slog.String("state", string(result.State)))
	s.progress()
}

// ranOut reports whether a failed transfer is a hold that has expired, whoever has decided that.
func ranOut(t mongostore.Transfer) bool {
	return t.Failure != nil && t.Failure.Code == protocol.Expired.String()
}

func (s *sweep) stuck(id string, cause error) {
	s.tell(slog.LevelWarn, id, cause)
	s.leave(id)
}

// passOver counts a transfer that is not begun because of others that hang, unless it comes back to it. There may be many: one warning is
// enough.
func (s *sweep) passOver(id string, r *route) {
	s.passed++
	if s.returns {
		return
	}
	level := slog.LevelDebug
	if s.passed == 1 {
		level = slog.LevelWarn
	}
	s.tell(level, id, r.hanging())
	s.leave(id)
}

func (s *sweep) tell(level slog.Level, id string, cause error) {
	if s.often {
		level = slog.LevelDebug
	}
	s.coordinator.log.Log(context.Background(), level, "a stalled transfer could not be finished",
		slog.String("transfer", id), slog.Any("cause", cause))
}

// pass leaves a transfer to others.
func (s *sweep) pass(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left[id] = true
}

// leave counts a transfer that can't be finished now.
func (s *sweep) leave(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Found++
	s.report.Stuck++
	s.left[id] = true
	s.progress()
}

// progress logs how far a long sweep has come. The caller holds the lock.
func (s *sweep) progress() {
	if s.report.Found%progressStep == 0 {
		s.log("a recovery sweep is under way")
	}
}

func (s *sweep) log(message string) {
	s.coordinator.log.Info(message, slog.Int("found", s.report.Found), slog.Int("succeeded", s.report.Succeeded),
		slog.Int("failed", s.report.Failed), slog.Int("stuck", s.report.Stuck))
}
