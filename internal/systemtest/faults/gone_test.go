package faults

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// afterUpdate returns the options of a client that does something once, as soon as its
// first update of a collection with some text in it is over: before anybody is told, and
// also where its answer is lost.
func afterUpdate(collection, text string, do func()) *options.ClientOptions {
	var (
		mu      sync.Mutex
		awaited int64
		once    sync.Once
	)
	over := func(id int64) {
		mu.Lock()
		due := awaited != 0 && id == awaited
		mu.Unlock()
		if due {
			once.Do(do)
		}
	}
	return options.Client().SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			mu.Lock()
			defer mu.Unlock()
			name, _ := e.Command.Lookup("update").StringValueOK()
			if awaited == 0 && name == collection && bytes.Contains(e.Command, []byte(text)) {
				awaited = e.RequestID
			}
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) { over(e.RequestID) },
		Failed:    func(_ context.Context, e *event.CommandFailedEvent) { over(e.RequestID) },
	})
}

// Money that is due to an account which was deleted after the commit is not taken for
// paid because the other account's statement of the same command has matched: the
// transfer stays committed, and goes on once the account is back. So it is for a debit,
// whose marker would come back with it.
func TestAccountGoneBeforeItIsSettled(t *testing.T) {
	t.Parallel()
	for _, account := range []string{"a", "b"} {
		t.Run(account, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			var restore func()
			c := b.NewCoordinator(b.Through(afterUpdate("transfers", "Committed", func() { restore = bank.Deleted(account)(b) })))
			rec, err := c.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
			require.NotNil(t, restore)
			require.ErrorIs(t, err, transfer.ErrUnsettled)
			require.ErrorContains(t, err, `account "`+account+`" is gone`)
			require.Equal(t, transfer.StateCommitted, rec.State)
			b.RequireStuck("t", transfer.StateCommitted, account, "accountNotFound", 0)
			restore()
			require.Equal(t, 1, b.RecoverAll().Succeeded)
			require.Equal(t, map[string]int64{"a": 40, "b": 60}, b.Balances())
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// A transfer whose document is removed while it is under way is in doubt: nobody can tell
// whether it has happened. To begin anew would move the money twice where it had just
// been finished, and its answer was lost.
func TestTransferGoneWhileUnderWay(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		wire       *bank.Wire
		collection string
		text       string // in the update after which it is removed
		arrives    int64
		findings   []audit.Code
	}{
		"before the decision":   {&bank.Wire{At: -1}, "accounts", "pending.t", 0, []audit.Code{audit.OrphanMarker, audit.OrphanMarker}},
		"after the commit":      {&bank.Wire{At: -1}, "transfers", "Committed", 60, []audit.Code{}},
		"finished, and unheard": {&bank.Wire{At: 5, What: bank.AnswerLost}, "transfers", "Success", 60, []audit.Code{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			b := bank.New(t, 100, 0)
			gone := false
			monitor := afterUpdate(row.collection, row.text, func() { b.Remove("transfers", "t"); gone = true })
			c := b.NewCoordinator(b.Through(monitor.SetDialer(row.wire)))
			_, err := c.Transfer(ctx, bank.Move("t", "a", "b", 60))
			require.True(t, gone)
			require.Equal(t, row.wire.What != "", row.wire.HasStruck())
			assert.Empty(t, b.Raw("transfers"), "it was stored again")
			balances := map[string]int64{}
			for _, document := range b.Raw("accounts") {
				balances[document["_id"].(string)] = document["balance"].(int64)
			}
			assert.Equal(t, map[string]int64{"a": 40, "b": row.arrives}, balances)
			require.ErrorIs(t, err, transfer.ErrInDoubt)
			require.ErrorContains(t, err, "removed while it was under way")
			require.Equal(t, row.findings, bank.CodesOf(b.MustAudit()))
		})
	}
}

// A call that has sent its claim, and can't reach the server any more, is in doubt when
// it gives up, with the context that it was given still alive: what it asked for may be
// stored, and here it is. One that has sent nothing knows so. This takes as long as the
// patience with a server that is away, once for all of them.
func TestGivenUpAfterItsClaim(t *testing.T) {
	t.Parallel()
	pays := func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Transfer(ctx, bank.Move("t", "a", "b", 60))
		return err
	}
	holds := func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Hold(ctx, bank.Move("t", "a", "b", 60), time.Hour)
		return err
	}
	cancels := func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Cancel(ctx, "t", "")
		return err
	}
	rows := []struct {
		name      string
		submitted bool
		at        int // the command that is struck, after which the server can't be reached
		what      bank.Fault
		verb      func(ctx context.Context, c *transfer.Coordinator) error
		told      transfer.Outcome
		state     any // that is stored
	}{
		{"a transfer, before its claim", false, 0, bank.Lost, pays, transfer.NothingStored, nil},
		{"a transfer, stored", false, 1, bank.AnswerLost, pays, transfer.InDoubt, "Preparing"},
		{"a hold, stored", false, 1, bank.AnswerLost, holds, transfer.InDoubt, "Preparing"},
		{"a cancellation, stored", true, 1, bank.AnswerLost, cancels, transfer.InDoubt, "Rollback"},
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	banks, wires := make([]*bank.Bank, len(rows)), make([]*bank.Wire, len(rows))
	coordinators := make([]*transfer.Coordinator, len(rows))
	for i, row := range rows {
		b := bank.New(t, 100, 0)
		if row.submitted {
			_, err := b.Submit(ctx, bank.Move("t", "a", "b", 60))
			require.NoError(t, err)
		}
		w := &bank.Wire{At: row.at, What: row.what, Die: true, Idle: true}
		c := b.NewCoordinator(b.Through(w.Client()))
		_, err := c.GetAccount(ctx, "a") // the server is known to be fit
		require.NoError(t, err)
		w.SetIdle(false)
		banks[i], wires[i], coordinators[i] = b, w, c
	}
	told := bank.Together(len(rows), func(i int) error { return rows[i].verb(ctx, coordinators[i]) })
	require.NoError(t, ctx.Err())
	for i, row := range rows {
		b := banks[i]
		require.True(t, wires[i].HasStruck(), row.name)
		require.Error(t, told[i], row.name)
		require.Equal(t, row.told, transfer.OutcomeOf(told[i]), "%s: %v", row.name, told[i])
		var state any
		for _, stored := range b.Raw("transfers") {
			state = stored["state"]
		}
		require.Equal(t, row.state, state, row.name)
		b.ExpireAll()
		b.RecoverAll()
		b.CheckBooks(bank.Balances(100, 0))
	}
}
