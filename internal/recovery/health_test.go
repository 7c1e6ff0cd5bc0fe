package recovery

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// observed is the health of workers, with a clock that a test sets.
type observed struct {
	*Health

	now time.Time
}

func newObserved() *observed {
	o := &observed{now: time.Now()}
	o.Health = NewHealth(func() time.Time { return o.now })
	return o
}

// A worker works as long as it finds out what there is to do.
func TestWorkerHasToFindOut(t *testing.T) {
	t.Parallel()
	o := newObserved()
	require.NoError(t, o.Check(), "none was started")
	s := o.begin()
	o.now = o.now.Add(bellLimit)
	require.NoError(t, o.Check())
	o.now = o.now.Add(1)
	require.ErrorContains(t, o.Check(), "has not found out what there is to do for 10s")
	s.rang()
	require.NoError(t, o.Check())
	s.end(nil)
	o.now = o.now.Add(time.Hour)
	require.NoError(t, o.Check(), "it was stopped")
}

// A worker has to do what it was asked to, each job by itself, and however often it was
// asked.
func TestWorkerHasToDoItsJobs(t *testing.T) {
	t.Parallel()
	for job, limit := range map[string]time.Duration{submitting: jobLimit, expiring: jobLimit, sweeping: sweepLimit} {
		o := newObserved()
		s := o.begin()
		s.ask(job)
		for range 2 {
			o.now = o.now.Add(limit / 2)
			s.rang()
			s.ask(job)
			s.done("another")
			require.NoError(t, o.Check(), job)
		}
		o.now = o.now.Add(1)
		s.rang()
		require.ErrorContains(t, o.Check(), "the worker's search for "+job+" has not succeeded for ")
		other := o.begin()
		require.Error(t, o.Check(), "another worker is not this one")
		other.end(nil)
		s.done(job)
		require.NoError(t, o.Check())
	}
}

// Why a worker doesn't work is the latest failure of what it has not done, and of nothing
// else.
func TestHealthNamesTheCause(t *testing.T) {
	t.Parallel()
	o := newObserved()
	older, latest, other := errors.New("older"), errors.New("latest"), errors.New("other")
	for job, limit := range map[string]time.Duration{asking: bellLimit, expiring: jobLimit} {
		s := o.begin()
		// tooLong has the job asked for, and not done for too long.
		tooLong := func() error {
			s.ask(job)
			o.now = o.now.Add(limit + 1)
			if job != asking {
				s.rang()
			}
			return o.Check()
		}
		s.failed(job, older)
		s.failed(job, latest)
		s.failed(sweeping, other)
		require.NoError(t, o.Check(), "it has not failed for long")
		err := tooLong()
		require.ErrorIs(t, err, latest)
		require.NotErrorIs(t, err, older)
		require.NotErrorIs(t, err, other)
		if job != asking {
			s.done(job)
		}
		s.rang()
		require.NoError(t, o.Check())
		err = tooLong()
		require.Error(t, err)
		require.NotErrorIs(t, err, latest, "it has succeeded since")
		s.end(nil)
	}
}

// A worker that is about to end has nothing to do any more, however long that takes.
// Why it ends still counts.
func TestHealthOfAWorkerThatEnds(t *testing.T) {
	t.Parallel()
	o := newObserved()
	s := o.begin()
	s.ask(sweeping)
	s.leave()
	o.now = o.now.Add(time.Hour)
	require.NoError(t, o.Check())
	failure := errors.New("disconnected")
	s.end(failure)
	require.ErrorIs(t, o.Check(), failure)
}

// A worker that has ended with an error works no more, until another one begins.
func TestWorkerHasFailed(t *testing.T) {
	t.Parallel()
	o := newObserved()
	failure := errors.New("no right")
	o.begin().end(failure)
	require.ErrorIs(t, o.Check(), failure)
	o.begin()
	require.NoError(t, o.Check())
}
