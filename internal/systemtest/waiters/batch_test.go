package waiters

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/recovery"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// counted returns the options of a client that counts its commands, except those by which
// it learns about the server.
func counted(commands *atomic.Int64) *options.ClientOptions {
	return options.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName != "hello" && e.CommandName != "endSessions" {
			commands.Add(1)
		}
	}})
}

// TransferMany returns an outcome for each request, in their order: done, refused,
// invalid, or the same as its duplicate.
func TestTransferMany(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	records, failures := b.TransferMany(t.Context(), []transfer.Request{
		bank.Move("one", "a", "b", 10),
		bank.Move("too much", "a", "b", 1000),
		bank.Move("", "a", "b", 10),
		bank.Move("two", "a", "b", 20),
		bank.Move("one", "a", "b", 10),
		bank.Move("nowhere", "a", "nobody", 10),
	})
	require.Len(t, records, 6)
	require.Len(t, failures, 6)
	for i, want := range []error{
		nil, transfer.ErrInsufficientFunds, transfer.ErrInvalidRequest, nil, nil, transfer.ErrAccountNotFound,
	} {
		bank.RequireAnswer(t, want, failures[i], fmt.Sprint("request ", i))
	}
	for i, id := range []string{"one", "too much", "", "two", "one", "nowhere"} {
		require.Equal(t, id, records[i].ID)
	}
	bank.RequireSame(t, records[0], records[4])
	require.Equal(t, map[string]int64{"a": 70, "b": 30}, b.Balances())
	b.CheckBooks(bank.Balances(100, 0))

	records, failures = b.TransferMany(t.Context(), nil)
	require.Empty(t, records)
	require.Empty(t, failures)
}

// Transfers that run at once share their commands.
// A few hundred of them need a fraction of each command, on many accounts or on one, and
// every balance is exact.
func TestTransfersShareCommands(t *testing.T) {
	t.Parallel()
	for name, from := range map[string]func(i int) string{
		"uniform": func(i int) string { return fmt.Sprint("account", i%40) },
		"hot":     func(int) string { return "a" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100_000)
			want := bank.Balances(100_000)
			for i := range 40 {
				id := fmt.Sprint("account", i)
				_, err := b.OpenAccount(t.Context(), transfer.Account{ID: id, Balance: transfer.Units(1000)})
				require.NoError(t, err)
				want[id] = 1000
			}
			var commands atomic.Int64
			c := b.NewCoordinator(b.Through(counted(&commands)))
			const transfers = 2048
			for _, err := range bank.Together(256, func(caller int) error {
				for i := caller; i < transfers; i += 256 {
					if _, err := c.Transfer(t.Context(), bank.Move(fmt.Sprint("t", i), from(i), fmt.Sprint("account", (i*7+1)%40), 1)); err != nil {
						return err
					}
				}
				return nil
			}) {
				require.NoError(t, err)
			}
			require.Less(t, commands.Load(), int64(transfers/5))
			b.CheckBooks(want)
		})
	}
}

// A command that hangs in the network delays no other transfer, not even on the same
// account. On a busy machine the others may be slower than the time after which the
// command is given up: then they are tried again.
func TestHangingCommandHoldsUpNobody(t *testing.T) {
	t.Parallel()
	for name, point := range map[string]int{"insert": 0, "prepare": 1, "decision": 2, "settle": 3, "finish": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := false
			for n := 0; n < 5 && !first; n++ {
				first = othersComeFirst(t, point)
			}
			require.True(t, first, "the others are done before the one that hangs")
		})
	}
}

// othersComeFirst reports whether others are done before a transfer whose command hangs.
func othersComeFirst(t *testing.T, point int) bool {
	t.Helper()
	b := bank.New(t, 100, 0)
	hangs := make(chan struct{})
	w := &bank.Wire{At: point, What: bank.Swallowed, Idle: true, OnStrike: func() { close(hangs) }}
	c := b.NewCoordinator(b.Through(w.Client()))
	_, err := c.Transfer(t.Context(), bank.Move("warm", "a", "b", 1))
	require.NoError(t, err)
	w.SetIdle(false)
	ended := make(chan error, 1)
	go func() {
		_, err := c.Transfer(t.Context(), bank.Move("hangs", "a", "b", 1))
		ended <- err
	}()
	bank.Within(t, hangs)
	for i := range 3 {
		_, err := c.Transfer(t.Context(), bank.Move(fmt.Sprint("other", i), "a", "b", 1))
		require.NoError(t, err)
	}
	first := len(ended) == 0
	require.NoError(t, bank.Within(t, ended))
	b.CheckBooks(bank.Balances(100, 0))
	return first
}

// A worker claims and runs many submitted transfers with a fraction of a command for
// each.
func TestWorkersShareCommands(t *testing.T) {
	t.Parallel()
	const submitted = 600
	b := bank.New(t, submitted, 0)
	for _, err := range bank.Together(32, func(i int) error {
		for n := i; n < submitted; n += 32 {
			if _, err := b.Submit(t.Context(), bank.Move(fmt.Sprint("t", n), "a", "b", 1)); err != nil {
				return err
			}
		}
		return nil
	}) {
		require.NoError(t, err)
	}
	var commands atomic.Int64
	c := b.NewCoordinator(b.Through(counted(&commands)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	for n := range submitted {
		_, err := b.Wait(t.Context(), fmt.Sprint("t", n))
		require.NoError(t, err)
	}
	require.Less(t, commands.Load(), int64(submitted), "each alone takes four, and shares in the rest")
	cancel()
	require.NoError(t, bank.Within(t, ended))
	b.CheckBooks(bank.Balances(submitted, 0))
}

// A sweep takes over thousands of stalled transfers, all on one account, with a fraction
// of a command for each, and reports its progress.
func TestRecoveryIsBatched(t *testing.T) {
	t.Parallel()
	const stalled = 3000
	b := bank.New(t, 100_000, 0)
	b.StallAt("t", bank.Decision, bank.Lost, 1) // its prepares are done
	multiply(b, "t", stalled-1)
	var (
		commands atomic.Int64
		log      bank.Logged
	)
	c := b.NewCoordinator(b.Through(counted(&commands)), transfer.WithStallThreshold(0), transfer.WithLogger(slog.New(&log)))
	begun := time.Now()
	report, err := c.Recover(t.Context())
	took := time.Since(begun)
	require.NoError(t, err)
	require.Equal(t, transfer.RecoveryReport{Found: stalled, Succeeded: stalled - report.Stuck, Stuck: report.Stuck}, report)
	if took < recovery.Limit { // a server that is busy for longer leaves many to the next sweep
		require.Less(t, report.Stuck, stalled/10)
	}
	sweeps := 1
	bank.Until(t, 10*time.Millisecond, func() (bool, error) {
		if b.Unfinished() == 0 {
			return true, nil
		}
		sweeps++
		_, err := c.Recover(t.Context())
		return false, err
	})
	require.Less(t, commands.Load(), int64(stalled/2), "each alone takes four; a slow server gets smaller ones")
	require.GreaterOrEqual(t, log.Count("a recovery sweep is under way"), 3)
	require.LessOrEqual(t, log.Count("a recovery sweep has ended"), sweeps)
	b.CheckBooks(bank.Balances(100_000, 0))
}

// multiply stores copies of a transfer whose process has died after the claim.
func multiply(b *bank.Bank, id string, n int) {
	b.T.Helper()
	var document bson.M
	transfers := b.DB.Collection("transfers")
	require.NoError(b.T, transfers.FindOne(b.T.Context(), bson.M{"_id": id}).Decode(&document))
	copies := make([]bson.M, n)
	for i := range copies {
		copies[i] = maps.Clone(document)
		copies[i]["_id"] = fmt.Sprint(id, i)
	}
	_, err := transfers.InsertMany(b.T.Context(), copies)
	require.NoError(b.T, err)
}
