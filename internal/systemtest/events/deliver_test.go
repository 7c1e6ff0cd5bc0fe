package events

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A worker delivers the event of each end, and of each hold, soon after: with the ID, the
// kind, the time and the record. Then nothing of it is left.
func TestEachEndIsDelivered(t *testing.T) {
	t.Parallel()
	in := newInbox()
	b := bank.NewWith(t, []transfer.Option{in.option()}, 100, 0).WithIndexes()
	end := bank.InBackground(t, b.Coordinator)
	b.MustMove("pay", 60)
	rec, err := b.Transfer(t.Context(), bank.Move("too much", "a", "b", 50))
	b.RequireRefused(rec, err, transfer.ErrInsufficientFunds, "insufficientFunds")
	b.MustHold("hold", 30, time.Hour)
	in.await(t, "pay:succeeded", "too much:failed", "hold:held")
	_, err = b.Post(t.Context(), "hold")
	require.NoError(t, err)
	b.MustSubmit("later")
	in.await(t, "hold:succeeded", "later:succeeded")
	end()
	requireDelivered(b)

	taken := in.taken()
	require.Len(t, taken, 5)
	for id, all := range taken {
		require.Len(t, all, 1, id)
		e := all[0]
		require.Equal(t, e.Record.ID+":"+string(e.Kind), e.ID)
		require.Equal(t, 1, e.Attempt)
		require.WithinDuration(t, time.Now(), e.At, 2*patience)
		stored, err := b.Get(t.Context(), e.Record.ID)
		require.NoError(t, err)
		if e.Kind != transfer.EventHeld {
			require.Equal(t, stored.LastModified, e.At, "it is the time of the state")
			require.True(t, e.Record.State.Final())
			e.Record.Undelivered = nil
			require.Equal(t, stored, e.Record)
		}
	}
	require.Equal(t, transfer.StateFail, taken["too much:failed"][0].Record.State)
	b.CheckBooks(bank.Balances(100, 0))
}
