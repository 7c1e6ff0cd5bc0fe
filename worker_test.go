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
)

// inBackground runs a worker and returns a function that ends it and requires that it ended well.
func inBackground(t *testing.T, c *transfer.Coordinator) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return func() {
		cancel()
		require.NoError(t, <-done)
	}
}

// Submitted transfers are run once each, however many workers there are, and their submitters can wait for the outcome.
func TestWorkersRunWhatIsSubmitted(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	var ends []func()
	for range 3 {
		ends = append(ends, inBackground(t, b.coordinator(b.db)))
	}
	for i := range 40 {
		rec, err := b.Submit(t.Context(), move(fmt.Sprint("t", i), "a", "b", 3))
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
	b.audit(initial(100, 0))
}

// A worker leaves alone what is not due yet, and a Transfer with the same ID runs it at once.
func TestNotBefore(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	end := inBackground(t, b.Coordinator)
	later, soon := move("later", "a", "b", 1), move("soon", "a", "b", 2)
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
	rec, err = b.Transfer(t.Context(), move("later", "a", "b", 1))
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
	end()
	b.audit(initial(100, 0))
}

// A worker recovers what has stalled.
func TestWorkerRecovers(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	b.stallAt("t", 4, lost, 60)
	end := inBackground(t, b.coordinator(b.db, transfer.WithStallThreshold(0)))
	_, err := b.Wait(t.Context(), "t")
	require.NoError(t, err)
	end()
	b.audit(initial(100, 0))
}

// Wait goes on by looking every now and then when its change stream comes to an end, as it does when a collection is replaced.
func TestWaitOutlivesItsStream(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	_, err := b.Submit(t.Context(), move("t", "a", "b", 60))
	require.NoError(t, err)
	opened := make(chan struct{})
	var once sync.Once
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "getMore" {
			once.Do(func() { close(opened) })
		}
	}}
	c := b.coordinator(b.through(options.Client().SetMonitor(monitor)))
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	done := make(chan error, 2)
	go func() {
		_, err := c.Wait(ctx, "t")
		done <- err
		_, err = c.Wait(t.Context(), "t")
		done <- err
	}()
	<-opened
	_, err = b.db.Collection("transfers").Aggregate(t.Context(), bson.A{bson.D{{Key: "$out", Value: "copy"}}})
	require.NoError(t, err)
	rename := bson.D{
		{Key: "renameCollection", Value: b.db.Name() + ".copy"}, {Key: "to", Value: b.db.Name() + ".transfers"}, {Key: "dropTarget", Value: true},
	}
	require.NoError(t, b.db.Client().Database("admin").RunCommand(t.Context(), rename).Err())
	require.ErrorIs(t, <-done, transfer.ErrInDoubt, "it ends with its context")
	_, err = b.Transfer(t.Context(), move("t", "a", "b", 60))
	require.NoError(t, err)
	require.NoError(t, <-done)
	b.audit(initial(100, 0))
}

// Wait ends with its context, in doubt, and at once for what doesn't exist; so do a worker and a call on a closed coordinator.
func TestWaitEnds(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	_, err := b.Submit(t.Context(), move("t", "a", "b", 60))
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
	b.audit(initial(100, 0))

	for name, call := range map[string]func() error{
		"wait":     func() error { _, err := b.Wait(ctx, "t"); return err },
		"cancel":   func() error { _, err := b.Cancel(ctx, "t", ""); return err },
		"transfer": func() error { _, err := b.Transfer(ctx, move("u", "a", "b", 1)); return err },
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
		func() error { _, err := b.Submit(t.Context(), move("u", "a", "b", 1)); return err },
		func() error { _, err := b.OpenAccount(t.Context(), transfer.Account{ID: "x"}); return err },
	} {
		err := call()
		require.ErrorIs(t, err, transfer.ErrClosed)
		require.NotErrorIs(t, err, transfer.ErrInDoubt)
	}
}
