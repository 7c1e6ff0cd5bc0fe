package verbs

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

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

// A pay that would pass what can be stored exactly waits until money is taken out.
// So does the return of a debit.
func TestPayWaitsForRoom(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ most, room string }{
		"units":    {"281474976710656", "9223372036854775807"},
		"decimals": {"999999999999999999.999999999999", "9999999999999999999999.999999999999"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, ending := range []string{"post", "void"} {
				t.Run(ending, func(t *testing.T) {
					t.Parallel()
					waitsForRoom(t, amount(t, row.most), amount(t, row.room), ending == "void")
				})
			}
		})
	}
}

// waitsForRoom ends two holds on an account that has room for one more amount, as other
// processes have paid money in since. The holds pay the account, or are given back to it.
func waitsForRoom(t *testing.T, most, full transfer.Amount, given bool) {
	t.Helper()
	b := bank.New(t)
	twice, err := most.Add(most)
	require.NoError(t, err)
	from, to := "a", "b"
	end := func(id string) (transfer.Record, error) { return b.Post(t.Context(), id) }
	if given {
		from, to = "b", "a"
		end = func(id string) (transfer.Record, error) { return b.Void(t.Context(), id) }
	}
	for id, balance := range map[string]transfer.Amount{from: twice, to: most} {
		_, err := b.OpenAccount(t.Context(), transfer.Account{ID: id, Balance: balance})
		require.NoError(t, err)
	}
	for _, id := range []string{"fits", "waits"} {
		_, err := b.Hold(t.Context(), transfer.Request{ID: id, From: from, To: to, Amount: most}, time.Hour)
		require.NoError(t, err)
	}
	nearly, err := full.Sub(most)
	require.NoError(t, err)
	b.SetField("accounts", "b", "balance", nearly)
	_, err = end("fits")
	require.NoError(t, err)
	rec, err := end("waits")
	if given {
		require.ErrorIs(t, err, transfer.ErrCancelled)
	} else {
		require.ErrorIs(t, err, transfer.ErrUnsettled)
	}
	require.Equal(t, "unwritable", rec.Stuck.Code)
	requireAmount(t, b, full)
	_, err = b.Transfer(t.Context(), transfer.Request{ID: "makes room", From: "b", To: "a", Amount: most})
	require.NoError(t, err)
	b.RecoverAll()
	requireAmount(t, b, full)
	b.SetField("accounts", "b", "balance", most)
	require.Empty(t, b.MustAudit().Findings)
}

// requireAmount requires the balance of b.
func requireAmount(t *testing.T, b *bank.Bank, want transfer.Amount) {
	t.Helper()
	account, err := b.GetAccount(t.Context(), "b")
	require.NoError(t, err)
	require.Zero(t, account.Balance.Cmp(want), "%s, not %s", account.Balance, want)
}

func amount(t *testing.T, text string) (a transfer.Amount) {
	t.Helper()
	require.NoError(t, a.UnmarshalText([]byte(text)))
	return a
}

// A floor may be higher than any balance can be: somebody has stored it so. Then there is
// too little money for each debit, and credits come in.
func TestFloorAboveAllBalances(t *testing.T) {
	t.Parallel()
	highest, err := bson.ParseDecimal128("9999999999999999999999999999999999")
	require.NoError(t, err)
	for name, row := range map[string]struct {
		floor  any
		amount string
	}{
		"units":    {int64(math.MaxInt64 - 5), "10"},
		"decimals": {highest, "0.10"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t)
			moved := amount(t, row.amount)
			for _, id := range []string{"a", "b"} {
				_, err := b.OpenAccount(t.Context(), transfer.Account{ID: id, Balance: moved})
				require.NoError(t, err)
			}
			b.SetField("accounts", "a", "floor", row.floor)
			_, err := b.Transfer(t.Context(), transfer.Request{ID: "out", From: "a", To: "b", Amount: moved})
			require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
			_, err = b.Transfer(t.Context(), transfer.Request{ID: "in", From: "b", To: "a", Amount: moved})
			require.NoError(t, err)
			require.Empty(t, b.MustAudit().Findings)
		})
	}
}
