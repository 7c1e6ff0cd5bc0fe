package processes

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

const (
	// soon is within what time the transfers of a dead process are finished, where others
	// leave a test's machine alone.
	soon = 3 * time.Second
	// early is what every death is noticed within: half of the stall threshold.
	early = 15 * time.Second
)

// left returns a bank whose process was killed with transfers in progress.
func left(t *testing.T) *bank.Bank {
	t.Helper()
	b := bank.New(t, 100_000, 100_000).WithIndexes()
	for range 20 {
		p := start(b, "mover", moves)
		awaitMoves(b, 300)
		p.kill()
		if settled(b) > 0 {
			return b
		}
		b.Renew(t, 100_000, 100_000)
	}
	require.Fail(t, "the process has never left anything behind")
	return nil
}

// settled waits until the server has done what a process that was killed has sent, and
// returns how many transfers are left.
func settled(b *bank.Bank) int64 {
	b.T.Helper()
	n, same := unfinished(b), 0
	require.Eventually(b.T, func() bool {
		now := unfinished(b)
		if same++; now != n {
			n, same = now, 0
		}
		return same > 20
	}, eventually, 10*time.Millisecond)
	return n
}

// finished waits until everything is finished, and returns how long that took.
func finished(b *bank.Bank) time.Duration {
	b.T.Helper()
	begun, n := time.Now(), unfinished(b)
	require.Eventually(b.T, func() bool { return unfinished(b) == 0 }, eventually, 10*time.Millisecond)
	took := time.Since(begun)
	b.T.Logf("%d transfers were finished within %s", n, took.Round(10*time.Millisecond))
	require.Less(b.T, took, early)
	return took
}

// The transfers of a process that was killed are taken over soon by any process that
// calls Run, although the stall threshold is ten times as long.
// The process that died never called Run.
func TestDeadProcessIsNoticed(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100_000, 100_000).WithIndexes()
	worker := start(b, "worker", works)
	best := early
	for round := 0; best > soon; round++ {
		require.Less(t, round, 10, "the soonest took %s", best)
		mover := start(b, fmt.Sprint("mover", round), moves)
		awaitMoves(b, int64(500*(round+1)))
		mover.kill()
		best = min(best, finished(b))
	}
	worker.end()
	b.CheckBooks(bank.Balances(100_000, 100_000))
}

// A process that dies in its very first transfer is noticed as soon.
func TestDeathInTheFirstTransfer(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	end := bank.InBackground(t, b.NewCoordinator(b.DB))
	b.StallAt("t", bank.Decision, bank.Lost, 60)
	finished(b)
	rec, err := b.Get(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, 1, rec.Attempts)
	end()
	b.CheckBooks(bank.Balances(100, 0))
}

// A worker that starts after the death finds what is left as well.
func TestDeathBeforeTheStart(t *testing.T) {
	t.Parallel()
	b := left(t)
	worker := start(b, "worker", works)
	finished(b)
	worker.end()
	b.CheckBooks(bank.Balances(100_000, 100_000))
}
