package events

import (
	"bytes"
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A coordinator with other kinds of events than the deployment's, or with none, is
// refused before anything moves, and the text says what differs.
func TestOtherKindsAreRefused(t *testing.T) {
	t.Parallel()
	b := bank.NewWith(t, []transfer.Option{silent(transfer.EventSucceeded, transfer.EventHeld)}, 100, 0).WithIndexes()
	for says, opts := range map[string][]transfer.Option{
		"are held, succeeded, and WithEvents says none":                    nil,
		"are held, succeeded, and WithEvents says succeeded":               {silent(transfer.EventSucceeded)},
		"are held, succeeded, and WithEvents says failed, held, succeeded": {silent()},
	} {
		c := b.NewCoordinator(b.DB, opts...)
		for name, err := range map[string]error{
			"Setup": c.Setup(t.Context()), "Check": c.Check(t.Context()), "Run": c.Run(t.Context()),
			"Transfer": bank.ErrorOf(c.Transfer(t.Context(), bank.Move("t", "a", "b", 60))),
			"Get":      bank.ErrorOf(c.Get(t.Context(), "t")),
		} {
			require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, name)
			require.ErrorContains(t, err, says, name)
		}
	}
	same := transfer.WithEvents(transfer.EventHandler{
		Kinds: []transfer.EventKind{transfer.EventHeld, transfer.EventSucceeded, transfer.EventHeld}, MaxAttempts: 3,
	})
	require.NoError(t, b.NewCoordinator(b.DB, same).Check(t.Context()), "the order does not matter")
	b.CheckBooks(bank.Balances(100, 0))
}

// Events are switched on by Adopt, while holds are held. What was final before is not
// delivered; what becomes final from then on is. Nothing switches them off before all is
// delivered.
func TestSwitched(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.MustMove("before", 10)
	b.MustHold("hold", 20, time.Hour)
	in := newInbox()
	c := b.NewCoordinator(b.DB, in.option())
	require.ErrorIs(t, c.Setup(t.Context()), transfer.ErrUnsupportedDeployment)
	require.NoError(t, c.Adopt(t.Context()))
	require.ErrorContains(t, c.Check(t.Context()), `lacks the index "undelivered"`)
	require.NoError(t, c.Setup(t.Context()))
	require.NoError(t, c.Check(t.Context()))
	_, err := c.Post(t.Context(), "hold")
	require.NoError(t, err)
	_, err = c.Transfer(t.Context(), bank.Move("after", "a", "b", 5))
	require.NoError(t, err)
	require.NoError(t, c.Close(t.Context()))

	off := b.NewCoordinator(b.DB)
	require.ErrorIs(t, off.Check(t.Context()), transfer.ErrUnsupportedDeployment)
	require.ErrorContains(t, off.Adopt(t.Context()), "is not delivered")
	b.Coordinator = b.NewCoordinator(b.DB, in.option())
	end := bank.InBackground(t, b.Coordinator)
	in.await(t, "hold:succeeded", "after:succeeded")
	requireDelivered(b)
	end()
	require.Len(t, in.taken(), 2)

	fewer := b.NewCoordinator(b.DB, silent(transfer.EventFailed))
	require.NoError(t, fewer.Adopt(t.Context()))
	require.NoError(t, fewer.Check(t.Context()))
	require.NoError(t, off.Adopt(t.Context()))
	require.NoError(t, off.Check(t.Context()))
	for _, note := range b.Raw("transfers.transfer") {
		require.NotContains(t, note, "events")
	}
	_, err = off.Transfer(t.Context(), bank.Move("off", "a", "b", 1))
	require.NoError(t, err)
	require.NoError(t, off.Close(t.Context()))
	b.Coordinator = b.NewCoordinator(b.DB)
	requireDelivered(b)
	b.CheckBooks(bank.Balances(100, 0))
}

// Where events are off no command and no document has a byte of them, and there is no
// index. Redeliver says that there are none.
func TestOffStoresNothing(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	var found atomic.Pointer[string]
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		for _, word := range []string{"outbox", "keepUntil", "undelivered", "events"} {
			if bytes.Contains(e.Command, []byte(word)) {
				text := e.Command.String()
				found.CompareAndSwap(nil, &text)
			}
		}
	}}
	c := b.NewCoordinator(b.Through(options.Client().SetMonitor(monitor)), transfer.WithRetention(time.Hour))
	b.Coordinator = c
	b.OpenAccounts([]int64{100, 0})
	require.NoError(t, c.Setup(t.Context()))
	end := bank.InBackground(t, c)
	b.MustMove("pay", 60)
	b.MustHold("hold", 10, time.Hour)
	_, err := c.Void(t.Context(), "hold")
	require.NoError(t, err)
	end()
	require.ErrorIs(t, c.Redeliver(t.Context(), "pay"), transfer.ErrInvalidRequest)
	if command := found.Load(); command != nil {
		require.Fail(t, "a command has a word of events", *command)
	}
	for collection, documents := range b.Contents() {
		for _, stored := range documents {
			require.NotContains(t, stored, "outbox", collection)
			require.NotContains(t, stored, "events", collection)
		}
	}
	indexes, err := b.DB.Collection("transfers").Indexes().ListSpecifications(t.Context())
	require.NoError(t, err)
	for _, index := range indexes {
		require.NotEqual(t, "undelivered", index.Name)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// Nothing is purged before its events are delivered or given up: until then the server
// does not see when. That holds for the event of a hold as well, where its end is none.
func TestRetentionWaits(t *testing.T) {
	t.Parallel()
	for name, kinds := range map[string][]transfer.EventKind{
		"all kinds": nil, "holds only": {transfer.EventHeld}, "ends only": {transfer.EventFailed, transfer.EventSucceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.NewWith(t, []transfer.Option{silent(kinds...), transfer.WithRetention(time.Hour)}, 100, 0).WithIndexes()
			b.MustMove("pay", 60)
			b.MustHold("hold", 10, time.Hour)
			_, err := b.Void(t.Context(), "hold")
			require.NoError(t, err)
			waiting := b.IDs(transfer.Query{Undelivered: true})
			require.NotEmpty(t, waiting)
			for rec, err := range b.List(t.Context(), transfer.Query{}) {
				require.NoError(t, err)
				require.Equal(t, len(rec.Undelivered) > 0, rec.PurgeAt.IsZero(), rec.ID)
			}
			in := newInbox()
			in.judge = func(context.Context, transfer.Event) error { return errRefused }
			given := transfer.WithEvents(transfer.EventHandler{Handle: in.handle, Kinds: kinds, MaxAttempts: 1})
			end := bank.InBackground(t, b.NewCoordinator(b.DB, given))
			bank.Until(t, 10*time.Millisecond, func() (bool, error) {
				for rec, err := range b.List(t.Context(), transfer.Query{Undelivered: true}) {
					waits := func(e transfer.UndeliveredEvent) bool { return !e.GivenUp }
					if err != nil || slices.ContainsFunc(rec.Undelivered, waits) {
						return false, err
					}
				}
				return true, nil
			})
			end()
			for rec, err := range b.List(t.Context(), transfer.Query{}) {
				require.NoError(t, err)
				require.False(t, rec.PurgeAt.IsZero(), "%s was given up: nothing keeps it", rec.ID)
			}
			for _, id := range waiting {
				require.NoError(t, b.Redeliver(t.Context(), id))
				rec, err := b.Get(t.Context(), id)
				require.NoError(t, err)
				require.True(t, rec.PurgeAt.IsZero(), "it waits again")
			}
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// The event of a hold waits, and its kind is switched off before the hold is over. It
// still keeps the transfer from being purged, until a worker delivers it.
func TestRetentionWaitsForEarlierKinds(t *testing.T) {
	t.Parallel()
	keep := transfer.WithRetention(time.Hour)
	b := bank.NewWith(t, []transfer.Option{silent(transfer.EventHeld, transfer.EventSucceeded), keep}, 100, 0).WithIndexes()
	b.MustHold("hold", 10, time.Hour)
	require.NoError(t, b.Close(t.Context()))
	require.ErrorContains(t, b.NewCoordinator(b.DB, keep).Adopt(t.Context()), "is not delivered", "not without events")

	in := newInbox()
	b.Coordinator = b.NewCoordinator(b.DB, in.option(transfer.EventSucceeded), keep)
	require.NoError(t, b.Adopt(t.Context()))
	require.NoError(t, b.Setup(t.Context()))
	_, err := b.Void(t.Context(), "hold")
	require.NoError(t, err)
	rec, err := b.Get(t.Context(), "hold")
	require.NoError(t, err)
	require.Equal(t, transfer.StateFail, rec.State)
	require.Len(t, rec.Undelivered, 1)
	require.True(t, rec.PurgeAt.IsZero(), "the event waits")

	end := bank.InBackground(t, b.Coordinator)
	in.await(t, "hold:held")
	requireDelivered(b)
	end()
	rec, err = b.Get(t.Context(), "hold")
	require.NoError(t, err)
	require.False(t, rec.PurgeAt.IsZero(), "nothing keeps it")
	b.CheckBooks(bank.Balances(100, 0))
}
