package transfer

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/mongostore"
)

// Sweeps that share what they have in hand don't begin with what another one is at: their work on a transfer whose server is away would
// pile up. Once that is done, whoever comes next takes it.
func TestSweepsLeaveAloneWhatIsInHand(t *testing.T) {
	t.Parallel()
	c := unconnected(t)
	foreign := mongostore.Transfer{ID: "t", Legs: []mongostore.Leg{{Ledger: "elsewhere"}}} // which no server is asked about
	foreign.Digest = digest(foreign)
	var hands inHand
	sweep := func() RecoveryReport {
		s := c.newSweep(&hands)
		s.begin(t.Context(), foreign, c.takeOver())
		return s.end()
	}
	require.True(t, hands.reserve("t"))
	require.Zero(t, sweep())
	hands.release("t")
	for range 2 {
		require.Equal(t, RecoveryReport{Found: 1, Stuck: 1}, sweep())
	}
}

// Documents without a readable ID count each, and an error that comes after them ends the search and is told.
func TestSweepTellsOfUnreadableDocuments(t *testing.T) {
	t.Parallel()
	s := unconnected(t).newSweep(&inHand{})
	found := func(yield func(mongostore.Transfer, error) bool) {
		for _, err := range []error{mongostore.ErrUnreadable, mongostore.ErrUnreadable, io.ErrUnexpectedEOF} {
			if !yield(mongostore.Transfer{}, err) {
				return
			}
		}
	}
	require.ErrorIs(t, s.over(t.Context(), found, expire()), io.ErrUnexpectedEOF)
	require.Equal(t, RecoveryReport{Found: 2, Stuck: 2}, s.end())
}

// What is passed over is counted as stuck, with one warning for all. Transfers that touch other places go on.
func TestSweepPassesOverWhatHangs(t *testing.T) {
	t.Parallel()
	c := unconnected(t)
	s := c.newSweep(&inHand{})
	far := s.hands.routes.of(toOther(), s.width)
	far.quiet, far.hangs = c.now(), true
	for range routeTrial {
		far.turns <- struct{}{}
	}
	for _, id := range []string{"1", "2", "near"} {
		stalled := toOther() // not what a digest says: stuck at once, if it is begun
		if stalled.ID = id; id == "near" {
			stalled.Legs = []mongostore.Leg{{}, {}}
		}
		s.begin(t.Context(), stalled, c.takeOver())
	}
	require.Equal(t, RecoveryReport{Found: 3, Stuck: 3}, s.end())
	require.Equal(t, 2, s.passed)
	require.Empty(t, s.hands.busy)

	first := c.newSweep(s.hands)
	first.returns = true
	first.begin(t.Context(), toOther(), c.takeOver())
	require.Equal(t, 1, first.passed)
	require.Zero(t, first.end(), "it comes back to it")
	require.False(t, first.leaves(toOther().ID))
}

// A sweep that waits for a slot ends with its context, and with the coordinator, and keeps nothing.
func TestSweepEndsWhileItWaits(t *testing.T) {
	t.Parallel()
	closed := unconnected(t)
	require.NoError(t, closed.Close(t.Context()))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for want, row := range map[error]struct {
		ctx context.Context
		c   *Coordinator
	}{context.Canceled: {ended, unconnected(t)}, ErrClosed: {t.Context(), closed}} {
		s := row.c.newSweep(&inHand{})
		s.slots = nil // which never has room
		s.begin(row.ctx, toOther(), row.c.takeOver())
		require.Zero(t, s.end())
		require.Equal(t, want, s.early)
		require.Empty(t, s.hands.routes.of(toOther(), s.width).turns)
		require.Empty(t, s.hands.busy)
	}
}

// What was not begun when the context ended is told by an error; what was under way then is stuck.
func TestSweepTellsWhatWasNotBegun(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s := unconnected(t).newSweep(&inHand{})
	require.False(t, s.stopped(ended, engine.ErrUnfinished))
	require.False(t, s.stopped(t.Context(), engine.ErrNothingSent))
	require.NoError(t, s.early)
	require.True(t, s.stopped(ended, engine.ErrNothingSent))
	require.Equal(t, context.Canceled, s.early)
}

// A sweep doesn't wait for those that are on trial before it begins with the next ones.
func TestSweepDoesNotWaitForATrial(t *testing.T) {
	t.Parallel()
	c := unconnected(t)
	legs := []mongostore.Leg{{Namespace: "bank.accounts", Account: "a"}, {Namespace: "bank.accounts", Account: "b"}}
	stalled := mongostore.Transfer{ID: "t", Legs: legs}
	stalled.Digest = digest(stalled)
	s := c.newSweep(&inHand{})
	r := s.hands.routes.of(stalled, s.width)
	r.quiet, r.hangs = c.now(), true
	ctx, cancel := context.WithCancel(t.Context())
	s.begin(ctx, stalled, c.takeOver())
	s.latest.Wait()
	require.Len(t, r.turns, 1, "it still looks for its server")
	cancel()
	require.Equal(t, RecoveryReport{Found: 1, Stuck: 1}, s.end())
}

// unconnected returns a coordinator whose server is away.
func unconnected(t *testing.T) *Coordinator {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	c, err := NewCoordinator(client.Database("bank"))
	require.NoError(t, err)
	return c
}
