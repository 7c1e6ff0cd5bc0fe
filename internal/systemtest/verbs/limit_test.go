package verbs

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// Each of two holds finds room for its credit, and together they carry a balance beyond
// the limit.
// Nothing more is credited there then, and everything can be taken out.
func TestMoneyBeyondTheLimitComesOut(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ balance, each, small string }{
		"units":    {"4611404543450677248", "281474976710656", "1"}, // 2^62 - 2^48, 2^48
		"decimals": {"999999999999999999000.00", "999.00", "0.01"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t)
			balance, each, small := amount(t, row.balance), amount(t, row.each), amount(t, row.small)
			zero, err := balance.Sub(balance)
			require.NoError(t, err)
			for _, a := range []transfer.Account{{ID: "world", NoFloor: true, Balance: zero}, {ID: "full", Balance: balance}} {
				_, err := b.OpenAccount(t.Context(), a)
				require.NoError(t, err)
			}
			for _, id := range []string{"first", "second"} {
				_, err := b.Hold(t.Context(), transfer.Request{ID: id, From: "world", To: "full", Amount: each}, time.Hour)
				require.NoError(t, err)
			}
			for _, id := range []string{"first", "second"} {
				_, err := b.Post(t.Context(), id)
				require.NoError(t, err)
			}
			_, err = b.Transfer(t.Context(), transfer.Request{ID: "in", From: "world", To: "full", Amount: small})
			require.ErrorIs(t, err, transfer.ErrOverflow)
			_, err = b.Transfer(t.Context(), transfer.Request{ID: "out", From: "full", To: "world", Amount: small})
			require.NoError(t, err)
			_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "back", Of: "first", All: true})
			require.NoError(t, err)
			_, err = b.Hold(t.Context(), transfer.Request{ID: "held", From: "full", To: "world", Amount: each}, time.Hour)
			require.NoError(t, err)
			_, err = b.Void(t.Context(), "held")
			require.NoError(t, err)
			rec, err := b.Transfer(t.Context(), transfer.Request{ID: "more", From: "full", To: "world", Amount: each, AtMost: true})
			require.NoError(t, err)
			require.Equal(t, each, rec.Legs[1].Amount)
			require.Empty(t, b.MustAudit().Findings)
		})
	}
}

// A pay that would pass what an int64 holds waits until money is taken out.
func TestPayWaitsForRoom(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1<<49, 0)
	most := int64(1) << 48
	for _, id := range []string{"fits", "waits"} {
		_, err := b.Hold(t.Context(), bank.Move(id, "a", "b", most), time.Hour)
		require.NoError(t, err)
	}
	b.SetField("accounts", "b", "balance", math.MaxInt64-most) // credits of other processes
	_, err := b.Post(t.Context(), "fits")
	require.NoError(t, err)
	rec, err := b.Post(t.Context(), "waits")
	require.ErrorIs(t, err, transfer.ErrUnsettled)
	require.Equal(t, "unwritable", rec.Stuck.Code)
	b.RequireBalance("b", math.MaxInt64)
	_, err = b.Transfer(t.Context(), bank.Move("makes room", "b", "a", most))
	require.NoError(t, err)
	b.RecoverAll()
	b.RequireBalance("b", math.MaxInt64)
	b.SetField("accounts", "b", "balance", most)
	b.CheckBooks(bank.Balances(2*most, 0))
}

func amount(t *testing.T, text string) (a transfer.Amount) {
	t.Helper()
	require.NoError(t, a.UnmarshalText([]byte(text)))
	return a
}
