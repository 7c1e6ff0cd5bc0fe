package transfer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

// BenchmarkNewWork measures what precedes the engine in a transfer whose servers have said that they are fit.
func BenchmarkNewWork(b *testing.B) {
	db := mongotest.Database(b)
	c, err := NewCoordinator(db, WithLedger("eu", db.Collection("accounts_eu")))
	require.NoError(b, err)
	require.NoError(b, c.ready(b.Context(), c.store.Places()...))
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
				if _, err := c.newWork(b.Context(), t, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
