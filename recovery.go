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

// RecoveryReport counts what a sweep has done.
type RecoveryReport struct {
	Found     int // stalled transfers that this sweep took over, or could not
	Succeeded int // brought to StateSuccess
	Failed    int // brought to StateFail
	Expired   int // holds that ran out; part of Failed
	Stuck     int // left as they are: a collection that is not registered here, an account that is gone, a server that is away; see [Query]
}

// Recover takes over the transfers that have shown no sign of life for the stall threshold, by the server's clock, and brings them to
// their end: Committed ones to StateSuccess, others by the policy (see [WithStallPolicy]). Holds it leaves alone until they expire, and
// then voids. It is safe beside live executions and other sweeps. What is still StateInitiated is left to [Coordinator.Run]. The error is
// that of the search; what was found before it is in the report.
//
// A transfer that can't be finished, because an account is gone or the server refuses to write to it, doesn't hold up the others. Its
// [Record].Stuck tells why, [Query].Stuck lists all of these, and it is tried again, after twice the stall threshold, then four times, up
// to 64 times, until the cause is repaired. Who has repaired it and can't wait calls Recover on a Coordinator with a threshold of zero.
func (c *Coordinator) Recover(ctx context.Context) (RecoveryReport, error) {
	if err := c.ready(ctx); err != nil {
		return RecoveryReport{}, err
	}
	s := c.newSweep(&inHand{})
	err := s.everything(ctx)
	return s.end(), err
}

// newSweep returns a sweep that leaves alone what is in hand already.
func (c *Coordinator) newSweep(hands *inHand) *sweep {
	return &sweep{
		coordinator: c, left: map[string]bool{}, hands: hands, slots: make(chan struct{}, 2*recoveryWidth), latest: new(sync.WaitGroup),
	}
}

// everything begins with all holds that have expired, and with all that has stalled.
func (s *sweep) everything(ctx context.Context) error {
	c := s.coordinator
	expired := s.over(ctx, c.store.Expired(ctx), expire())
	stalled := s.over(ctx, c.store.Stalled(ctx, c.settings.stallThreshold), c.takeOver())
	return errors.Join(expired, stalled)
}

// over begins with each transfer of a search. It returns the error that has ended the search early.
func (s *sweep) over(ctx context.Context, found iter.Seq2[mongostore.Transfer, error], start protocol.Start) error {
	n := 0
	for t, failure := range found {
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
	slots       chan struct{} // taken by transfers that it works on
	all         sync.WaitGroup
	latest      *sync.WaitGroup // of those that were begun since the latest step
	mu          sync.Mutex
	report      RecoveryReport
	often       bool            // it comes again soon: what is left then is not worth a warning each time
	left        map[string]bool // what could not be finished, or is left to others: a threshold of zero would find it again and again
}

// begin begins with one transfer, in the background, unless it is in hand: sweeps that don't wait for the ones before them would otherwise
// pile up on a transfer whose server is away.
func (s *sweep) begin(ctx context.Context, t mongostore.Transfer, start protocol.Start) {
	if !s.hands.reserve(t.ID) {
		return
	}
	s.slots <- struct{}{}
	s.all.Add(1)
	latest := s.latest
	latest.Add(1)
	go func() {
		defer func() { <-s.slots; s.hands.release(t.ID); latest.Done(); s.all.Done() }()
		s.recover(ctx, t, start)
	}()
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

// recover takes one transfer over.
func (s *sweep) recover(ctx context.Context, t mongostore.Transfer, start protocol.Start) {
	c := s.coordinator
	if n, since := c.engine.Executions(t.ID); n >= maxExecutions {
		if c.now().Sub(since) < recoveryLimit {
			s.pass(t.ID) // another sweep reports what becomes of it
			return
		}
		s.stuck(t.ID, fmt.Errorf("this process has been at it since %s", since.UTC().Format(time.RFC3339)))
		return
	}
	w, err := c.newWork(ctx, t, reasonOf(start))
	if err != nil {
		s.stuck(t.ID, err)
		return
	}
	limited, cancel := context.WithTimeout(ctx, recoveryLimit)
	defer cancel()
	result, err := c.engine.Execute(limited, w, start, protocol.Success)
	switch {
	case err != nil:
		s.stuck(t.ID, because(err, result.Cause))
	case result.Outcome == protocol.Finished:
		s.finished(t.ID, result)
	case result.Outcome == protocol.Stuck && result.Stuck.Code != "": // which is logged
		s.leave(t.ID)
	case result.Outcome == protocol.Stuck:
		s.stuck(t.ID, result.Cause)
	case result.Outcome == protocol.Unclaimable:
		s.stuck(t.ID, result.Cause)
	}
}

func (s *sweep) finished(id string, result engine.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Found++
	switch {
	case result.State == protocol.Success:
		s.report.Succeeded++
	case ranOut(result):
		s.report.Expired++
		s.report.Failed++
	default:
		s.report.Failed++
	}
	s.coordinator.log.Debug("recovered a transfer", slog.String("transfer", id), slog.String("state", string(result.State)))
	s.progress()
}

// ranOut reports whether a failed transfer is a hold that has expired, by the decision of this execution or of one before.
func ranOut(result engine.Result) bool {
	stored := result.Transfer.Failure
	return result.Refusal.Reason == protocol.Expired || stored != nil && stored.Code == protocol.Expired.String()
}

func (s *sweep) stuck(id string, cause error) {
	level := slog.LevelWarn
	if s.often {
		level = slog.LevelDebug
	}
	s.coordinator.log.Log(context.Background(), level, "a stalled transfer could not be finished",
		slog.String("transfer", id), slog.Any("cause", cause))
	s.leave(id)
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
