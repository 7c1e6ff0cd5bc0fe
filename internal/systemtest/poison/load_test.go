package poison

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// Hundreds of transfers that can't be finished don't delay the recovery of others,
// neither at first nor later, when they are hardly ever tried.
// The time depends on the load of the machine. So the test counts commands, with and
// without these transfers, and needs no time between two sweeps.
func TestPoisonHoldsUpNobody(t *testing.T) {
	t.Parallel()
	const half = 500
	b := bank.New(t, 3*half, 0, 0).WithIndexes()
	sweep := func(want transfer.RecoveryReport) (commands, poisoned int64) {
		var all, some atomic.Int64
		c := b.NewCoordinator(b.Through(named("poisoned", &all, &some)), transfer.WithStallThreshold(time.Hour))
		begun := time.Now()
		report, err := c.Recover(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, report)
		t.Logf("%d found, %d of them stuck: %d commands, %d of them with poisoned ones, %s",
			report.Found, report.Stuck, all.Load(), some.Load(), time.Since(begun))
		return all.Load(), some.Load()
	}
	b.LeaveCommitted("poisoned", "c", half)
	repair := bank.Deleted("c")(b)
	b.LeaveCommitted("fine", "b", half)
	commands, poisoned := sweep(transfer.RecoveryReport{Found: 2 * half, Succeeded: half, Stuck: half})
	require.Positive(t, poisoned)
	require.Less(t, commands, int64(half), "they share commands: of those that each needs not one is its own")
	b.StandStill("poisoned", half) // longer than others wait, and not as long as these do
	b.LeaveCommitted("more", "b", half)
	_, poisoned = sweep(transfer.RecoveryReport{Found: half, Succeeded: half})
	require.Zero(t, poisoned, "they are not looked at")
	require.Len(t, b.IDs(transfer.Query{Stuck: true}), half)
	repair()
	require.Equal(t, half, b.RecoverAll().Succeeded)
	b.CheckBooks(bank.Balances(3*half, 0, 0))
}

// named returns the options of a client that counts its commands, and those of them that
// contain a text.
func named(text string, all, some *atomic.Int64) *options.ClientOptions {
	return options.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "hello" || e.CommandName == "endSessions" {
			return
		}
		all.Add(1)
		if bytes.Contains(e.Command, []byte(text)) {
			some.Add(1)
		}
	}})
}
