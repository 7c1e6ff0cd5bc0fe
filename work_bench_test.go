package transfer

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

// TestReadyServersCostNothing promises that a transfer whose servers have said that they
// are fit pays nothing for that any more. Who closes the coordinator, or leaves, is heard
// all the same.
func TestReadyServersCostNothing(t *testing.T) {
	c, err := NewCoordinator(mongotest.Database(t))
	require.NoError(t, err)
	planned, err := c.plan(payment(Units(6000)))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, c.readyFor(ctx, &planned))
	require.Zero(t, testing.AllocsPerRun(100, func() { err = c.readyFor(ctx, &planned) }))
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, c.readyFor(ctx, &planned), context.Canceled)
	require.NoError(t, c.Close(t.Context()))
	require.ErrorIs(t, c.readyFor(t.Context(), &planned), ErrClosed)
}

// BenchmarkNewWork measures what precedes the engine in a transfer whose servers have
// said that they are fit.
func BenchmarkNewWork(b *testing.B) {
	db := mongotest.Database(b)
	c, err := NewCoordinator(db, WithLedger("eu", db.Collection("accounts_eu")))
	require.NoError(b, err)
	require.NoError(b, c.ready(b.Context(), c.catalog.Addresses()...))
	for name, to := range map[string]string{"one ledger": "", "two ledgers": "eu"} {
		t, err := c.plan(Request{ID: "order-17", Legs: []Leg{
			{Account: "alice", Amount: Units(-6000)}, {Ledger: to, Account: "bob", Amount: Units(6000)},
		}})
		require.NoError(b, err)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.readyFor(b.Context(), &t); err != nil {
					b.Fatal(err)
				}
				if _, err := c.newAttempt(b.Context(), t, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
