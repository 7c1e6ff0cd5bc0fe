package processes

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// drainLimit is how long Run waits for what it has begun.
const drainLimit = 10 * time.Second

// A process whose worker hangs on a server that is away stops in time all the same: Run
// returns nil once it has waited for as long as it may, and Close with its deadline.
// What is left is finished by another process, soon after that server is back.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	b, set := bank.New(t, 100, 0).WithIndexes(), startSet(t)
	c := across(b, set)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	require.NoError(t, set.Pause(0))
	_, err := c.Submit(t.Context(), bank.Across("hangs", 5))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		rec, err := b.Get(t.Context(), "hangs")
		return err == nil && rec.State == transfer.StatePreparing
	}, eventually, time.Millisecond)
	stopped := time.Now()
	stop()
	require.NoError(t, bank.Within(t, ended))
	require.Less(t, time.Since(stopped), 2*drainLimit)

	closing, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.ErrorIs(t, c.Close(closing), context.DeadlineExceeded)
	require.ErrorIs(t, c.Healthy(t.Context()), transfer.ErrClosed)

	another := b.NewCoordinator(b.DB, other(b, set), byNotesAlone())
	require.NoError(t, set.Resume(0))
	end := bank.InBackground(t, another)
	limited, cancel := context.WithTimeout(t.Context(), eventually)
	defer cancel()
	rec, err := another.Wait(limited, "hangs")
	require.NoError(t, err, "it did not wait for the threshold")
	require.Equal(t, 1, rec.Attempts)
	end()
	bank.RequireLedgers(t, another, map[string]int64{"": 94, "other": 6})
}

// A worker that is stopped in the middle of its work finishes what it has begun, leaves
// the rest to others, and returns nil.
func TestStopInTheMiddle(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	for i := range 3 {
		worker := start(b, "worker", works)
		for _, id := range bank.Numbered("t"+string(rune('a'+i)), 100) {
			b.MustSubmit(id)
		}
		worker.End()
		require.Zero(t, b.Unfinished(), "what it had begun")
	}
	worker := start(b, "worker", works)
	awaitUnfinished(b, 0, 10*time.Millisecond)
	worker.End()
	require.Zero(t, takenOver(b))
	b.CheckBooks(bank.Balances(1000, 0))
}
