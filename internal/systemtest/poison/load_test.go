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

// Hundreds of transfers that can't be finished hold up the recovery of the others neither
// when they are first met, nor later, when they are hardly ever tried. How fast that is
// depends on what else the machine does: so commands are counted, in which they are named
// or not, and between two sweeps no time has to pass.
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
	b.StandStill("poisoned", half) // for longer than others wait, and not for as long as these do
	b.LeaveCommitted("more", "b", half)
	_, poisoned = sweep(transfer.RecoveryReport{Found: half, Succeeded: half})
	require.Zero(t, poisoned, "they are not looked at")
	require.Len(t, b.IDs(transfer.Query{Stuck: true}), half)
	repair()
	require.Equal(t, half, b.RecoverAll().Succeeded)
	b.CheckBooks(bank.Balances(3*half, 0, 0))
}

// named returns the options of a client whose commands are counted, and of them those
// with a text in them.
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
