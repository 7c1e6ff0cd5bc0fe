package transfer

import (
	"context"
	"io"
	"iter"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/mongostore"
)

// Sweeps that share what they have in hand don't begin with what another one is at: their
// work on a transfer whose server is away would pile up. Once that is done, whoever comes
// next takes it.
func TestSweepsLeaveAloneWhatIsInHand(t *testing.T) {
	t.Parallel()
	c := unconnected(t)
	foreign := mongostore.Transfer{ID: "t", Legs: []mongostore.Leg{{Ledger: "elsewhere"}}} // which no server is asked about
	foreign.Digest = digest(foreign)
	hands := c.newSweepHands()
	sweep := func() RecoveryReport {
		s := c.newSweep(hands)
		s.begin(t.Context(), hands.look(0), foreign, c.takeOver())
		return s.end()
	}
	require.True(t, hands.reserve("t"))
	require.Zero(t, sweep())
	hands.release("t")
	for range 2 {
		require.Equal(t, RecoveryReport{Found: 1, Stuck: 1}, sweep())
	}
}

// Documents without a readable ID count each, and an error that comes after them ends the
// search and is told.
func TestSweepTellsOfUnreadableDocuments(t *testing.T) {
	t.Parallel()
	s := sweepOf(unconnected(t))
	found := func(...mongostore.Route) iter.Seq2[mongostore.Transfer, error] {
		return func(yield func(mongostore.Transfer, error) bool) {
			for _, err := range []error{mongostore.ErrUnreadable, mongostore.ErrUnreadable, io.ErrUnexpectedEOF} {
				if !yield(mongostore.Transfer{}, err) {
					return
				}
			}
		}
	}
	require.ErrorIs(t, s.over(t.Context(), found, expire()), io.ErrUnexpectedEOF)
	require.Equal(t, RecoveryReport{Found: 2, Stuck: 2}, s.end())
}

// What is passed over is counted as stuck, with one warning for all. Transfers that need
// other clusters go on. Recover comes back to it first, and counts it in the end.
func TestSweepPassesOverWhatHangs(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		returns, final bool
		want           int
	}{"run": {false, false, 3}, "recover": {true, false, 1}, "recover in the end": {true, true, 3}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := unconnected(t, "other")
			var warnings atomic.Int64
			c.log = slog.New(warned{slog.DiscardHandler, "a stalled transfer could not be finished", &warnings})
			s := sweepOf(c)
			s.returns, s.final = row.returns, row.final
			far := s.hands.of(between("other"))
			s.hands.enter(far)
			s.hands.leave(far, c.now(), asHanging)
			l := s.hands.look(0)
			for _, id := range []string{"1", "2", "near"} {
				stalled := between("other")
				if stalled.ID = id; id == "near" {
					stalled = mongostore.Transfer{ID: id, Legs: []mongostore.Leg{{}, {}}} // not what a digest says: stuck at once, if it is begun
				}
				s.begin(t.Context(), l, stalled, c.takeOver())
			}
			require.Equal(t, RecoveryReport{Found: row.want, Stuck: row.want}, s.end())
			require.EqualValues(t, min(2, row.want), warnings.Load(), "one of each route")
			require.Equal(t, row.want == 3, s.leaves("1"))
			require.Empty(t, s.hands.busy)
		})
	}
}

// What there is no room for on a route that doesn't hang is not stuck: every sweep comes
// back to it.
func TestSweepComesBackForRoom(t *testing.T) {
	t.Parallel()
	c := unconnected(t, "other")
	s := sweepOf(c)
	far := s.hands.of(between("other"))
	for range routeTrial {
		s.hands.enter(far)
	}
	rounds := 0
	found := func(...mongostore.Route) iter.Seq2[mongostore.Transfer, error] {
		return func(yield func(mongostore.Transfer, error) bool) {
			rounds++
			yield(between("other"), nil)
		}
	}
	require.NoError(t, s.over(t.Context(), found, expire()))
	require.Equal(t, [2]bool{false, true}, [2]bool{s.hanging, s.others})
	require.Equal(t, 1, rounds)
	require.Zero(t, s.end())
	require.False(t, s.leaves(between("other").ID))
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

// A sweep that waits for room ends with its context, and with the coordinator, and keeps
// nothing.
func TestSweepEndsWhileItWaits(t *testing.T) {
	t.Parallel()
	closed := unconnected(t, "other")
	require.NoError(t, closed.Close(t.Context()))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for want, row := range map[error]struct {
		ctx context.Context
		c   *Coordinator
	}{context.Canceled: {ended, unconnected(t, "other")}, ErrClosed: {t.Context(), closed}} {
		s := sweepOf(row.c)
		far := s.hands.of(between("other"))
		for range routeTrial {
			s.hands.enter(far)
		}
		l := s.hands.look(time.Hour)
		l.without = nil
		s.begin(row.ctx, l, between("other"), row.c.takeOver())
		require.Zero(t, s.end())
		require.Equal(t, want, s.early)
		require.Equal(t, routeTrial, s.hands.taken)
		require.Empty(t, s.hands.busy)
	}
}

// What was not begun when the context ended is told by an error; what was under way then
// is stuck.
func TestSweepTellsWhatWasNotBegun(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s := sweepOf(unconnected(t))
	require.False(t, s.stopped(ended, engine.ErrUnfinished))
	require.False(t, s.stopped(t.Context(), engine.ErrNothingSent))
	require.NoError(t, s.early)
	require.True(t, s.stopped(ended, engine.ErrNothingSent))
	require.Equal(t, context.Canceled, s.early)
}

// A sweep doesn't wait for those that are on trial before it begins with the next ones.
func TestSweepDoesNotWaitForATrial(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		before ending
		waits  bool
	}{"fresh": {asNothing, false}, "hanging": {asHanging, false}, "proven": {asAlive, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := unconnected(t, "other")
			stalled := mongostore.Transfer{ID: "t", Legs: []mongostore.Leg{
				{Namespace: "bank.accounts", Account: "a"}, {Ledger: "other", Namespace: "bank.other", Account: "b"},
			}}
			stalled.Digest = digest(stalled)
			s := sweepOf(c)
			r := s.hands.of(stalled)
			s.hands.enter(r)
			s.hands.leave(r, c.now(), row.before)
			r.next = time.Time{}
			ctx, cancel := context.WithCancel(t.Context())
			s.begin(ctx, s.hands.look(0), stalled, c.takeOver())
			done := make(chan struct{})
			go func() {
				defer close(done)
				s.latest.Wait()
			}()
			if row.waits {
				cancel()
			}
			<-done
			require.Equal(t, !row.waits, r.inHand == 1, "it still looks for its server")
			cancel()
			require.Equal(t, RecoveryReport{Found: 1, Stuck: 1}, s.end())
		})
	}
}

func sweepOf(c *Coordinator) *sweep { return c.newSweep(c.newSweepHands()) }

// unconnected returns a coordinator whose server is away, as are those of its ledgers:
// one for each.
func unconnected(t *testing.T, ledgers ...string) *Coordinator {
	t.Helper()
	var opts []Option
	for _, name := range ledgers {
		opts = append(opts, WithLedger(name, away(t).Collection(name)))
	}
	c, err := NewCoordinator(away(t), opts...)
	require.NoError(t, err)
	return c
}

// away returns a database on a server that is away.
func away(t *testing.T) *mongo.Database {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	return client.Database("bank")
}
