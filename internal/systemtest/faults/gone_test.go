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

// afterUpdate returns the options of a client that calls do once, as soon as its first
// update of a collection that contains a text is over.
// The call comes before the caller gets the answer, and also if the answer is lost.
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

// A committed transfer owes money to a deleted account. The money doesn't count as paid
// because the other account's statement in the same command has matched.
// The transfer stays committed, and goes on once the account is back.
// The same holds for a debit, whose marker would come back with the account.
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

// A transfer whose document is removed in the middle is in doubt, since nothing shows
// whether it has happened.
// A new start would move the money twice if it had just been finished and its answer
// lost.
func TestTransferGoneWhileUnderWay(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		wire       *bank.Wire
		collection string
		text       string // in the update before the removal
		arrives    int64
		findings   []audit.Code
	}{
		"before the record":     {&bank.Wire{At: -1}, "accounts", "pending.t", 60, []audit.Code{audit.OrphanMarker, audit.OrphanMarker}},
		"after the record":      {&bank.Wire{At: -1}, "transfers", "Committed", 60, []audit.Code{}},
		"finished, and unheard": {&bank.Wire{Is: bank.Finish.Selector(), What: bank.AnswerLost}, "transfers", "Success", 60, []audit.Code{}},
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

// A call that has sent its claim, and can't reach the server any more, gives up in doubt
// while its context is still alive.
// The claim may be stored, and here it is. A call that has sent nothing knows that
// nothing is stored.
// The test takes the time limit for a server that is away, once for all cases.
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
	rows := []goneRow{
		{"a transfer, before its claim", false, bank.Fences, bank.Lost, pays, transfer.NothingStored, nil},
		{"a transfer, stored", false, bank.Claim, bank.AnswerLost, pays, transfer.InDoubt, "Preparing"},
		{"a hold, stored", false, bank.Claim, bank.AnswerLost, holds, transfer.InDoubt, "Preparing"},
		{"a cancellation, stored", true, bank.Claim, bank.AnswerLost, cancels, transfer.InDoubt, "Rollback"},
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for try := 0; len(rows) > 0; try++ {
		require.Less(t, try, 3, "the server stores nothing in time")
		rows = notStored(ctx, t, rows)
	}
}

// goneRow is a call of [TestGivenUpAfterItsClaim].
type goneRow struct {
	name      string
	submitted bool
	at        bank.Step // the struck command, after which the server can't be reached
	what      bank.Fault
	verb      func(ctx context.Context, c *transfer.Coordinator) error
	told      transfer.Outcome
	state     any // in the stored document
}

// notStored makes all calls at once. It returns those whose claim a busy server has given
// up, which nobody could see, as the answer was lost.
func notStored(ctx context.Context, t *testing.T, rows []goneRow) []goneRow {
	t.Helper()
	banks, wires := make([]*bank.Bank, len(rows)), make([]*bank.Wire, len(rows))
	coordinators := make([]*transfer.Coordinator, len(rows))
	for i, row := range rows {
		b := bank.New(t, 100, 0)
		if row.submitted {
			_, err := b.Submit(ctx, bank.Move("t", "a", "b", 60))
			require.NoError(t, err)
		}
		w := &bank.Wire{Is: row.at.Selector(), What: row.what, Die: true, Idle: true}
		c := b.NewCoordinator(b.Through(w.Client()))
		_, err := c.GetAccount(ctx, "a") // checks the server
		require.NoError(t, err)
		w.SetIdle(false)
		banks[i], wires[i], coordinators[i] = b, w, c
	}
	before := make([]any, len(rows))
	for i := range rows {
		before[i] = storedState(banks[i])
	}
	told := bank.Together(len(rows), func(i int) error { return rows[i].verb(ctx, coordinators[i]) })
	require.NoError(t, ctx.Err())
	var again []goneRow
	for i, row := range rows {
		b := banks[i]
		require.True(t, wires[i].HasStruck(), row.name)
		require.Error(t, told[i], row.name)
		require.Equal(t, row.told, transfer.OutcomeOf(told[i]), "%s: %v", row.name, told[i])
		state := storedState(b)
		if state == before[i] && state != row.state {
			again = append(again, row)
			continue
		}
		require.Equal(t, row.state, state, row.name)
		b.ExpireAll()
		b.RecoverAll()
		b.CheckBooks(bank.Balances(100, 0))
	}
	return again
}

// storedState returns the state of a bank's only transfer, nil if there is none.
func storedState(b *bank.Bank) (state any) {
	for _, stored := range b.Raw("transfers") {
		state = stored["state"]
	}
	return state
}
