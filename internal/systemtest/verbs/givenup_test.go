package verbs

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A process has not given up a transfer that it works on in the background: a caller that
// asks for it again waits for that, and does not take it over.
func TestWhatGoesOnIsNotGivenUp(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	w := &bank.Wire{To: "accounts", Of: bank.Writes, What: bank.Swallowed}
	c := b.NewCoordinator(b.Through(w.Client()))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := make(chan error, 1)
	go func() {
		_, err := c.Transfer(ctx, bank.Move("t", "a", "b", 60))
		told <- err
	}()
	bank.Until(t, time.Millisecond, func() (bool, error) { return w.HasStruck(), nil })
	cancel()
	require.ErrorIs(t, bank.Within(t, told), transfer.ErrInDoubt)
	_, err := c.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.NoError(t, err)
	stored, err := b.Get(t.Context(), "t")
	require.NoError(t, err)
	require.EqualValues(t, 1, stored.Epoch)
	b.CheckBooks(bank.Balances(100, 0))
}
