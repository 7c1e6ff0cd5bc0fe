package faults

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// The record and the pays go out together, and a process may die when one of them is
// stored. The other one arrives when everything is over.
// The caller has its answer by then, or learns that the transfer is committed. That is
// true under either policy.
func TestRecordAndPaysArriveApart(t *testing.T) {
	t.Parallel()
	for _, at := range []transfer.ReturnAt{transfer.AtCommit, transfer.AtSettled, transfer.AtSuccess} {
		for _, late := range []bank.Step{bank.Record, bank.Settles} {
			for _, policy := range []transfer.StallPolicy{transfer.Resume, transfer.RollBack} {
				t.Run(fmt.Sprintf("%v, %d, policy=%d", late, at, policy), func(t *testing.T) {
					t.Parallel()
					arriveApart(bank.New(t, 100, 0), at, late, policy)
				})
			}
		}
	}
}

func arriveApart(b *bank.Bank, at transfer.ReturnAt, late bank.Step, policy transfer.StallPolicy) {
	t := b.T
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	w := &bank.Wire{Is: late.Selector(), What: bank.Delayed}
	c := b.NewCoordinator(b.Through(w.Client()), transfer.WithReturnAt(at))
	answer := bank.CallAll(1, func(int) (transfer.Record, error) { return transferring(ctx, c) })
	bank.Until(t, time.Millisecond, func() (bool, error) {
		if late == bank.Settles {
			return w.HasStruck() && b.RawTransfer("t").State == "Committed", nil
		}
		payee, err := b.GetAccount(t.Context(), "b")
		return w.HasStruck() && payee.Available == transfer.Units(60), err
	})
	w.Cut()
	cancel()
	bank.Kill(c)
	told := answer()[0]
	if at == transfer.AtCommit {
		require.NoError(t, told.Err)
	} else {
		require.ErrorIs(t, told.Err, transfer.ErrUnsettled)
	}
	require.Equal(t, transfer.StateCommitted, told.Rec.State)
	require.Empty(t, b.MustAudit().Findings)
	require.Equal(t, transfer.RecoveryReport{Found: 1, Succeeded: 1}, b.RecoverAll(transfer.WithStallPolicy(policy)))
	require.Equal(t, bank.Balances(40, 60), b.Balances())
	arriveLate(b, []*bank.Wire{w}, "")
	require.Equal(t, bank.Balances(40+deposit, 60+deposit), b.Balances())
	require.Empty(t, b.MustAudit().Findings)
}
