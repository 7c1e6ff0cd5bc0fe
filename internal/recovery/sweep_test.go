package recovery

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/queries"
)

// Sweeps that share slots don't begin with transfers that another one is working on.
// Otherwise their work on a transfer whose server is away would pile up.
// Once that is done, the next sweep takes it.
func TestSweepsLeaveAloneWhatIsInProgress(t *testing.T) {
	t.Parallel()
	settings := unconnected(t)
	foreign := between("elsewhere") // no server is asked for it
	slots := newSlots(settings, settings.sweepSlots())
	sweep := func() Report {
		s := newSweep(settings, slots)
		s.begin(t.Context(), slots.newScan(0), foreign, s.TakeOver)
		return s.end()
	}
	require.True(t, slots.reserve("t"))
	require.Zero(t, sweep())
	slots.release("t")
	for range 2 {
		require.Equal(t, Report{Found: 1, Stuck: 1}, sweep())
	}
}

// Each document without a readable ID counts. A later error ends the search and is
// returned.
func TestSweepReportsUnreadableDocuments(t *testing.T) {
	t.Parallel()
	s := sweepOf(unconnected(t))
	found := func(...queries.Route) iter.Seq2[document.Transfer, error] {
		return func(yield func(document.Transfer, error) bool) {
			for _, err := range []error{document.ErrUnreadable, document.ErrUnreadable, io.ErrUnexpectedEOF} {
				if !yield(document.Transfer{}, err) {
					return
				}
			}
		}
	}
	require.ErrorIs(t, s.recoverEach(t.Context(), found, s.Expire), io.ErrUnexpectedEOF)
	require.Equal(t, Report{Found: 2, Stuck: 2}, s.end())
}

// Transfers that are passed over count as stuck, with one warning for all.
// Transfers that need other clusters go on.
// Recover comes back to it first, and counts it in the end.
func TestSweepPassesOverWhatHangs(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		revisits, last bool
		want           int
	}{"run": {false, false, 3}, "recover": {true, false, 1}, "recover in the end": {true, true, 3}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings := unconnected(t, "other")
			var warnings atomic.Int64
			settings.Log = slog.New(warned{slog.DiscardHandler, "a stalled transfer could not be finished", &warnings})
			s := sweepOf(settings)
			s.revisits, s.last = row.revisits, row.last
			far := s.slots.routeOf(between("other"))
			s.slots.enter(far)
			s.slots.leave(far, s.Now(), Unanswered)
			n := s.slots.newScan(0)
			for _, id := range []string{"1", "2", "near"} {
				stalled := between("other")
				if stalled.ID = id; id == "near" {
					stalled.Legs = []document.Leg{{}, {}} // stuck at once, if it is begun
				}
				s.begin(t.Context(), n, stalled, s.TakeOver)
			}
			require.Equal(t, Report{Found: row.want, Stuck: row.want}, s.end())
			require.EqualValues(t, min(2, row.want), warnings.Load(), "one of each route")
			require.Equal(t, row.want == 3, s.knows("1"))
			require.Empty(t, s.slots.inProgress)
		})
	}
}

// Transfers without room on a route that doesn't hang are not stuck. Every sweep returns
// to them.
func TestSweepComesBackForRoom(t *testing.T) {
	t.Parallel()
	s := sweepOf(unconnected(t, "other"))
	far := s.slots.routeOf(between("other"))
	for range routeTrial {
		s.slots.enter(far)
	}
	rounds := 0
	found := func(...queries.Route) iter.Seq2[document.Transfer, error] {
		return func(yield func(document.Transfer, error) bool) {
			rounds++
			yield(between("other"), nil)
		}
	}
	require.NoError(t, s.recoverEach(t.Context(), found, s.Expire))
	require.Equal(t, [2]bool{false, true}, [2]bool{s.hanging, s.others})
	require.Equal(t, 1, rounds)
	require.Zero(t, s.end())
	require.False(t, s.knows(between("other").ID))
}

// warned counts the warnings with a message.
type warned struct {
	slog.Handler
	message string
	count   *atomic.Int64
}

// Enabled implements slog.Handler.
func (w warned) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle implements slog.Handler.
func (w warned) Handle(_ context.Context, r slog.Record) error {
	if r.Message == w.message {
		w.count.Add(1)
	}
	return nil
}

// A sweep that waits for room ends with its context, and with the Coordinator, and keeps
// nothing.
func TestSweepEndsWhileItWaits(t *testing.T) {
	t.Parallel()
	closed := unconnected(t, "other")
	require.NoError(t, closed.Engine.Close(t.Context()))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for want, row := range map[error]struct {
		ctx      context.Context
		settings *Settings
	}{context.Canceled: {ended, unconnected(t, "other")}, errClosed: {t.Context(), closed}} {
		s := sweepOf(row.settings)
		far := s.slots.routeOf(between("other"))
		for range routeTrial {
			s.slots.enter(far)
		}
		n := s.slots.newScan(time.Hour)
		n.without = nil
		s.begin(row.ctx, n, between("other"), s.TakeOver)
		require.Zero(t, s.end())
		require.Equal(t, want, s.ended)
		require.Equal(t, routeTrial, s.slots.taken)
		require.Empty(t, s.slots.inProgress)
	}
}

// An error shows that a transfer was not begun when the context ended.
// A transfer in progress at that time is stuck.
func TestSweepReportsWhatWasNotBegun(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s := sweepOf(unconnected(t))
	require.False(t, s.cutShort(ended, engine.ErrUnfinished))
	require.False(t, s.cutShort(t.Context(), engine.ErrNothingSent))
	require.NoError(t, s.ended)
	require.True(t, s.cutShort(ended, engine.ErrNothingSent))
	require.Equal(t, context.Canceled, s.ended)
	require.NoError(t, s.Engine.Close(t.Context()))
	require.True(t, s.cutShort(ended, engine.ErrUnfinished))
	require.ErrorIs(t, s.ended, context.Canceled)
	require.ErrorIs(t, s.ended, errClosed)
}

// A transfer that was not begun because the sweep ends early is neither stuck nor done.
func TestSweepDoesNotCountWhatWasCutShort(t *testing.T) {
	t.Parallel()
	settings := unconnected(t)
	settings.Finish = func(context.Context, document.Transfer, protocol.Start, time.Duration) Result {
		return Result{Err: engine.ErrNothingSent, Unanswered: true}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s := sweepOf(settings)
	require.Equal(t, Inconclusive, s.recover(ended, between(), newRoute(""), s.TakeOver))
	require.Zero(t, s.end())
	require.Equal(t, Unanswered, s.recover(t.Context(), between(), newRoute(""), s.TakeOver))
	require.Equal(t, Report{Found: 1, Stuck: 1}, s.end())
}

// A sweep begins with the next transfers without waiting for those on trial.
func TestSweepDoesNotWaitForATrial(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		before Ending
		waits  bool
	}{"fresh": {Inconclusive, false}, "hanging": {Unanswered, false}, "proven": {Answered, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings := unconnected(t, "other")
			settings.Finish = func(ctx context.Context, _ document.Transfer, _ protocol.Start, _ time.Duration) Result {
				<-ctx.Done() // it searches for its server
				return Result{Err: ctx.Err()}
			}
			s := sweepOf(settings)
			stalled := between("other")
			r := s.slots.routeOf(stalled)
			s.slots.enter(r)
			s.slots.leave(r, s.Now(), row.before)
			r.nextTry = time.Time{}
			ctx, cancel := context.WithCancel(t.Context())
			s.begin(ctx, s.slots.newScan(0), stalled, s.TakeOver)
			done := make(chan struct{})
			go func() {
				defer close(done)
				s.latest.Wait()
			}()
			if row.waits {
				cancel()
			}
			<-done
			require.Equal(t, !row.waits, r.inProgress == 1, "it still looks for its server")
			cancel()
			require.Equal(t, Report{Found: 1, Stuck: 1}, s.end())
		})
	}
}

// The end of the work on a transfer decides how it is counted, and what it shows about
// its route.
func TestSweepCountsByResult(t *testing.T) {
	t.Parallel()
	ran := document.Transfer{Failure: &document.Failure{Code: protocol.Expired.String()}}
	finished := func(state protocol.State, t document.Transfer) Result {
		return Result{Result: engine.Result{Outcome: protocol.Finished, State: state, Transfer: t}}
	}
	stuck := Report{Found: 1, Stuck: 1}
	for name, row := range map[string]struct {
		result Result
		want   Report
		how    Ending
	}{
		"succeeded":  {finished(protocol.Success, document.Transfer{}), Report{Found: 1, Succeeded: 1}, Answered},
		"failed":     {finished(protocol.Fail, document.Transfer{}), Report{Found: 1, Failed: 1}, Answered},
		"expired":    {finished(protocol.Fail, ran), Report{Found: 1, Failed: 1, Expired: 1}, Answered},
		"stuck":      {Result{Result: engine.Result{Outcome: protocol.Stuck, Stuck: document.Failure{Code: "x"}}}, stuck, Answered},
		"no sense":   {Result{Result: engine.Result{Outcome: protocol.Stuck, Cause: io.EOF}}, stuck, Inconclusive},
		"overtaken":  {Result{Result: engine.Result{Outcome: protocol.Overtaken}}, Report{}, Inconclusive},
		"an error":   {Result{Err: io.EOF}, stuck, Inconclusive},
		"hanging":    {Result{Err: io.EOF, Unanswered: true}, stuck, Unanswered},
		"refused":    {Result{Result: engine.Result{Cause: io.ErrNoProgress}}, stuck, Answered},
		"refused so": {Result{Err: io.ErrNoProgress, Unanswered: true}, stuck, Answered},
	} {
		settings := unconnected(t)
		settings.Denied = func(err error) bool { return errors.Is(err, io.ErrNoProgress) }
		settings.Finish = func(context.Context, document.Transfer, protocol.Start, time.Duration) Result { return row.result }
		s := sweepOf(settings)
		require.Equal(t, row.how, s.recover(t.Context(), between(), newRoute(""), s.TakeOver), name)
		require.Equal(t, row.want, s.end(), name)
		require.Equal(t, row.want.Stuck == 1, s.isStuck("t"), name)
		require.Equal(t, settings.Denied(s.refused), s.refused != nil, name)
	}
}
