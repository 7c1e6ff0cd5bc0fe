package verbs

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A reversal that was stored just after another process has reserved its original, and
// died, takes that one over, though nobody calls Run, and though it has the only place.
func TestReversalBehindADeadOne(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustMove("t", 60)
	reached, released := make(chan struct{}), make(chan struct{})
	w := &bank.Wire{At: -1, Idle: true, Is: bank.Claim.Selector(), OnStrike: func() { close(reached); <-released }}
	c := b.NewCoordinator(b.Through(w.Client()), transfer.WithStallThreshold(time.Second),
		transfer.WithGroupCommit(transfer.GroupCommit{MaxPending: 1}))
	require.NoError(t, bank.ErrorOf(c.Get(t.Context(), "t"))) // what it asks a server first is asked
	require.NoError(t, bank.ErrorOf(c.Recover(t.Context())))
	w.SetIdle(false)
	told := make(chan error, 2)
	reverse := func(id string) { told <- bank.ErrorOf(c.Reverse(t.Context(), partOfT(id))) }
	go reverse("second")
	<-reached
	b.Dying(bank.MorePrepares, bank.Lost, func(ctx context.Context, dying *transfer.Coordinator) error {
		return bank.ErrorOf(dying.Reverse(ctx, partOfT("first")))
	})
	go reverse("third")
	close(released)
	require.NoError(t, <-told)
	require.NoError(t, <-told)
	require.Equal(t, "Success", b.RawTransfer("first").State)
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
}

// partOfT reverses a part of the transfer t.
func partOfT(id string) transfer.Reversal {
	return transfer.Reversal{ID: id, Of: "t", Amount: transfer.Units(10)}
}
