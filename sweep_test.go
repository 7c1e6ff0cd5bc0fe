package transfer

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

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

// Of transfers that touch the same places a sweep begins with no more than a few once so many have hung for as long as a command may take,
// until one of them comes to its end. The others are passed over, and counted. Transfers that touch other places go on.
func TestSweepPassesOverWhatHangs(t *testing.T) {
	t.Parallel()
	c := unconnected(t)
	now := time.Now()
	c.now = func() time.Time { return now }
	far := mongostore.Transfer{ID: "far", Legs: []mongostore.Leg{{}, {Ledger: "other"}}}
	back := mongostore.Transfer{ID: "back", Legs: []mongostore.Leg{{Ledger: "other"}, {}}}
	near := mongostore.Transfer{ID: "near", Legs: []mongostore.Leg{{}, {}}} // not what a digest says: stuck without a question to a server
	s := c.newSweep(&inHand{})
	all := &s.hands.routes
	r := all.of(far, s.width)
	require.Same(t, r, all.of(back, s.width))
	require.NotSame(t, r, all.of(near, s.width))
	enter := func() bool { return r.enter(t.Context(), nil, c.now) }
	for range routeTrial {
		require.True(t, enter())
	}
	now = now.Add(routeLimit - 1)
	require.True(t, enter(), "not long enough")
	now = now.Add(1)
	require.False(t, enter())

	s.begin(t.Context(), far, c.takeOver())
	s.begin(t.Context(), near, c.takeOver())
	require.Equal(t, RecoveryReport{Found: 2, Stuck: 2}, s.end())
	require.Equal(t, 1, s.passed)
	r.leave(now, false)
	require.False(t, enter(), "as many are on trial as may be")
	r.leave(now, false)
	require.True(t, enter(), "one more trial")
	require.False(t, enter())
	r.leave(now, true)
	require.True(t, enter(), "it hangs no longer")
	require.True(t, enter())

	now = now.Add(routeLimit)
	r.leave(now, false)
	for range routeTrial {
		r.leave(now, false)
	}
	require.Empty(t, r.turns)
	for range routeTrial {
		require.True(t, enter())
	}
	require.False(t, enter(), "all were given up: it hangs until one comes to its end")
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
	require.Zero(t, s.end())
	require.ErrorIs(t, s.early, context.Canceled)
}

// A turn is waited for while the route doesn't hang, and not beyond the end of the context or of the coordinator.
func TestSweepWaitsForATurn(t *testing.T) {
	t.Parallel()
	far := mongostore.Transfer{Legs: []mongostore.Leg{{Ledger: "other"}}}
	r := new(routes).of(far, 1)
	begun := time.Now()
	now := func() time.Time { return begun }
	require.True(t, r.enter(t.Context(), nil, now))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, r.enter(ended, nil, now))
	closed := make(chan struct{})
	close(closed)
	require.False(t, r.enter(t.Context(), closed, now))
	entered := make(chan bool)
	go func() { entered <- r.enter(t.Context(), nil, now) }()
	r.leave(begun, true)
	require.True(t, <-entered)
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
