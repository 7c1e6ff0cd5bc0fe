package faults

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A wire finds a step by what it says: a command before it that was not answered, and is
// sent again, changes nothing.
func TestStepIsFoundAfterRepeats(t *testing.T) {
	t.Parallel()
	for again := bank.Fences; again < bank.Clears; again++ {
		t.Run(again.String(), func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			w := &bank.Wire{
				Is: bank.Clears.Selector(), What: bank.Lost, Die: true, OnDeath: cancel,
				AlsoAt: map[bank.Step]bank.Fault{again: bank.AnswerLost},
			}
			c := b.NewCoordinator(b.Through(w.Client()))
			_, err := c.Transfer(ctx, bank.Move("t", "a", "b", 60))
			bank.Kill(c)
			bank.RequireUnended(t, err)
			require.True(t, w.HasStruck())
			require.Greater(t, w.Sent(), int(bank.Clears)+1, "it was sent again: %v", w.SentSoFar())
			require.Equal(t, "Committed", b.RawTransfer("t").State)
			for _, account := range b.Raw("accounts") {
				require.Len(t, account["pending"], 1)
			}
			b.RecoverAll()
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}
