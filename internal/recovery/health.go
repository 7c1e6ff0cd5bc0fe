package recovery

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	// bellLimit is how long a worker may not find out what there is to do.
	bellLimit = 10 * time.Second
	// jobLimit is how long a round of a job may take, or fail.
	jobLimit = 30 * time.Second
	// sweepLimit is the same for a sweep of all that has stalled, which may be much.
	sweepLimit = 15 * time.Minute
	// refusedLimit is how long after the latest refusal a right counts as missing.
	// What is refused is tried again after each refusedPause.
	refusedLimit = 3 * refusedPause
)

// Health is how the workers of one Coordinator do.
// It is safe for many goroutines.
type Health struct {
	now func() time.Time

	mu     sync.Mutex
	shifts map[*shift]bool
	failed error // of the worker that has ended last
}

// NewHealth returns the health of no worker.
func NewHealth(now func() time.Time) *Health {
	return &Health{now: now, shifts: map[*shift]bool{}}
}

// Check returns why a worker that was started doesn't work, nil if all do, or none was
// started.
// One that has ended because its context did is no trouble.
func (h *Health) Check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	for s := range h.shifts {
		if err := s.check(now); err != nil {
			return err
		}
	}
	return h.failed
}

// begin begins the shift of a worker.
func (h *Health) begin() *shift {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &shift{health: h, asked: map[string]time.Time{}, failures: map[string]error{}, ranAt: h.now()}
	h.shifts[s] = true
	h.failed = nil
	return s
}

// shift is the time for which a worker runs.
// The lock of its health guards it.
type shift struct {
	health   *Health
	ranAt    time.Time            // when it last found out what there is to do
	asked    map[string]time.Time // since when a round of a job is to be done, and is not
	failures map[string]error     // why the latest round of a job has failed

	lacksSince time.Time // when the first submitted transfer was refused for lack of a right
	refusedAt  time.Time // when the latest one was
	refusal    error     // of the latest one
	lacking    trouble   // the warnings about it
}

// leave ends the checks of the shift.
// What is asked of a worker that is about to end is not done any more.
func (s *shift) leave() {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	delete(s.health.shifts, s)
}

// end ends the shift, with the error that the worker returns.
func (s *shift) end(failure error) {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	delete(s.health.shifts, s)
	if failure != nil {
		s.health.failed = fmt.Errorf("the worker has ended: %w", failure)
	}
}

// rang says that the worker has found out what there is to do.
func (s *shift) rang() {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	s.ranAt = s.health.now()
	delete(s.failures, asking)
}

// ask says that a round of a job is to be done.
func (s *shift) ask(job string) {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	if s.asked[job].IsZero() {
		s.asked[job] = s.health.now()
	}
}

// done says that a round of a job was done, and did not fail.
func (s *shift) done(job string) {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	delete(s.asked, job)
	delete(s.failures, job)
}

// failed says that a round of a job has failed, or the question for what there is to do.
func (s *shift) failed(job string, cause error) {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	s.failures[job] = cause
}

// refused says that a submitted transfer was refused for lack of a right, and returns the
// level of the line about it.
// A transfer that is run says nothing: it may need another right.
func (s *shift) refused(cause error) slog.Level {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	now := s.health.now()
	if now.Sub(s.refusedAt) > refusedLimit {
		s.lacksSince = now
		s.lacking.over()
	}
	s.refusedAt, s.refusal = now, cause
	return s.lacking.level(now)
}

// check returns why the worker doesn't work, with the latest failure, where there is one.
// The caller holds the lock.
func (s *shift) check(now time.Time) error {
	if idle := now.Sub(s.ranAt); idle > bellLimit {
		return s.withCause(asking, fmt.Errorf("the worker has not found out what there is to do for %s", idle.Round(time.Second)))
	}
	for job, since := range s.asked {
		limit := jobLimit
		if job == sweeping {
			limit = sweepLimit
		}
		if took := now.Sub(since); took > limit {
			return s.withCause(job, fmt.Errorf("the worker's search for %s has not succeeded for %s", job, took.Round(time.Second)))
		}
	}
	if lasted := now.Sub(s.lacksSince); lasted > jobLimit && now.Sub(s.refusedAt) <= refusedLimit {
		return fmt.Errorf("the worker has lacked a right for %s: %w", lasted.Round(time.Second), s.refusal)
	}
	return nil
}

// withCause adds the latest failure of a job to an error.
func (s *shift) withCause(job string, err error) error {
	if cause := s.failures[job]; cause != nil {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}
