package operations

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// patient asks for a transfer from a to b that waits for funds for an hour.
func patient(id string, units int64) transfer.Request {
	req := bank.Move(id, "a", "b", units)
	req.AwaitFundsUntil = time.Now().Add(time.Hour)
	return req
}

// submit stores transfers for a worker.
func submit(b *bank.Bank, requests ...transfer.Request) {
	b.T.Helper()
	for _, req := range requests {
		_, err := b.Submit(b.T.Context(), req)
		require.NoError(b.T, err)
	}
}

// waiting waits until a worker has put a transfer off at least so often, and returns it.
func waiting(b *bank.Bank, id string, postponed int) (rec transfer.Record) {
	b.T.Helper()
	bank.Until(b.T, 10*time.Millisecond, func() (bool, error) {
		var err error
		rec, err = b.Get(b.T.Context(), id)
		return rec.Postponed >= postponed, err
	})
	return rec
}

// due ends the pause of a transfer that waits for funds.
func due(b *bank.Bank, ids ...string) {
	b.T.Helper()
	for _, id := range ids {
		b.SetField("transfers", id, "notBefore", time.Now().Add(-time.Second))
	}
}

// requireWaiting requires that a transfer waits for the money of a, and says so.
func requireWaiting(b *bank.Bank, rec transfer.Record, asked transfer.Request) {
	b.T.Helper()
	require.Equal(b.T, transfer.StateInitiated, rec.State)
	require.Zero(b.T, rec.Epoch)
	require.Nil(b.T, rec.Failure)
	require.Nil(b.T, rec.Stuck)
	lack := transfer.Failure{Code: "insufficientFunds", Account: "a", Message: transfer.ErrInsufficientFunds.Error()}
	require.Equal(b.T, &lack, rec.Waiting)
	require.True(b.T, rec.NextTry.After(rec.CreatedAt.Add(-time.Second)))
	require.False(b.T, rec.NextTry.After(rec.AwaitFundsUntil))
	require.WithinDuration(b.T, asked.AwaitFundsUntil, rec.AwaitFundsUntil, time.Millisecond)
	require.WithinDuration(b.T, asked.NotBefore, rec.NotBefore, time.Millisecond)
}

// A submitted transfer that lacks funds waits for them, across restarts of its worker,
// and says so in its record.
// It touches no account, and succeeds once the money is there.
func TestSubmittedAwaitsFunds(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 10, 0, 50).WithIndexes()
	end := bank.InBackground(t, b.NewCoordinator(b.DB))
	req, scheduled := patient("t", 60), patient("scheduled", 61)
	scheduled.NotBefore = time.Now().Add(-time.Minute)
	submit(b, req, scheduled)
	requireWaiting(b, waiting(b, "t", 1), req)
	requireWaiting(b, waiting(b, "scheduled", 1), scheduled)
	again, err := b.Submit(t.Context(), req)
	require.NoError(t, err)
	requireWaiting(b, again, req)
	require.Equal(t, bank.Balances(10, 0, 50), b.Balances())
	require.Empty(t, b.MustAudit().Findings)
	end()

	end = bank.InBackground(t, b.NewCoordinator(b.DB))
	due(b, "t")
	requireWaiting(b, waiting(b, "t", 2), req)
	_, err = b.Transfer(t.Context(), bank.Move("salary", "c", "a", 50))
	require.NoError(t, err)
	due(b, "t", "scheduled")
	rec, err := b.Wait(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
	require.EqualValues(t, 1, rec.Epoch)
	require.Nil(t, rec.Waiting)
	require.Zero(t, rec.NextTry)
	require.Zero(t, rec.NotBefore)
	require.GreaterOrEqual(t, rec.Postponed, 2)
	require.WithinDuration(t, req.AwaitFundsUntil, rec.AwaitFundsUntil, time.Millisecond)
	end()
	require.Equal(t, bank.Balances(0, 60, 0), b.Balances())
	b.CancelWaiting()
	b.CheckBooks(bank.Balances(10, 0, 50))
}

// At its deadline a transfer that still lacks funds is refused, like any other.
func TestFundsDeadline(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 10, 0).WithIndexes()
	end := bank.InBackground(t, b.NewCoordinator(b.DB))
	req, past := patient("t", 60), patient("past", 60)
	req.AwaitFundsUntil = time.Now().Add(300 * time.Millisecond)
	past.AwaitFundsUntil = time.Now().Add(-time.Hour)
	submit(b, req, past)
	for _, asked := range []transfer.Request{req, past} {
		rec, err := b.Wait(t.Context(), asked.ID)
		b.RequireRefused(rec, err, transfer.ErrInsufficientFunds, "insufficientFunds")
		require.False(t, rec.LastModified.Before(asked.AwaitFundsUntil.Truncate(time.Millisecond)), "before its deadline")
		require.Nil(t, rec.Waiting)
		require.Zero(t, rec.NextTry)
		require.EqualValues(t, 1, rec.Epoch)
		again, err := b.Submit(t.Context(), asked)
		require.ErrorIs(t, err, transfer.ErrInsufficientFunds, "it is over")
		require.Equal(t, rec, again)
	}
	rec, err := b.Get(t.Context(), "past")
	require.NoError(t, err)
	require.Zero(t, rec.Postponed, "it was run at once")
	end()
	b.CheckBooks(bank.Balances(10, 0))
}

// Only funds are waited for: what an account refuses for another reason is refused at
// once, however long the transfer would wait.
func TestOnlyFundsAreAwaited(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 0, 0, 0, 0).WithIndexes()
	require.NoError(t, b.CloseAccount(t.Context(), "c"))
	frozen := true
	_, err := b.UpdateAccount(t.Context(), "d", transfer.AccountChange{Frozen: &frozen})
	require.NoError(t, err)
	end := bank.InBackground(t, b.NewCoordinator(b.DB))
	dollars := patient("accountNotFound", 60)
	for code, to := range map[string]string{"accountNotFound": "nobody", "accountClosed": "c", "accountFrozen": "d"} {
		req := patient(code, 60)
		req.To = to
		submit(b, req)
	}
	dollars.ID, dollars.Currency = "currencyMismatch", "USD"
	decimals := patient("amountKind", 60)
	decimals.Amount = bank.Decimal(t, "60.00")
	submit(b, dollars, decimals)
	for _, code := range []string{"accountNotFound", "accountClosed", "accountFrozen", "currencyMismatch", "amountKind"} {
		rec, err := b.Wait(t.Context(), code)
		require.Error(t, err)
		require.Equal(t, transfer.StateFail, rec.State)
		require.Equal(t, code, rec.Failure.Code)
		require.Zero(t, rec.Postponed)
	}
	end()
	b.CheckBooks(bank.Balances(0, 0, 0, 0))
}

// A Transfer with the same ID runs what waits at once, for good, and a Cancel takes it
// back.
func TestWaitingIsRunOrCancelled(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 10, 0).WithIndexes()
	end := bank.InBackground(t, b.NewCoordinator(b.DB))
	ids := []string{"run", "refused", "taken back"}
	submit(b, patient("run", 15), patient("refused", 60), patient("taken back", 60))
	for _, id := range ids {
		waiting(b, id, 1)
	}
	b.SetField("accounts", "a", "balance", int64(15)) // as other code may
	rec, err := b.Transfer(t.Context(), bank.Move("run", "a", "b", 15))
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
	rec, err = b.Transfer(t.Context(), bank.Move("refused", "a", "b", 60))
	b.RequireRefused(rec, err, transfer.ErrInsufficientFunds, "insufficientFunds")
	rec, err = b.Cancel(t.Context(), "taken back", "no longer wanted")
	require.NoError(t, err)
	require.Equal(t, transfer.StateFail, rec.State)
	require.Equal(t, "cancelled", rec.Failure.Code)
	for _, id := range ids {
		rec, err := b.Get(t.Context(), id)
		require.NoError(t, err)
		require.Nil(t, rec.Waiting, id)
		require.EqualValues(t, 1, rec.Epoch, id)
	}
	end()
	b.CheckBooks(bank.Balances(15, 0))
}

// Money that another process has brought is noticed long before a pause of a minute ends,
// by the worker that has put the transfer off.
func TestMoneyIsNoticed(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 10, 0, 50).WithIndexes()
	end := bank.InBackground(t, b.NewCoordinator(b.DB))
	submit(b, patient("t", 60))
	waiting(b, "t", 1)
	long := bson.M{"postponed": int64(9), "notBefore": time.Now().Add(-time.Second)} // and it is due
	b.Change("transfers", "t", bson.M{"$set": long})
	rec := waiting(b, "t", 10)
	require.Greater(t, rec.NextTry.Sub(rec.LastModified), 30*time.Second)
	salary, err := b.NewCoordinator(b.DB).Transfer(t.Context(), bank.Move("salary", "c", "a", 50))
	require.NoError(t, err)
	paid, err := b.Wait(t.Context(), "t")
	require.NoError(t, err)
	t.Logf("noticed after %s", paid.LastModified.Sub(salary.LastModified))
	require.True(t, paid.LastModified.Before(rec.NextTry), "it was noticed by the next look")
	require.Equal(t, 10, paid.Postponed)
	end()
	b.CheckBooks(bank.Balances(10, 0, 50))
}

// One worker never takes the same money for two transfers that wait: those that the money
// covers succeed, and the others go on waiting.
func TestOneWorkerCountsMoneyOnce(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 0, 0).WithIndexes()
	end := bank.InBackground(t, b.NewCoordinator(b.DB))
	ids := bank.Numbered("t", 40)
	for _, id := range ids {
		submit(b, patient(id, 30))
	}
	for _, id := range ids {
		waiting(b, id, 1)
	}
	b.SetField("accounts", "a", "balance", int64(100))
	in := func(state transfer.State) []string { return b.IDs(transfer.Query{States: []transfer.State{state}}) }
	require.Eventually(t, func() bool {
		due(b, in(transfer.StateInitiated)...)
		return len(in(transfer.StateSuccess)) == 3
	}, 5*time.Minute, 200*time.Millisecond)
	require.Len(t, in(transfer.StateInitiated), 37)
	require.Empty(t, in(transfer.StateFail))
	end()
	b.CancelWaiting()
	b.CheckBooks(bank.Balances(100, 0))
}

// Money is not counted twice while a debit is on its way, however long that takes: who
// looks meanwhile goes on waiting, and does not take the money of who was first.
// That holds as well for what is run because its deadline has come.
func TestMoneyIsKeptForADebitUnderWay(t *testing.T) {
	t.Parallel()
	past := time.Now().Add(-time.Minute).UTC().Truncate(time.Millisecond)
	for name, change := range map[string]bson.M{
		"the money has come":             {"notBefore": past},
		"its deadline has come":          {"notBefore": past, "fundsUntil": past.Add(time.Second)},
		"it has waited for its deadline": {"notBefore": past, "fundsUntil": past, "postponed": int64(3)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 0, 0).WithIndexes()
			w := &bank.Wire{Is: commandWith("update", "pending.first"), What: bank.Swallowed}
			end := bank.InBackground(t, b.NewCoordinator(b.Through(w.Client())))
			submit(b, patient("first", 60))
			waiting(b, "first", 1)
			b.Change("transfers", "first", bson.M{"$set": change})
			b.SetField("accounts", "a", "balance", int64(100))
			require.Eventually(t, w.HasStruck, 5*time.Minute, time.Millisecond)
			submit(b, patient("second", 60))
			_, err := b.Wait(t.Context(), "first")
			require.NoError(t, err)
			require.Equal(t, transfer.StateInitiated, waiting(b, "second", 1).State)
			end()
			require.Equal(t, bank.Balances(40, 60), b.Balances())
			b.CancelWaiting()
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// A transfer that was changed since it was stored is not put off: who would run it says
// what is wrong, and it is left as it is.
func TestDamagedIsNotPutOff(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 0, 0).WithIndexes()
	end := bank.InBackground(t, b.NewCoordinator(b.DB))
	submit(b, patient("damaged", 60), patient("other", 60))
	for _, id := range []string{"damaged", "other"} {
		waiting(b, id, 1)
	}
	const before = 50 // no look that has begun by now puts it off any more
	damage := bson.M{"legs.0.amount": int64(-61), "postponed": int64(before)}
	b.Change("transfers", "damaged", bson.M{"$set": damage}) // its digest says otherwise
	for looks := 1; looks <= 3; looks++ {
		due(b, "damaged", "other")
		waiting(b, "other", looks+1)
	}
	end()
	require.Equal(t, before, waiting(b, "damaged", 1).Postponed)
	b.SetField("transfers", "damaged", "legs.0.amount", int64(-60))
	b.CancelWaiting()
	b.CheckBooks(bank.Balances(0, 0))
}

// Workers that race put each transfer off, or run it, once, and none is lost.
func TestWorkersShareWhatWaits(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 0, 0).WithIndexes()
	var ends []func()
	for range 3 {
		ends = append(ends, bank.InBackground(t, b.NewCoordinator(b.DB)))
	}
	ids := bank.Numbered("t", 30)
	for _, id := range ids {
		submit(b, patient(id, 1))
	}
	for _, id := range ids {
		waiting(b, id, 1)
	}
	b.SetField("accounts", "a", "balance", int64(30))
	due(b, ids...)
	for _, id := range ids {
		rec, err := b.Wait(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, transfer.StateSuccess, rec.State)
		require.EqualValues(t, 1+rec.Attempts, rec.Epoch)
	}
	for _, end := range ends {
		end()
	}
	b.CheckBooks(bank.Balances(30, 0))
}

// commandWith recognizes a command that contains a word.
func commandWith(command, word string) func([]byte) bool {
	return func(message []byte) bool {
		name, counts := bank.CommandIn(message)
		return counts && name == command && bytes.Contains(message, []byte(word))
	}
}

// A worker may die at the read of the accounts or at the postponement, and its write may
// arrive when everything is over: the transfer is run once, and is never called waiting
// after that.
func TestWorkerDiesAtALook(t *testing.T) {
	t.Parallel()
	for i, strike := range []struct {
		is   func([]byte) bool
		what bank.Fault
	}{
		{commandWith("find", "\x02find\x00\x09\x00\x00\x00accounts"), bank.Lost},
		{commandWith("update", "waiting"), bank.Lost},
		{commandWith("update", "waiting"), bank.AnswerLost},
		{commandWith("update", "waiting"), bank.Held},
	} {
		t.Run(fmt.Sprint(i, " ", strike.what), func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 10, 0).WithIndexes()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			w := &bank.Wire{Is: strike.is, What: strike.what, Die: true, OnDeath: cancel}
			dying := b.NewCoordinator(b.Through(w.Client()))
			submit(b, patient("t", 60))
			ended := make(chan error, 1)
			go func() { ended <- dying.Run(ctx) }()
			<-ctx.Done()
			bank.Kill(dying)
			require.NoError(t, bank.Within(t, ended))
			require.True(t, w.HasStruck())
			require.Equal(t, bank.Balances(10, 0), b.Balances())
			b.SetField("accounts", "a", "balance", int64(60))
			due(b, "t")
			end := bank.InBackground(t, b.NewCoordinator(b.DB))
			_, err := b.Wait(t.Context(), "t")
			require.NoError(t, err)
			end()
			rec, err := b.Get(t.Context(), "t")
			require.NoError(t, err)
			w.Deliver(t)
			late, err := b.Get(t.Context(), "t")
			require.NoError(t, err)
			require.Equal(t, rec, late, "a late message has changed a final transfer")
			require.Equal(t, transfer.StateSuccess, late.State)
			b.CheckBooks(bank.Balances(60, 0))
		})
	}
}

// A transfer that was put off while the server's clock was ahead waits for that time: the
// index doesn't tell it from what was scheduled.
// The audit shows it, and Transfer runs it at once.
func TestPutOffAheadOfTheClock(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 10, 0, 50).WithIndexes()
	end := bank.InBackground(t, b.NewCoordinator(b.DB))
	req, scheduled := patient("t", 60), patient("scheduled", 1)
	scheduled.NotBefore = time.Now().Add(50 * time.Minute)
	submit(b, req, scheduled)
	waiting(b, "t", 1)
	end()
	b.SetField("transfers", "t", "notBefore", time.Now().Add(10*time.Minute))
	require.Empty(t, b.MustAudit().Findings)
	b.SetField("transfers", "t", "notBefore", time.Now().Add(50*time.Minute))
	report := b.MustAudit()
	require.Equal(t, []audit.Code{audit.WrongTime}, bank.CodesOf(report))
	require.Equal(t, "t", report.Findings[0].ID)

	_, err := b.Transfer(t.Context(), bank.Move("salary", "c", "a", 50))
	require.NoError(t, err)
	rec, err := b.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
	require.Empty(t, b.MustAudit().Findings)
	b.CancelWaiting()
	b.CheckBooks(bank.Balances(10, 0, 50))
}
