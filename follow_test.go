package transfer

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// Of many callers who wait until the money is there, only the one that has the turn reads
// the accounts, and the others know what it has seen.
func TestFollowersShareWhatHasArrived(t *testing.T) {
	t.Parallel()
	c, err := NewCoordinator(mongotest.Database(t))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	defer func() { require.NoError(t, c.Close(ctx)) }()
	for _, account := range []Account{{ID: "a", Balance: Units(100)}, {ID: "b"}} {
		_, err := c.OpenAccount(ctx, account)
		require.NoError(t, err)
	}
	_, err = c.Transfer(ctx, Request{ID: "t", From: "a", To: "b", Amount: Units(60)})
	require.NoError(t, err)
	stored, err := c.stored(ctx, "t")
	require.NoError(t, err)
	first, second := c.newFollower(stored, 0), c.newFollower(stored, 0)
	defer first.turn.leave()
	defer second.turn.leave()
	require.True(t, first.turn.isFree())
	require.False(t, second.turn.isFree())

	undecided := stored
	undecided.State = protocol.Preparing
	stored.State = protocol.Committed // as they have seen it
	require.False(t, second.hasArrived(ctx, stored), "it reads nothing")
	require.False(t, first.hasArrived(ctx, undecided))
	require.True(t, first.hasArrived(ctx, stored))
	require.True(t, second.hasArrived(ctx, stored))
	require.True(t, first.hasArrived(ctx, stored), "once and for all")
	require.False(t, second.hasArrived(ctx, undecided))
	requireNotArrived(ctx, t, c, stored)
}

// requireNotArrived requires that nothing is said of a transfer that makes no sense, or
// touches what is not known here.
func requireNotArrived(ctx context.Context, t *testing.T, c *Coordinator, stored document.Transfer) {
	t.Helper()
	require.True(t, c.arrived(ctx, stored))
	changed := stored
	changed.Digest.Sum = []byte{1}
	require.False(t, c.arrived(ctx, changed))
	foreign := stored
	foreign.Legs = append([]document.Leg{}, stored.Legs...)
	foreign.Legs[0].Ledger = "elsewhere"
	foreign.Digest = digest(foreign)
	require.False(t, c.arrived(ctx, foreign))
	unknown := stored
	unknown.ID = "nobody knows it"
	unknown.Digest = digest(unknown)
	require.False(t, c.arrived(ctx, unknown))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.False(t, c.arrived(ended, stored))
}

// A Coordinator that nobody watches, and whose logger is off, keeps no line of a call.
func TestUnwatchedCallCostsNothing(t *testing.T) {
	c, err := NewCoordinator(mongotest.Database(t))
	require.NoError(t, err)
	ctx, rec, failure := t.Context(), Record{ID: "t"}, error(nil)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		line := c.lineOf(ctx, "transfer", "t")
		c.enter(line.ctx, "t", "wait")
		line.end(line.ctx, &rec, failure)
	}))
	require.Equal(t, ctx, c.lineOf(ctx, "transfer", "t").ctx, "and the context is the caller's")

	c, err = NewCoordinator(mongotest.Database(t), WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		line := c.lineOf(ctx, "transfer", "t")
		c.enter(line.ctx, "t", "wait")
		line.end(line.ctx, &rec, failure)
	}), "nor one whose logger is at Info")
}

// BenchmarkUnwatchedCall measures what a call costs that nobody watches.
func BenchmarkUnwatchedCall(b *testing.B) {
	c, err := NewCoordinator(mongotest.Database(b))
	require.NoError(b, err)
	rec := Record{ID: "t"}
	for b.Loop() {
		line := c.lineOf(b.Context(), "transfer", "t")
		c.enter(line.ctx, "t", "wait")
		line.end(line.ctx, &rec, nil)
	}
}

// Whoever waits for a turn to change an account goes on without it after a while: who has
// it may wait for a server that is away.
func TestTurnThatDoesNotCome(t *testing.T) {
	t.Parallel()
	c, err := NewCoordinator(mongotest.Database(t))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	defer func() { require.NoError(t, c.Close(ctx)) }()
	_, err = c.OpenAccount(ctx, Account{ID: "a"})
	require.NoError(t, err)
	taken := c.newTurn(&c.changed, " a")
	defer taken.leave()
	require.True(t, taken.isFree())
	begun := time.Now()
	require.NoError(t, c.CloseAccount(ctx, "a"))
	require.GreaterOrEqual(t, time.Since(begun), turnPatience, "it waits for its turn first")
}
