package transfer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// requireAccount requires what an account shows.
func requireAccount(b *bank.Bank, id string, available, posted, incoming int64) {
	b.T.Helper()
	account, err := b.GetAccount(b.T.Context(), id)
	require.NoError(b.T, err)
	want := []transfer.Amount{transfer.Units(available), transfer.Units(posted), transfer.Units(incoming)}
	require.Equal(b.T, want, []transfer.Amount{account.Available, account.Posted, account.Incoming}, "account %s", id)
}

// In each state of a transfer, the payer has posted the money until the transfer is
// recorded, and the payee has it from when it is paid in. A mark that it was paid in is
// neither a debit nor a credit in flight.
func TestAccountBesideTraces(t *testing.T) {
	t.Parallel()
	b := bank.New(t)
	for _, row := range []struct {
		state         string
		payer, payee  bank.Trace
		payersPosted  int64
		payees, comes int64
	}{
		{"Preparing", bank.Reserved, bank.Reserved, 100, 5, 60},
		{"Preparing", bank.Reserved, bank.Done, 100, 65, 0},
		{"Committed", bank.Reserved, bank.Reserved, 40, 5, 60},
		{"Committed", bank.Reserved, bank.Done, 40, 65, 0},
		{"Committed", bank.Reserved, bank.Cleared, 40, 65, 0},
		{"Committed", bank.Cleared, bank.Reserved, 40, 5, 60},
		{"Committed", bank.Cleared, bank.Done, 40, 65, 0},
	} {
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			b.Renew(t, 100, 5)
			b.LeaveTraces("t.1", 60, row.state, row.payer, row.payee)
			requireAccount(b, "a", 40, row.payersPosted, 0)
			requireAccount(b, "b", row.payees, row.payees, row.comes)
			require.Empty(t, b.MustAudit().Findings)
			b.RecoverAll()
			b.CheckBooks(bank.Balances(100, 5))
			requireAccount(b, "a", 40, 40, 0)
			requireAccount(b, "b", 65, 65, 0)
		})
	}
}

// Of a hold of which a part was posted, the rest is in flight until it is paid back. What
// was rolled back is in flight until it is given back.
func TestAccountBesideAPartOfAHold(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 5)
	b.MustHold("t", 60, time.Hour)
	requireAccount(b, "a", 40, 100, 0)
	b.Dying(1, bank.AnswerLost, func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Post(ctx, "t", transfer.PostAmount(transfer.Units(20)))
		return err
	})
	require.Equal(t, "Committed", b.RawTransfer("t").State)
	requireAccount(b, "a", 40, 80, 0)
	b.RecoverAll()
	requireAccount(b, "a", 80, 80, 0)
	b.MustHold("u", 30, time.Hour)
	b.SetField("transfers", "u", "state", "Rollback")
	requireAccount(b, "a", 50, 80, 0)
}

// An account that has no debits in flight is read by one command. One that has some is
// read with their transfers, as both were stored at one time.
func TestTransfersAreReadOnlyWhereDebitsAreInFlight(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 5)
	b.LeaveTraces("t", 60, "Committed", bank.Reserved, bank.Reserved)
	var finds []bson.M
	watched := options.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "find" {
			var command bson.M
			_ = bson.Unmarshal(e.Command, &command)
			finds = append(finds, command)
		}
	}})
	c := b.NewCoordinator(b.Through(watched))
	_, err := c.GetAccount(t.Context(), "b") // and checks the deployment
	require.NoError(t, err)
	for id, want := range map[string]int{"a": 2, "b": 1} {
		finds = nil
		_, err := c.GetAccount(t.Context(), id)
		require.NoError(t, err)
		require.Len(t, finds, want, "account %s", id)
		require.Equal(t, "accounts", finds[0]["find"])
		concern, _ := finds[want-1]["readConcern"].(bson.D)
		require.Equal(t, "snapshot", concern[0].Value)
		if want == 2 {
			require.Equal(t, "transfers", finds[1]["find"])
			require.Equal(t, "atClusterTime", concern[1].Key)
		}
	}
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 5))
}

// An account whose transfers are all committed is closed when their markers are gone,
// which CloseAccount waits for. Done marks are no hindrance.
func TestCloseAccountWaitsForClears(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.LeaveTraces("t", 100, "Committed", bank.Reserved, bank.Done)
	begun, ended := 0, 0
	var clears sync.WaitGroup
	b.HurryUpBy(func(id string) (done func()) {
		require.Equal(t, "t", id)
		begun++
		clears.Go(func() {
			_ = collections.Pause(t.Context(), 100*time.Millisecond)
			b.RecoverAll()
		})
		return func() { ended++ }
	})
	require.NoError(t, b.CloseAccount(t.Context(), "a"))
	clears.Wait()
	require.Equal(t, []int{1, 1}, []int{begun, ended}, "it is hurried up once, and the end is told")
	b.CheckBooks(bank.Balances(100, 0))
}

// Not all that is in flight is waited for: what is undecided may take for ever, and
// waiting takes no money away. What is committed, and is not cleared for long, is in the
// way like anything else.
func TestCloseAccountDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		plant func(b *bank.Bank)
		want  error
		waits bool
	}{
		"undecided": {func(b *bank.Bank) { b.LeaveTraces("t", 100, "Preparing", bank.Reserved, bank.Done) }, transfer.ErrAccountBusy, false},
		"undecided, and not only": {func(b *bank.Bank) {
			b.LeaveTraces("t", 50, "Committed", bank.Reserved, bank.Done)
			b.LeaveTraces("u", 50, "Preparing", bank.Reserved, bank.Reserved)
		}, transfer.ErrAccountBusy, false},
		"of no transfer": {func(b *bank.Bank) {
			b.MustMove("t", 100)
			b.SetField("accounts", "a", "pending.%zz", int64(-1))
		}, transfer.ErrAccountBusy, false},
		"with money left": {func(b *bank.Bank) {
			b.LeaveTraces("t", 60, "Committed", bank.Reserved, bank.Done)
		}, transfer.ErrAccountNotEmpty, false},
		"never cleared": {func(b *bank.Bank) { b.LeaveTraces("t", 100, "Committed", bank.Reserved, bank.Done) }, transfer.ErrAccountBusy, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			row.plant(b)
			ahead, waits := b.ClockAhead(), false
			b.HurryUpBy(func(string) func() {
				waits = true
				ahead(transfer.ClearPatience)
				return func() {}
			})
			require.ErrorIs(t, b.CloseAccount(t.Context(), "a"), row.want)
			require.Equal(t, row.waits, waits)
		})
	}
}

// Whoever is paid, and has spent it, can close the account, done mark or not.
func TestCloseAccountBesideADoneMark(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.LeaveTraces("t", 100, "Committed", bank.Cleared, bank.Done)
	_, err := b.Transfer(t.Context(), bank.Move("back", "b", "a", 100))
	require.NoError(t, err)
	require.NoError(t, b.CloseAccount(t.Context(), "b"))
	require.Empty(t, b.MustAudit().Findings)
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
}
