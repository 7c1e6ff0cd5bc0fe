package processes

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// soon is within what time the transfers of a dead process are finished, where others
// leave a test's machine alone.
const soon = 3 * time.Second

// envQuiet says that they do, if it is set.
const envQuiet = "TRANSFER_TEST_QUIET"

// left returns a bank whose process was killed with transfers in progress.
func left(t *testing.T) *bank.Bank {
	t.Helper()
	b := bank.New(t, 100_000, 100_000).WithIndexes()
	for range 20 {
		p := start(b, "mover", moves)
		awaitMoves(b, 300)
		p.Kill()
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
	bank.Until(b.T, 10*time.Millisecond, func() (bool, error) {
		now, err := countUnfinished(b)
		if same++; now != n {
			n, same = now, 0
		}
		return same > 20, err
	})
	return n
}

// finished waits until everything is finished, and returns how long that took. Who does
// it is one [byNotesAlone]: the stall threshold ends long after the wait.
func finished(b *bank.Bank) time.Duration {
	b.T.Helper()
	begun, n := time.Now(), unfinished(b)
	awaitUnfinished(b, 0, 10*time.Millisecond)
	took := time.Since(begun)
	b.T.Logf("%d transfers were finished within %s", n, took.Round(10*time.Millisecond))
	return took
}

// The transfers of a process that was killed are taken over by any process that calls
// Run, long before the stall threshold, and within some seconds where the machine is
// known to be quiet.
// The process that died never called Run.
func TestDeadProcessIsNoticed(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100_000, 100_000).WithIndexes()
	worker := start(b, "worker", works)
	best := eventually
	for round := 0; round == 0 || os.Getenv(envQuiet) != "" && best > soon; round++ {
		require.Less(t, round, 10, "the soonest took %s", best)
		mover := start(b, fmt.Sprint("mover", round), moves)
		awaitMoves(b, int64(500*(round+1)))
		mover.Kill()
		n := takenOver(b)
		best = min(best, finished(b))
		t.Logf("%d of them were taken over; the soonest death was noticed, and all was finished, within %s", takenOver(b)-n, best)
	}
	worker.End()
	b.CheckBooks(bank.Balances(100_000, 100_000))
}

// A process that dies in its very first transfer is noticed as soon.
func TestDeathInTheFirstTransfer(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	end := bank.InBackground(t, b.NewCoordinator(b.DB, byNotesAlone()))
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
	worker.End()
	b.CheckBooks(bank.Balances(100_000, 100_000))
}
