package operations

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
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// Submitted transfers run once each, with any number of workers.
// Their submitters can wait for the outcome.
func TestWorkersRunWhatIsSubmitted(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	var ends []func()
	for range 3 {
		ends = append(ends, bank.InBackground(t, b.NewCoordinator(b.DB)))
	}
	for i := range 40 {
		rec, err := b.Submit(t.Context(), bank.Move(fmt.Sprint("t", i), "a", "b", 3))
		require.NoError(t, err)
		require.Equal(t, transfer.StateInitiated, rec.State)
		require.Zero(t, rec.Epoch)
	}
	succeeded := 0
	for i := range 40 {
		rec, err := b.Wait(t.Context(), fmt.Sprint("t", i))
		if err == nil {
			require.Equal(t, transfer.StateSuccess, rec.State)
			succeeded++
			continue
		}
		require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	}
	require.Equal(t, 33, succeeded)
	for _, end := range ends {
		end()
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// A worker leaves alone a transfer whose time has not come.
// A Transfer with the same ID runs it at once.
func TestNotBefore(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	end := bank.InBackground(t, b.Coordinator)
	later, soon := bank.Move("later", "a", "b", 1), bank.Move("soon", "a", "b", 2)
	later.NotBefore = time.Now().Add(time.Hour)
	soon.NotBefore = time.Now().Add(300 * time.Millisecond)
	_, err := b.Submit(t.Context(), later)
	require.NoError(t, err)
	_, err = b.Submit(t.Context(), soon)
	require.NoError(t, err)
	rec, err := b.Wait(t.Context(), "soon")
	require.NoError(t, err)
	require.False(t, rec.LastModified.Before(soon.NotBefore.Truncate(time.Millisecond)), "it ran before its time")
	rec, err = b.Get(t.Context(), "later")
	require.NoError(t, err)
	require.Equal(t, transfer.StateInitiated, rec.State)
	_, err = b.Transfer(t.Context(), later)
	require.ErrorIs(t, err, transfer.ErrInvalidRequest, "NotBefore is for Submit")
	rec, err = b.Transfer(t.Context(), bank.Move("later", "a", "b", 1))
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
	end()
	b.CheckBooks(bank.Balances(100, 0))
}

// A worker recovers stalled transfers.
func TestWorkerRecovers(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.StallAt("t", bank.Settles, bank.Lost, 60)
	end := bank.InBackground(t, b.NewCoordinator(b.DB, transfer.WithStallThreshold(0)))
	_, err := b.Wait(t.Context(), "t")
	require.NoError(t, err)
	end()
	b.CheckBooks(bank.Balances(100, 0))
}

// Wait goes on with periodic reads when its change stream ends, as it does when a
// collection is replaced.
func TestWaitOutlivesItsStream(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	_, err := b.Submit(t.Context(), bank.Move("t", "a", "b", 60))
	require.NoError(t, err)
	opened := make(chan struct{})
	var once sync.Once
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "getMore" {
			once.Do(func() { close(opened) })
		}
	}}
	c := b.NewCoordinator(b.Through(options.Client().SetMonitor(monitor)))
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	done := make(chan error, 2)
	go func() {
		_, err := c.Wait(ctx, "t")
		done <- err
		_, err = c.Wait(t.Context(), "t")
		done <- err
	}()
	bank.Within(t, opened)
	_, err = b.DB.Collection("transfers").Aggregate(t.Context(), bson.A{bson.D{{Key: "$out", Value: "copy"}}})
	require.NoError(t, err)
	rename := bson.D{
		{Key: "renameCollection", Value: b.DB.Name() + ".copy"}, {Key: "to", Value: b.DB.Name() + ".transfers"}, {Key: "dropTarget", Value: true},
	}
	require.NoError(t, b.DB.Client().Database("admin").RunCommand(t.Context(), rename).Err())
	require.ErrorIs(t, bank.Within(t, done), transfer.ErrInDoubt, "it ends with its context")
	_, err = b.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.NoError(t, err)
	require.NoError(t, bank.Within(t, done))
	b.CheckBooks(bank.Balances(100, 0))
}

// Wait ends in doubt with its context, and at once for a transfer that doesn't exist.
// Workers and calls end when their coordinator is closed.
func TestWaitEnds(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	_, err := b.Submit(t.Context(), bank.Move("t", "a", "b", 60))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	rec, err := b.Wait(ctx, "t")
	require.ErrorIs(t, err, transfer.ErrInDoubt)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, transfer.StateInitiated, rec.State)
	_, err = b.Wait(t.Context(), "nothing")
	require.ErrorIs(t, err, transfer.ErrTransferNotFound)
	_, err = b.Cancel(t.Context(), "t", "")
	require.NoError(t, err)
	_, err = b.Wait(t.Context(), "t")
	require.ErrorIs(t, err, transfer.ErrCancelled)
	b.CheckBooks(bank.Balances(100, 0))

	for name, call := range map[string]func() error{
		"wait":     func() error { _, err := b.Wait(ctx, "t"); return err },
		"cancel":   func() error { _, err := b.Cancel(ctx, "t", ""); return err },
		"transfer": func() error { _, err := b.Transfer(ctx, bank.Move("u", "a", "b", 1)); return err },
	} {
		err := call()
		require.Equal(t, context.DeadlineExceeded, err, "%s: the context had ended before anything was asked", name)
	}
	_, err = b.Wait(ctx, "")
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	require.NoError(t, b.Close(t.Context()))
	require.NoError(t, b.Close(t.Context()), "closing twice is no error")
	for _, call := range []func() error{
		func() error { return b.Run(t.Context()) },
		func() error { return b.Setup(t.Context()) },
		func() error { _, err := b.Recover(t.Context()); return err },
		func() error { _, err := b.Get(t.Context(), "t"); return err },
		func() error { _, err := b.Wait(t.Context(), "t"); return err },
		func() error { _, err := b.Cancel(t.Context(), "t", ""); return err },
		func() error { _, err := b.Submit(t.Context(), bank.Move("u", "a", "b", 1)); return err },
		func() error { _, err := b.OpenAccount(t.Context(), transfer.Account{ID: "x"}); return err },
	} {
		err := call()
		require.ErrorIs(t, err, transfer.ErrClosed)
		require.NotErrorIs(t, err, transfer.ErrInDoubt)
	}
}

// A scheduled transfer touches no account before its time.
// Of two submissions with one ID, the first one's time counts.
// A Transfer runs it at once, and a Cancel takes it back.
func TestScheduledTransfers(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	end := bank.InBackground(t, b.Coordinator)
	first, err := b.Submit(t.Context(), bank.Later("t", 10))
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"a": 100, "b": 0}, b.Balances())
	again, err := b.Submit(t.Context(), bank.Move("t", "a", "b", 10))
	require.NoError(t, err)
	require.Equal(t, first, again, "the time is not part of the payload")
	_, err = b.Submit(t.Context(), bank.Later("t", 11))
	require.ErrorIs(t, err, transfer.ErrIDConflict)
	_, err = b.Submit(t.Context(), bank.Later("taken back", 10))
	require.NoError(t, err)
	rec, err := b.Cancel(t.Context(), "taken back", "no longer wanted")
	require.NoError(t, err)
	require.Equal(t, transfer.StateFail, rec.State)
	_, err = b.Transfer(t.Context(), bank.Move("t", "a", "b", 11))
	require.ErrorIs(t, err, transfer.ErrIDConflict)
	rec, err = b.Transfer(t.Context(), bank.Move("t", "a", "b", 10))
	require.NoError(t, err)
	require.Equal(t, first.NotBefore, rec.NotBefore)
	again, err = b.Submit(t.Context(), bank.Later("t", 10))
	require.NoError(t, err)
	bank.RequireSame(t, rec, again)
	for _, past := range []time.Time{time.Now().Add(-time.Hour), time.Unix(0, 0), time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC)} {
		req := bank.Move("past "+past.String(), "a", "b", 1)
		req.NotBefore = past
		_, err = b.Submit(t.Context(), req)
		require.NoError(t, err)
		_, err = b.Wait(t.Context(), req.ID)
		require.NoError(t, err)
	}
	end()
	b.CheckBooks(bank.Balances(100, 0))
}

// The stored time is the one that reads return, and never earlier than requested, in any
// zone.
// A time outside the calendar is refused.
func TestTimesOfSchedules(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	whole := time.Date(2100, 1, 2, 3, 4, 5, 678_000_000, time.UTC)
	for id, c := range map[string]struct{ asked, stored time.Time }{
		"whole":             {whole, whole},
		"in another zone":   {whole.In(time.FixedZone("far", 5*3600)), whole},
		"a little later":    {whole.Add(1), whole.Add(time.Millisecond)},
		"nearly the next":   {whole.Add(time.Millisecond - 1), whole.Add(time.Millisecond)},
		"long ago":          {time.Date(1900, 1, 1, 0, 0, 0, 1, time.UTC), time.Date(1900, 1, 1, 0, 0, 0, 1_000_000, time.UTC)},
		"the last there is": {time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)},
	} {
		req := bank.Move(id, "a", "b", 1)
		req.NotBefore = c.asked
		rec, err := b.Submit(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, c.stored, rec.NotBefore, id)
		read, err := b.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, rec, read)
	}
	for _, beyond := range []time.Time{time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(1<<60, 0)} {
		req := bank.Move("beyond", "a", "b", 1)
		req.NotBefore = beyond
		_, err := b.Submit(t.Context(), req)
		require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	}
	b.CancelWaiting()
	b.CheckBooks(bank.Balances(100, 0))
}

// Run ends well with its context, and where its coordinator is closed meanwhile. It says
// that it was closed before.
func TestRunIsClosed(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	for _, ends := range []bool{false, true} {
		c := b.NewCoordinator(b.DB)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		id := fmt.Sprint("t", ends)
		b.MustSubmit(id)
		_, err := c.Wait(t.Context(), id)
		require.NoError(t, err)
		if ends {
			cancel()
		}
		require.NoError(t, c.Close(t.Context()))
		err = bank.Within(t, ended)
		cancel()
		require.NoError(t, err)
		require.ErrorIs(t, c.Run(t.Context()), transfer.ErrClosed)
	}
	b.CheckBooks(bank.Balances(100, 0))
}
