package holds

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// An expired hold can't be posted.
// The first of Post, a repeated Hold, Recover and Run voids it.
func TestExpiry(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(*bank.Bank) error{
		"Post": func(b *bank.Bank) error {
			_, err := b.Post(b.T.Context(), "h")
			return err
		},
		"Hold": func(b *bank.Bank) error {
			_, err := b.Hold(b.T.Context(), bank.Move("h", "a", "b", 60), time.Hour)
			return err
		},
		"Recover": func(b *bank.Bank) error {
			report, err := b.Recover(b.T.Context())
			require.NoError(b.T, err)
			require.Equal(b.T, transfer.RecoveryReport{Found: 1, Failed: 1, Expired: 1}, report)
			_, err = b.Wait(b.T.Context(), "h")
			return err
		},
		"Run": func(b *bank.Bank) error {
			ctx, cancel := context.WithCancel(b.T.Context())
			var running sync.WaitGroup
			running.Go(func() { _ = b.Run(ctx) })
			defer running.Wait()
			defer cancel()
			_, err := b.Wait(b.T.Context(), "h")
			return err
		},
	} {
		for _, stalled := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " stalled ", stalled), func(t *testing.T) {
				t.Parallel()
				b := bank.New(t, 100, 0).WithIndexes()
				expiredHold(b, stalled)
				require.ErrorIs(t, act(b), transfer.ErrExpired)
				rec, err := b.Void(t.Context(), "h")
				require.NoError(t, err)
				require.Equal(t, "expired", rec.Failure.Code)
				require.Equal(t, "nobody has decided it in time", rec.Failure.Message)
				require.Zero(t, rec.Attempts)
				b.RequireStanding("a", 100, 100, 0)
				b.CheckBooks(bank.Balances(100, 0))
			})
		}
	}
}

// expiredHold leaves the hold h of 60, which has expired, perhaps before it was held.
func expiredHold(b *bank.Bank, stalled bool) {
	b.T.Helper()
	if stalled {
		b.StallHold("h", bank.HeldMark)
	} else {
		b.MustHold("h", 60, time.Hour)
	}
	b.Expire("h")
}

// Void and Cancel of an expired hold say so, even before a sweep has found it.
// Later calls have the same outcome as if one had.
func TestVoidAfterExpiry(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(*bank.Bank) (transfer.Record, error){
		"Void":   func(b *bank.Bank) (transfer.Record, error) { return b.Void(b.T.Context(), "h") },
		"Cancel": func(b *bank.Bank) (transfer.Record, error) { return b.Cancel(b.T.Context(), "h", "no longer wanted") },
	} {
		for _, stalled := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " stalled ", stalled), func(t *testing.T) {
				t.Parallel()
				b := bank.New(t, 100, 0).WithIndexes()
				expiredHold(b, stalled)
				for range 2 {
					rec, err := act(b)
					require.NoError(t, err)
					require.Equal(t, &transfer.Failure{Code: "expired", Message: "nobody has decided it in time"}, rec.Failure)
				}
				_, err := b.Post(t.Context(), "h")
				require.ErrorIs(t, err, transfer.ErrExpired)
				_, err = b.Hold(t.Context(), bank.Move("h", "a", "b", 60), time.Hour)
				require.ErrorIs(t, err, transfer.ErrExpired)
				_, err = b.Wait(t.Context(), "h")
				require.ErrorIs(t, err, transfer.ErrExpired)
				b.RequireStanding("a", 100, 100, 0)
				b.CheckBooks(bank.Balances(100, 0))
			})
		}
	}
}

// A worker voids a hold soon after its expiry, however rarely it sweeps for stalled
// transfers.
func TestRunVoidsSoon(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.MustHold("h", 60, time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second) // a sweep comes once in 30 s
	var running sync.WaitGroup
	running.Go(func() { _ = b.Run(ctx) })
	defer running.Wait()
	defer cancel()
	_, err := b.Wait(ctx, "h")
	require.ErrorIs(t, err, transfer.ErrExpired)
	b.CheckBooks(bank.Balances(100, 0))
}

// Recovery never treats a hold as stalled before its expiry, even if its process has died
// before everything was held.
// A repeated Hold goes on with it.
func TestRecoveryLeavesHoldsAlone(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 200, 0).WithIndexes()
	b.MustHold("h", 60, time.Hour)
	b.StallHold("stalled", bank.HeldMark)
	c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0))
	report, err := c.Recover(t.Context())
	require.NoError(t, err)
	require.Zero(t, report)
	rec, err := c.Hold(t.Context(), bank.Move("stalled", "a", "b", 60), time.Hour)
	require.NoError(t, err)
	require.Equal(t, transfer.StatePreparing, rec.State)
	b.RequireStanding("a", 80, 200, 0)
	for _, id := range []string{"h", "stalled"} {
		_, err := b.Post(t.Context(), id)
		require.NoError(t, err)
	}
	b.CheckBooks(bank.Balances(200, 0))
}

// If a process decides a hold as expired and dies, the hold counts as expired, whichever
// process finishes it.
func TestExpiredIsCountedWhoeverDecided(t *testing.T) {
	t.Parallel()
	for _, next := range []bank.Step{bank.Settles, bank.Finish} { // the decision is stored
		t.Run(next.String(), func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0).WithIndexes()
			b.MustHold("h", 60, time.Hour)
			b.Expire("h")
			b.Dying(next, bank.Lost, func(ctx context.Context, c *transfer.Coordinator) error {
				_, err := c.Post(ctx, "h")
				return err
			})
			rec, err := b.Get(t.Context(), "h")
			require.NoError(t, err)
			require.Equal(t, transfer.StateRollback, rec.State)
			report, err := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0)).Recover(t.Context())
			require.NoError(t, err)
			require.Equal(t, transfer.RecoveryReport{Found: 1, Failed: 1, Expired: 1}, report)
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}
