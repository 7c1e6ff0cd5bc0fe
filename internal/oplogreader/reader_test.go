package oplogreader

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// server opens streams, and counts what it was asked for.
type server struct {
	fails                      error
	opens, answers             time.Duration // how long that takes
	tried, open, asked, cutOff atomic.Int64
}

func (s *server) openStream(ctx context.Context, _ time.Duration) (Stream, error) {
	s.tried.Add(1)
	if s.fails != nil {
		return nil, s.fails
	}
	if err := s.wait(ctx, s.opens); err != nil {
		return nil, err
	}
	s.open.Add(1)
	return s, nil
}

func (s *server) Next(ctx context.Context) error {
	s.asked.Add(1)
	return s.wait(ctx, s.answers)
}

// wait waits, or counts a request that was cut off.
func (s *server) wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		s.cutOff.Add(1)
		return ctx.Err()
	}
}

func (s *server) Close(context.Context) { s.open.Add(-1) }

// reading runs a test with a reader whose time passes only when everyone waits.
func reading(t *testing.T, test func(*testing.T, *server, *Reader)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: awaited}
		r := New(s.openStream, slog.New(slog.DiscardHandler), time.Now)
		test(t, s, r)
		r.Close(t.Context())
		require.Zero(t, s.open.Load())
	})
}

// calls are calls that end one after the other.
type calls struct {
	every, take time.Duration
	others      int
}

const quick, slow = 5 * time.Millisecond, 60 * time.Millisecond

// lone are the calls of a lone caller without a stream, and faster is how they go with
// one.
func lone() calls   { return calls{quick, quick, 0} }
func faster() calls { return calls{quick, quick * 8 / 10, 0} }

// end ends a number of calls, and returns when all of that is done that can be.
func (c calls) end(r *Reader, times int) {
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	for range times {
		<-tick.C
		r.Answered(c.take, c.others)
	}
	synctest.Wait()
}

// during ends as many calls as fit into a time.
func (c calls) during(r *Reader, d time.Duration) { c.end(r, int(d/c.every)) }

// rest lets time pass.
func rest(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

// A stream is open while few call, one soon after the other, and is closed soon after the
// last call.
func TestOpenWhileFewCall(t *testing.T) {
	for _, others := range []int{0, few - 1} {
		reading(t, func(t *testing.T, s *server, r *Reader) {
			calls{quick, quick, others}.end(r, span-1)
			require.Zero(t, s.tried.Load(), "it is not known yet how long calls take")
			calls{quick, quick, others}.end(r, 1)
			require.EqualValues(t, 1, s.open.Load())
			calls{quick, quick / 2, others}.during(r, 50*time.Second)
			calls{time.Millisecond, time.Millisecond, others}.during(r, time.Second)
			require.EqualValues(t, 1, s.tried.Load(), "the same one stays open")
			require.EqualValues(t, 1, s.open.Load())
			rest(2 * patience * awaited)
			require.Zero(t, s.open.Load(), "nobody calls")
			rest(time.Hour)
			calls{quick, quick, others}.end(r, span)
			require.EqualValues(t, 1, s.open.Load(), "the hour between the calls does not count")
			calls{slow, slow, others}.during(r, 2*patience*awaited)
			require.Zero(t, s.open.Load(), "they call too rarely")
			require.EqualValues(t, 2, s.tried.Load())
		})
	}
}

// No stream is opened for calls that come rarely, or beside too many others.
func TestNotOpened(t *testing.T) {
	reading(t, func(t *testing.T, s *server, r *Reader) {
		calls{slow, quick, 0}.end(r, 10*span)
		require.Zero(t, s.tried.Load())
		for range 10 {
			calls{quick, quick, few}.end(r, 1)
			lone().end(r, span)
		}
		require.Zero(t, s.tried.Load())
	})
}

// Too many callers end a stream, and the next one is not opened at once.
func TestEndedByACrowd(t *testing.T) {
	reading(t, func(t *testing.T, s *server, r *Reader) {
		lone().end(r, span)
		calls{quick, quick, few}.end(r, 1)
		faster().end(r, 4*span)
		require.EqualValues(t, 1, s.open.Load(), "one call is no crowd")
		calls{quick, quick, few}.end(r, span)
		require.Zero(t, s.open.Load())
		lone().end(r, 2*span)
		require.EqualValues(t, 1, s.tried.Load(), "the crowd may be back")
		require.Equal(t, shortestPause, r.pause)
		rest(shortestPause)
		lone().end(r, span)
		require.EqualValues(t, 1, s.open.Load())
	})
}

// A stream with which calls are not faster is closed, and the pauses double up to ten
// minutes. Each one that was worth it halves them.
func TestNotWorthIt(t *testing.T) {
	reading(t, func(t *testing.T, s *server, r *Reader) {
		lone().end(r, span)
		require.EqualValues(t, 1, s.open.Load())
		lone().during(r, time.Second)
		require.Zero(t, s.open.Load())
		tries := func(d time.Duration) int64 {
			before := s.tried.Load()
			calls{4 * quick, quick, 0}.during(r, d)
			return s.tried.Load() - before
		}
		require.Equal(t, 2*shortestPause, r.pause)
		require.EqualValues(t, 0, tries(r.pause-time.Second/2))
		require.EqualValues(t, 1, tries(2*time.Second))
		tries(time.Hour / 2)
		require.Equal(t, longestPause, r.pause)
		require.LessOrEqual(t, tries(time.Hour/2), int64(3))
		for r.pause > shortestPause {
			rest(longestPause)
			lone().end(r, span)
			before := r.pause
			faster().end(r, 4*span)
			require.EqualValues(t, 1, s.open.Load())
			require.Less(t, r.pause, before)
			rest(time.Second)
		}
		require.Zero(t, s.open.Load())
	})
}

// The same goes for a stream that is closed before enough calls came to judge it: with it
// they may have become rare.
func TestUnjudged(t *testing.T) {
	for _, with := range []calls{{slow, slow, 0}, {10 * slow, 10 * slow, 0}} {
		reading(t, func(t *testing.T, s *server, r *Reader) {
			for want := range int64(4) {
				lone().end(r, 2*span)
				require.Equal(t, want+1, s.tried.Load())
				with.during(r, 2*patience*awaited)
				require.Zero(t, s.open.Load())
				require.Equal(t, shortestPause<<(want+1), r.pause)
				rest(r.pause)
			}
		})
	}
}

// Once a minute a stream is closed, so that calls without one are seen again: other
// processes may be at work by now.
func TestTerm(t *testing.T) {
	reading(t, func(t *testing.T, s *server, r *Reader) {
		lone().end(r, span)
		faster().during(r, term-time.Second)
		require.EqualValues(t, 1, s.open.Load())
		faster().during(r, 2*time.Second)
		require.EqualValues(t, 2, s.tried.Load())
		require.EqualValues(t, 1, s.open.Load())
		faster().during(r, time.Second)
		require.Zero(t, s.open.Load(), "they are as fast without it")
	})
}

// After a failure the pauses double, too. A set of several members is asked every ten
// minutes.
func TestFailures(t *testing.T) {
	reading(t, func(t *testing.T, s *server, r *Reader) {
		tries := func(d time.Duration) int64 {
			before := s.tried.Load()
			calls{4 * quick, quick, 0}.during(r, d)
			return s.tried.Load() - before
		}
		s.fails = errors.New("no right")
		require.EqualValues(t, 4, tries(20*time.Second), "after 2, 4 and 8 s")
		require.LessOrEqual(t, tries(time.Hour/2), int64(8))
	})
	reading(t, func(t *testing.T, s *server, r *Reader) {
		s.fails = errSeveralMembers
		calls{4 * quick, quick, 0}.during(r, longestPause)
		require.EqualValues(t, 1, s.tried.Load())
		lone().during(r, 3*time.Second)
		require.EqualValues(t, 2, s.tried.Load())
	})
}

// Close ends a stream, and waits until its request has ended. After it no stream is
// opened.
func TestClose(t *testing.T) {
	reading(t, func(t *testing.T, s *server, r *Reader) {
		lone().end(r, span)
		require.EqualValues(t, 1, s.open.Load())
		r.Close(t.Context())
		require.Zero(t, s.open.Load())
		rest(time.Minute)
		lone().end(r, 10*span)
		require.EqualValues(t, 1, s.tried.Load())
		require.Zero(t, s.cutOff.Load())
	})
}

// When its context has ended, Close does not wait, and the request ends in its time all
// the same. One that was cut off would leave its cursor on the server.
func TestCloseInAHurry(t *testing.T) {
	reading(t, func(t *testing.T, s *server, r *Reader) {
		lone().end(r, span)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begun := time.Now()
		r.Close(ctx)
		require.Zero(t, time.Since(begun))
		require.EqualValues(t, 1, s.open.Load())
		rest(awaited)
		require.Zero(t, s.open.Load())
		require.Zero(t, s.cutOff.Load())
	})
}

// A server that does not answer delays Close for half a second, whether the stream is
// open or being opened.
func TestCloseWhileNothingAnswers(t *testing.T) {
	for name, hang := range map[string]func(*server){
		"it is open":         func(s *server) { s.answers = time.Hour },
		"it is being opened": func(s *server) { s.opens = time.Hour },
	} {
		reading(t, func(t *testing.T, s *server, r *Reader) {
			hang(s)
			lone().end(r, span)
			begun := time.Now()
			r.Close(t.Context())
			require.Equal(t, closeLimit, time.Since(begun), name)
			synctest.Wait()
			require.EqualValues(t, 1, s.cutOff.Load())
			require.Zero(t, s.open.Load())
		})
	}
	reading(t, func(t *testing.T, s *server, r *Reader) { // it is opened just then
		s.opens = closeLimit - 1
		lone().end(r, span)
		r.Close(t.Context())
		require.EqualValues(t, 1, s.tried.Load())
		require.Zero(t, s.asked.Load())
	})
}
