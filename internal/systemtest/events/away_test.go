package events

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// What became final while no worker ran is delivered by the next one: an event of a hold
// that is over by then as well.
func TestFinishedWithoutAWorker(t *testing.T) {
	t.Parallel()
	b := bank.NewWith(t, []transfer.Option{silent()}, 100, 0).WithIndexes()
	b.MustMove("pay", 60)
	held := b.MustHold("hold", 30, time.Hour)
	_, err := b.Void(t.Context(), "hold")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"pay", "hold"}, b.IDs(transfer.Query{Undelivered: true}))
	require.Len(t, outboxOf(b, "hold"), 2)

	in := newInbox()
	end := bank.InBackground(t, b.NewCoordinator(b.DB, in.option()))
	in.await(t, "pay:succeeded", "hold:held", "hold:failed")
	end()
	requireDelivered(b)
	e := in.taken()["hold:held"][0]
	require.Equal(t, transfer.StateFail, e.Record.State, "it is the record as it is stored now")
	require.Equal(t, held.LastModified, e.At, "and the time at which it was held")
	b.CheckBooks(bank.Balances(100, 0))
}

// A process that died in the middle of a transfer, or between its finish and the
// delivery, leaves the event to others. One that died before the finish leaves the
// transfer to recovery, and the event of that.
func TestDeadBeforeTheDelivery(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]bank.Fault{"the finish is lost": bank.Lost, "its answer is lost": bank.AnswerLost} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.NewWith(t, []transfer.Option{silent()}, 100, 0).WithIndexes()
			dead := newInbox()
			b.Dying(bank.Finish, what, func(ctx context.Context, c *transfer.Coordinator) error {
				go func() { _ = c.Run(ctx) }()
				_, err := c.Transfer(ctx, bank.Move("pay", "a", "b", 60))
				return err
			}, func(*mongo.Database) []transfer.Option {
				return []transfer.Option{dead.option(), transfer.WithReturnAt(transfer.AtSuccess)}
			})
			require.Empty(t, dead.taken())
			in := newInbox()
			c := b.NewCoordinator(b.DB, in.option(), transfer.WithStallThreshold(0))
			end := bank.InBackground(t, c)
			in.await(t, "pay:succeeded")
			end()
			requireDelivered(b)
			require.Len(t, in.taken()["pay:succeeded"], 1)
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// A lease of 25 s keeps an event from others, by the server's clock, and no longer: who
// had it in hand may be dead.
func TestLease(t *testing.T) {
	t.Parallel()
	b := bank.NewWith(t, []transfer.Option{silent()}, 100, 0).WithIndexes()
	b.MustMove("pay", 60)
	inHand := func(due time.Duration) {
		b.Change("transfers", "pay", bson.M{"$set": bson.M{
			"outbox.0.due": time.Now().Add(due), "outbox.0.by": bson.NewObjectID(), "outbox.0.attempts": int64(1),
		}})
	}
	in := newInbox()
	inHand(time.Minute)
	end := bank.InBackground(t, b.NewCoordinator(b.DB, in.option()))
	defer end()
	b.MustMove("next", 1)
	in.await(t, "next:succeeded")
	require.Len(t, in.taken(), 1, "it is in another hand")
	inHand(-time.Second)
	in.await(t, "pay:succeeded")
	require.Equal(t, 2, in.taken()["pay:succeeded"][0].Attempt, "the first attempt counts")
	requireDelivered(b)
	b.CheckBooks(bank.Balances(100, 0))
}

// The server's clock was an hour ahead when an event was taken in hand, and was set back.
// Nobody waits for that hour: the event is due at once, and may also be asked for.
func TestDueAheadOfTheClock(t *testing.T) {
	t.Parallel()
	b := bank.NewWith(t, []transfer.Option{silent()}, 100, 0).WithIndexes()
	b.MustMove("searched", 60)
	b.MustMove("asked", 1)
	for _, id := range []string{"searched", "asked"} {
		b.Change("transfers", id, bson.M{"$set": bson.M{
			"outbox.0.due": time.Now().Add(time.Hour), "outbox.0.by": bson.NewObjectID(), "outbox.0.attempts": int64(7),
		}})
	}
	require.Equal(t, []audit.Code{audit.WrongTime, audit.WrongTime}, bank.CodesOf(b.MustAudit()))
	require.NoError(t, b.Redeliver(t.Context(), "asked"))
	in := newInbox()
	end := bank.InBackground(t, b.NewCoordinator(b.DB, in.option()))
	in.await(t, "searched:succeeded", "asked:succeeded")
	end()
	requireDelivered(b)
	require.Equal(t, 8, in.taken()["searched:succeeded"][0].Attempt)
	require.Equal(t, 1, in.taken()["asked:succeeded"][0].Attempt, "it begins anew")
	b.CheckBooks(bank.Balances(100, 0))
}

// Large transfers over a slow network: as many as a search finds can't be read in time.
// The worker takes fewer, and delivers all, at the first attempt. Once there is time to
// spare, it takes more again.
func TestBacklogIsReadInPortions(t *testing.T) {
	t.Parallel()
	const each = 30 * time.Millisecond // 5 s are enough for 166
	ids := bank.Numbered("pay", 260)
	b := bank.NewWith(t, []transfer.Option{silent()}, 1000, 0).WithIndexes()
	var requests []transfer.Request
	for _, id := range ids {
		requests = append(requests, bank.Move(id, "a", "b", 1))
	}
	_, errs := b.TransferMany(t.Context(), requests)
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Len(t, b.IDs(transfer.Query{Undelivered: true}), len(ids))

	var page atomic.Int64 // of the latest search
	slow := &event.CommandMonitor{Started: func(ctx context.Context, e *event.CommandStartedEvent) {
		if _, search := e.Command.Lookup("filter", "$or", "0", "outbox.due", "$lte").TimeOK(); search {
			page.Store(e.Command.Lookup("limit").AsInt64())
		}
		_, inHand := e.Command.Lookup("filter", "outbox.by").ObjectIDOK()
		wanted, many := e.Command.Lookup("filter", "_id", "$in").ArrayOK()
		if !inHand || !many {
			return
		}
		values, _ := wanted.Values()
		timer := time.NewTimer(time.Duration(len(values)) * each)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}}
	in := newInbox()
	end := bank.InBackground(t, b.NewCoordinator(b.Through(options.Client().SetMonitor(slow)), in.option()))
	in.await(t, eventIDs(transfer.EventSucceeded, ids...)...)
	requireDelivered(b)
	for _, id := range bank.Numbered("quick", 3) {
		b.MustMove(id, 1)
		in.await(t, eventIDs(transfer.EventSucceeded, id)...)
	}
	require.Eventually(t, func() bool { return page.Load() == 256 }, patience, 10*time.Millisecond)
	end()
	for id, all := range in.taken() {
		require.Len(t, all, 1, id)
		require.Equal(t, 1, all[0].Attempt, id)
	}
	b.CheckBooks(bank.Balances(1000, 0))
}
