package transfertest_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/transfertest"
)

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// submitIn submits a transfer that is due after a while.
func submitIn(t *testing.T, f *transfertest.Fake, wait time.Duration, req transfer.Request) {
	t.Helper()
	req.NotBefore = f.Now().Add(wait)
	_, err := f.Submit(t.Context(), req)
	require.NoError(t, err)
}

// What is due at different times is done in the order of these times, however far the
// clock is set ahead, and bears its own time.
func TestAdvanceKeepsTheOrder(t *testing.T) {
	t.Parallel()
	for n := range 4 { // chance does not decide
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			w := inMemory(t)
			w.openBank() // carol has nothing
			f, begun := w.fake, w.fake.Now()
			submitIn(t, f, 3*time.Hour, move("shoes", "carol", "bob", 100))
			submitIn(t, f, 2*time.Hour, move("rent", "carol", "bob", 60))
			submitIn(t, f, time.Hour, move("salary", "alice", "carol", 100))
			f.Advance(week)
			for i, id := range []string{"salary", "rent"} {
				requireState(t, f, id, transfer.StateSuccess)
				rec, err := f.Get(t.Context(), id)
				require.NoError(t, err)
				require.WithinDuration(t, begun.Add(time.Duration(i+1)*time.Hour), rec.CommittedAt, time.Minute)
			}
			_, err := f.Wait(t.Context(), "shoes")
			require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
			requireBalance(t, f, "alice", 0)
			requireBalance(t, f, "bob", 160)
			requireBalance(t, f, "carol", 40)
			require.WithinDuration(t, begun.Add(week), f.Now(), time.Minute)
		})
	}
}

// A hold expires at its time, and what waits for its money has it before the deadline.
func TestAdvanceLetsAHoldExpireInTime(t *testing.T) {
	t.Parallel()
	for n := range 4 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			w := inMemory(t)
			w.openBank()
			f, begun := w.fake, w.fake.Now()
			_, err := f.Hold(t.Context(), move("room", "alice", "bob", 100), 30*time.Minute)
			require.NoError(t, err)
			waits := move("waits", "alice", "carol", 100)
			waits.AwaitFundsUntil = begun.Add(time.Hour)
			_, err = f.Submit(t.Context(), waits)
			require.NoError(t, err)
			f.Advance(2 * time.Hour)
			requireState(t, f, "waits", transfer.StateSuccess)
			rec, err := f.Get(t.Context(), "waits")
			require.NoError(t, err)
			require.WithinDuration(t, begun.Add(30*time.Minute), rec.CommittedAt, 3*time.Minute)
			room, err := f.Get(t.Context(), "room")
			require.NoError(t, err)
			require.WithinDuration(t, begun.Add(30*time.Minute), room.LastModified, time.Minute)
			requireBalance(t, f, "alice", 0)
			requireBalance(t, f, "carol", 100)
		})
	}
}

// Money that comes is noticed at once, in a step or between two calls, and by whoever
// waits.
func TestWhatWaitsForFundsIsHastened(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.openBank()
	f := w.fake
	for i := range 3 { // each can be paid once the one before it was
		rent := move(fmt.Sprint("rent", i), []string{"alice", "bob", "carol"}[i], []string{"bob", "carol", "alice"}[i], 150)
		rent.AwaitFundsUntil = f.Now().Add(week)
		_, err := f.Submit(t.Context(), rent)
		require.NoError(t, err)
	}
	submitIn(t, f, time.Hour, move("salary", "world", "alice", 50))
	f.Advance(time.Hour - time.Second)
	requireState(t, f, "rent0", transfer.StateInitiated)
	f.Advance(2 * time.Second)
	for i := range 3 {
		requireState(t, f, fmt.Sprint("rent", i), transfer.StateSuccess)
	}

	rent := move("direct", "alice", "bob", 1000)
	rent.AwaitFundsUntil = f.Now().Add(week)
	_, err := f.Submit(t.Context(), rent)
	require.NoError(t, err)
	f.Advance(day)
	before, err := f.Get(t.Context(), "direct")
	require.NoError(t, err)
	f.Advance(0)
	after, err := f.Get(t.Context(), "direct")
	require.NoError(t, err)
	require.Equal(t, before.Postponed, after.Postponed, "no account was changed")
	requireState(t, f, "direct", transfer.StateInitiated)
	for _, id := range []string{"pay1", "pay2"} {
		_, err = f.Transfer(t.Context(), move(id, "world", "alice", 500))
		require.NoError(t, err)
		if id == "pay1" {
			f.Advance(0)
			requireState(t, f, "direct", transfer.StateInitiated)
		}
	}
	f.Advance(0)
	requireState(t, f, "direct", transfer.StateSuccess)
}

// Wait notices money that comes meanwhile.
func TestWaitNoticesFunds(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.openBank()
	f := w.fake
	rent := move("rent", "alice", "bob", 150)
	rent.AwaitFundsUntil = f.Now().Add(2 * week)
	_, err := f.Submit(t.Context(), rent)
	require.NoError(t, err)
	for range 8 { // until the pauses between two looks are long
		f.Advance(day)
	}
	paid := make(chan error, 1)
	go func() {
		_, err := f.Transfer(t.Context(), move("pay", "world", "alice", 50))
		paid <- err
	}()
	before := f.Now()
	rec, err := f.Wait(t.Context(), "rent")
	require.NoError(t, err)
	require.NoError(t, <-paid)
	require.Equal(t, transfer.StateSuccess, rec.State)
	next, err := f.Get(t.Context(), "rent")
	require.NoError(t, err)
	require.Less(t, next.CommittedAt.Sub(before), 30*time.Second)
}

// failing returns a fake whose handler of events counts the attempts, and fails.
func failing(t *testing.T, maxAttempts int) (f *transfertest.Fake, attempts *atomic.Int64) {
	t.Helper()
	attempts = new(atomic.Int64)
	handle := func(context.Context, transfer.Event) error { attempts.Add(1); return errBroken }
	f = transfertest.NewFake(t, transfertest.WithOptions(options(nil)...),
		transfertest.WithEvents(transfer.EventHandler{Handle: handle, MaxAttempts: maxAttempts}))
	openBoth(t, f)
	_, err := f.Transfer(t.Context(), move("pay", "alice", "bob", 1))
	require.NoError(t, err)
	return f, attempts
}

func openBoth(t *testing.T, f *transfertest.Fake) {
	t.Helper()
	for _, id := range []string{"alice", "bob"} {
		_, err := f.OpenAccount(t.Context(), transfer.Account{ID: id, Balance: units(100)})
		require.NoError(t, err)
	}
}

// A handler that fails is called as often as within that time on a server, and its event
// is given up in the end.
func TestAdvanceTriesEventsAgain(t *testing.T) {
	t.Parallel()
	f, attempts := failing(t, 0)
	f.Advance(0)
	require.Equal(t, int64(1), attempts.Load())
	f.Advance(10 * time.Second) // after 1, 2 and 4 s
	require.Equal(t, int64(4), attempts.Load())
	f.Advance(2 * day)
	require.Equal(t, int64(20), attempts.Load())
	rec, err := f.Get(t.Context(), "pay")
	require.NoError(t, err)
	require.Len(t, rec.Undelivered, 1)
	require.True(t, rec.Undelivered[0].GivenUp)
}

// A handler that is tried without an end costs no more than some steps.
func TestAdvanceBoundsRetries(t *testing.T) {
	t.Parallel()
	f, attempts := failing(t, 1<<20)
	f.Advance(week)
	require.Greater(t, attempts.Load(), int64(40))
	require.Less(t, attempts.Load(), int64(60))
	requireBalance(t, f, "alice", 99)
}

// A transfer that waits for funds is looked at where there may be some, and at the end.
func TestAdvanceBoundsLooks(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.openBank()
	f, begun := w.fake, w.fake.Now()
	for id, until := range map[string]time.Duration{"waits": 2 * week, "vain": week} {
		req := move(id, "alice", "bob", 150)
		req.AwaitFundsUntil = begun.Add(until)
		_, err := f.Submit(t.Context(), req)
		require.NoError(t, err)
	}
	submitIn(t, f, week+day, move("salary", "bob", "alice", 50))
	f.Advance(week - day)
	rec, err := f.Get(t.Context(), "waits")
	require.NoError(t, err)
	require.Equal(t, transfer.StateInitiated, rec.State)
	require.Positive(t, rec.Postponed)
	require.Less(t, rec.Postponed, 10)
	f.Advance(3 * week)
	for id, want := range map[string]time.Duration{"salary": week + day, "waits": week + day, "vain": week} {
		rec, err := f.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, id == "vain", rec.State == transfer.StateFail, "%s", rec.State)
		require.WithinDuration(t, begun.Add(want), rec.LastModified, 3*time.Minute)
	}
	requireBalance(t, f, "alice", 0)
	requireBalance(t, f, "bob", 200)
}

// What a handler submits is done at its time, and not when all else is over.
func TestAdvanceDoesWhatIsSubmittedMeanwhile(t *testing.T) {
	t.Parallel()
	var f *transfertest.Fake
	handle := func(ctx context.Context, e transfer.Event) error {
		if e.Kind != transfer.EventSucceeded || len(e.Record.ID) > 3 {
			return nil
		}
		_, err := f.Submit(ctx, move(e.Record.ID+"+", "alice", "bob", 1))
		return err
	}
	f = transfertest.NewFake(t, transfertest.WithOptions(options(nil)...),
		transfertest.WithEvents(transfer.EventHandler{Handle: handle}))
	openBoth(t, f)
	begun := f.Now()
	submitIn(t, f, time.Hour, move("a", "alice", "bob", 1))
	f.Advance(week)
	for _, id := range []string{"a", "a+", "a++", "a+++"} {
		rec, err := f.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, transfer.StateSuccess, rec.State)
		require.WithinDuration(t, begun.Add(time.Hour), rec.CommittedAt, time.Minute)
		require.WithinDuration(t, begun.Add(time.Hour), rec.CreatedAt, time.Hour+time.Minute)
	}
	requireBalance(t, f, "alice", 96)
	requireBalance(t, f, "bob", 104)
}

// It ends although there is always something more to do.
func TestAdvanceEnds(t *testing.T) {
	t.Parallel()
	var f *transfertest.Fake
	handle := func(ctx context.Context, e transfer.Event) error {
		_, err := f.Submit(ctx, move(e.Record.ID+"+", "alice", "bob", 1))
		return err
	}
	f = transfertest.NewFake(t, transfertest.WithOptions(options(nil)...),
		transfertest.WithEvents(transfer.EventHandler{Handle: handle}))
	openBoth(t, f)
	begun := f.Now()
	_, err := f.Submit(t.Context(), move("a", "alice", "bob", 1))
	require.NoError(t, err)
	f.Advance(day)
	require.WithinDuration(t, begun.Add(day), f.Now(), 2*time.Minute)
	moved, err := f.Count(t.Context(), transfer.Query{States: []transfer.State{transfer.StateSuccess}})
	require.NoError(t, err)
	require.Greater(t, moved, int64(40))
	require.Less(t, moved, int64(90))
	requireBalance(t, f, "alice", 100-moved)
	requireBalance(t, f, "bob", 100+moved)
}

// Advances at once add up, whatever others do meanwhile.
func TestAdvancesAtOnce(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.openBank()
	f, begun := w.fake, w.fake.Now()
	for n := range 4 {
		submitIn(t, f, time.Duration(n+1)*15*time.Minute, move(fmt.Sprint(n), "alice", "bob", 1))
	}
	var hands sync.WaitGroup
	for hand := range 3 {
		hands.Go(func() { f.Advance(2 * time.Hour) })
		hands.Go(func() {
			for n := range 8 {
				req := move(fmt.Sprint(hand, " ", n), "alice", "bob", 1)
				req.NotBefore = f.Now().Add(time.Duration(n%3) * time.Hour)
				_, err := f.Submit(t.Context(), req)
				assert.NoError(t, err)
			}
		})
	}
	hands.Wait()
	require.WithinDuration(t, begun.Add(6*time.Hour), f.Now(), time.Minute)
	f.Advance(day)
	n, err := f.Count(t.Context(), transfer.Query{States: []transfer.State{transfer.StateInitiated}})
	require.NoError(t, err)
	require.Zero(t, n)
	requireBalance(t, f, "alice", 72)
	requireBalance(t, f, "bob", 128)
}
