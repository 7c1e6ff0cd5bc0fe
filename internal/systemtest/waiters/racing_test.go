package waiters

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// If several debits together exceed the balance, exactly those succeed that it covers.
func TestRacingDebits(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	for round := range 10 {
		id := fmt.Sprint("account", round)
		_, err := b.OpenAccount(t.Context(), transfer.Account{ID: id, Balance: transfer.Units(100)})
		require.NoError(t, err)
		won := 0
		for _, err := range bank.Together(5, func(i int) error {
			_, err := b.Transfer(t.Context(), bank.Move(fmt.Sprint(id, "-", i), id, "b", 60))
			return err
		}) {
			if err == nil {
				won++
				continue
			}
			require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
		}
		require.Equal(t, 1, won)
	}
	want := bank.Balances(100, 0)
	for round := range 10 {
		want[fmt.Sprint("account", round)] = 100
	}
	b.CheckBooks(want)
}

// If many callers use one ID at once, over many coordinators, the money moves once, and
// all of them get the same outcome.
func TestRacingCallersOfOneID(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0)
	others := []*transfer.Coordinator{b.Coordinator, b.NewCoordinator(b.DB), b.NewCoordinator(b.DB)}
	for round := range 3 {
		records := make([]transfer.Record, 50)
		for _, err := range bank.Together(len(records), func(i int) (err error) {
			records[i], err = others[i%len(others)].Transfer(t.Context(), bank.Move(fmt.Sprint("t", round), "a", "b", 10))
			return err
		}) {
			require.NoError(t, err)
		}
		for _, rec := range records {
			bank.RequireSame(t, records[0], rec)
		}
	}
	require.Equal(t, map[string]int64{"a": 970, "b": 30}, b.Balances())
	b.CheckBooks(bank.Balances(1000, 0))
}

// Under random load between a few accounts, with sweeps at threshold zero and cancels,
// every balance agrees exactly with the outcomes.
func TestRandomLoad(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 100, 100, 100)
	random := bank.Seeded(t)
	var requests []transfer.Request
	for i := range 200 {
		from := random.IntN(4)
		to := (from + 1 + random.IntN(3)) % 4
		requests = append(requests, bank.Move(fmt.Sprint("t", i), bank.AccountName(from), bank.AccountName(to), 1+random.Int64N(60)))
	}
	eager := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0))
	told := make([]error, len(requests))
	for _, err := range bank.Together(8, func(worker int) error {
		for i := worker; i < len(requests); i += 8 {
			_, told[i] = b.Transfer(t.Context(), requests[i])
			if i%10 == 0 {
				if _, err := eager.Recover(t.Context()); err != nil {
					return err
				}
			}
			if i%7 == 0 {
				if _, err := b.Cancel(t.Context(), requests[(i+8)%len(requests)].ID, "why not"); err != nil &&
					!errors.Is(err, transfer.ErrAlreadyCommitted) && !errors.Is(err, transfer.ErrTransferNotFound) {
					return err
				}
			}
		}
		return nil
	}) {
		require.NoError(t, err)
	}
	for i, req := range requests {
		rec, err := b.Get(t.Context(), req.ID)
		require.NoError(t, err)
		if told[i] == nil {
			require.Equal(t, transfer.StateSuccess, rec.State)
			continue
		}
		require.Equal(t, transfer.StateFail, rec.State, "told %v", told[i])
		require.True(t, errors.Is(told[i], transfer.ErrInsufficientFunds) || errors.Is(told[i], transfer.ErrCancelled), "told %v", told[i])
	}
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 100, 100, 100))
}
