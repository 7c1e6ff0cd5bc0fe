package transfer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// Cancel ends what is not committed, whatever it has reserved, and answers alike however often it is asked.
func TestCancel(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.StallAt("preparing", 3, bank.Lost, 60)
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

// Cancel comes too late for what is committed, and changes nothing.
func TestCancelTooLate(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	_, err := b.Transfer(t.Context(), bank.Move("success", "a", "b", 1))
	require.NoError(t, err)
	b.StallAt("committed", 4, bank.Lost, 1)
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

// A roll-back that was left half done is ended by Cancel once it has stalled.
func TestCancelFinishesARollback(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.StallAt("other", 3, bank.Lost, 60) // reserves the money
	b.StallAt("t", 5, bank.Lost, 60)     // after fences, insert, touch, look and decision
	rec, err := b.Get(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, transfer.StateRollback, rec.State)
	rec, err = b.NewCoordinator(b.DB, transfer.WithStallThreshold(50*time.Millisecond)).Cancel(t.Context(), "t", "")
	require.NoError(t, err)
	require.Equal(t, "insufficientFunds", rec.Failure.Code)
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
}
