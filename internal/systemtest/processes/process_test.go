package processes

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// The environment of a process that works for a test: its database, its name, and what it
// does.
const (
	envDatabase = "TRANSFER_TEST_PROCESS_DATABASE"
	envName     = "TRANSFER_TEST_PROCESS_NAME"
	envDuty     = "TRANSFER_TEST_PROCESS_DUTY"
)

// The duties of a process.
const (
	works = "run"  // it calls Run
	moves = "move" // it moves 1 from a to b, and back, again and again, for many callers
)

// byNotesAlone makes a process take nothing over but from processes whose notes have
// stopped: whatever was taken over within the time of a test was noticed by them.
func byNotesAlone() transfer.Option { return transfer.WithStallThreshold(time.Hour) }

// callers is how many callers a process that moves money has.
const callers = 64

// TestProcess is run by the processes of the other tests.
// It ends with its standard input.
func TestProcess(t *testing.T) {
	database := os.Getenv(envDatabase)
	if database == "" {
		return // There is nothing to test: this is not a process that another test has started.
	}
	name := os.Getenv(envName)
	c, err := transfer.NewCoordinator(mongotest.Client(t).Database(database), transfer.WithOwner(name), byNotesAlone())
	require.NoError(t, err)
	ctx := bank.UntilInputEnds(t)
	if os.Getenv(envDuty) == works {
		require.NoError(t, c.Run(ctx))
	} else {
		move(ctx, c, name)
	}
	require.NoError(t, c.Close(t.Context()))
}

// move moves 1 from a to b, or back, for each caller again and again.
func move(ctx context.Context, c *transfer.Coordinator, name string) {
	var all sync.WaitGroup
	for i := range callers {
		from, to := "a", "b"
		if i%2 == 1 {
			from, to = to, from
		}
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_, _ = c.Transfer(context.WithoutCancel(ctx), bank.Move(fmt.Sprint(name, "-", i, "-", n), from, to, 1))
			}
		})
	}
	all.Wait()
}

// start starts a process that works for the bank.
func start(b *bank.Bank, name, duty string) *bank.Process {
	b.T.Helper()
	return bank.StartProcess(b.T, "TestProcess", name, envDatabase+"="+b.DB.Name(), envName+"="+name, envDuty+"="+duty)
}

// awaitMoves waits until a process has moved money, for a while.
func awaitMoves(b *bank.Bank, n int64) {
	b.T.Helper()
	bank.Until(b.T, 10*time.Millisecond, func() (bool, error) {
		done, err := b.Count(b.T.Context(), transfer.Query{States: []transfer.State{transfer.StateSuccess}})
		return done >= n, err
	})
}

// eventually is longer than anything takes here on a busy machine.
const eventually = 5 * time.Minute

// countUnfinished returns how many transfers are in progress, or left.
func countUnfinished(b *bank.Bank) (int64, error) {
	return b.Count(b.T.Context(), transfer.Query{Unfinished: true})
}

// unfinished is [countUnfinished] of a server that answers.
func unfinished(b *bank.Bank) int64 {
	b.T.Helper()
	n, err := countUnfinished(b)
	require.NoError(b.T, err)
	return n
}

// awaitUnfinished waits until so many transfers are in progress, or left.
func awaitUnfinished(b *bank.Bank, n int64, every time.Duration) {
	b.T.Helper()
	bank.Until(b.T, every, func() (bool, error) {
		now, err := countUnfinished(b)
		return now == n, err
	})
}
