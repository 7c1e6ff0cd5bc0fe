package verbs

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// Cancel ends a transfer that is not committed, whatever it has reserved.
// It returns the same outcome however often it is called.
func TestCancel(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.StallHalf("preparing", 60)
	_, err := b.Submit(t.Context(), bank.Move("initiated", "a", "b", 60))
	require.NoError(t, err)
	for _, id := range []string{"preparing", "initiated"} {
		rec, err := b.Cancel(t.Context(), id, "no longer wanted")
		require.NoError(t, err)
		require.Equal(t, transfer.StateFail, rec.State)
		require.Equal(t, &transfer.Failure{Code: "cancelled", Message: "no longer wanted"}, rec.Failure)
		again, err := b.Cancel(t.Context(), id, "another reason")
		require.NoError(t, err)
		require.Equal(t, rec, again)
		rec, err = b.Transfer(t.Context(), bank.Move(id, "a", "b", 60))
		require.ErrorIs(t, err, transfer.ErrCancelled)
		require.ErrorContains(t, err, "no longer wanted")
		require.Equal(t, again, rec)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// Cancel comes too late for a committed transfer, and changes nothing.
func TestCancelTooLate(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	_, err := b.Transfer(t.Context(), bank.Move("success", "a", "b", 1))
	require.NoError(t, err)
	b.StallAt("committed", bank.Settles, bank.Lost, 1)
	_, err = b.Transfer(t.Context(), bank.Move("refused", "a", "b", 1000))
	require.Error(t, err)
	for id, state := range map[string]transfer.State{"success": transfer.StateSuccess, "committed": transfer.StateCommitted} {
		rec, err := b.Cancel(t.Context(), id, "")
		require.ErrorIs(t, err, transfer.ErrAlreadyCommitted)
		require.Equal(t, state, rec.State)
	}
	rec, err := b.Cancel(t.Context(), "refused", "")
	require.NoError(t, err)
	require.Equal(t, "insufficientFunds", rec.Failure.Code)
	_, err = b.Cancel(t.Context(), "nothing", "")
	require.ErrorIs(t, err, transfer.ErrTransferNotFound)
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
}

// Cancel finishes a half-done rollback once it has stalled.
func TestCancelFinishesARollback(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.StallAt("other", bank.Decision, bank.Lost, 60) // reserves the money
	b.StallAt("t", bank.Finish, bank.Lost, 60)       // after fences, insert, touch, look and decision
	rec, err := b.Get(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, transfer.StateRollback, rec.State)
	rec, err = b.NewCoordinator(b.DB, transfer.WithStallThreshold(50*time.Millisecond)).Cancel(t.Context(), "t", "")
	require.NoError(t, err)
	require.Equal(t, "insufficientFunds", rec.Failure.Code)
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
}

// A transfer that is committed by fact can't be cancelled, even if its record is not
// stored yet. Cancel stores it, and says so. One participant that is not prepared is
// enough for it to be cancelled.
func TestCancelOfAFact(t *testing.T) {
	t.Parallel()
	b := bank.New(t)
	for _, payee := range []bank.Trace{bank.Reserved, bank.Done, bank.Unprepared} {
		t.Run(fmt.Sprint(payee), func(t *testing.T) {
			b.Renew(t, 100, 5)
			b.LeaveTraces("t", 60, "Preparing", bank.Reserved, payee)
			rec, err := b.Cancel(t.Context(), "t", "a test")
			if payee == bank.Unprepared {
				require.NoError(t, err)
				require.Equal(t, transfer.StateFail, rec.State)
				b.RequireStanding("a", 100, 100, 0)
				b.RequireStanding("b", 5, 5, 0)
			} else {
				require.ErrorIs(t, err, transfer.ErrAlreadyCommitted)
				require.Equal(t, transfer.Unchanged, transfer.OutcomeOf(err))
				require.True(t, rec.State == transfer.StateCommitted || rec.State == transfer.StateSuccess, rec.State)
				b.RequireStanding("a", 40, 40, 0)
				b.RequireStanding("b", 65, 65, 0)
			}
			b.RecoverAll()
			b.CheckBooks(bank.Balances(100, 5))
			require.Empty(t, b.MustAudit().Findings)
		})
	}
}
