package transfer_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

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
				requireAccount(b, "a", 100, 100, 0)
				requireAccount(b, "b", 5, 5, 0)
			} else {
				require.ErrorIs(t, err, transfer.ErrAlreadyCommitted)
				require.Equal(t, transfer.Unchanged, transfer.OutcomeOf(err))
				require.True(t, rec.State == transfer.StateCommitted || rec.State == transfer.StateSuccess, rec.State)
				requireAccount(b, "a", 40, 40, 0)
				requireAccount(b, "b", 65, 65, 0)
			}
			b.RecoverAll()
			b.CheckBooks(bank.Balances(100, 5))
			require.Empty(t, b.MustAudit().Findings)
		})
	}
}
