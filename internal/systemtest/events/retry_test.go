package events

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A handler that fails, panics or ends its goroutine gets the event again, after a second
// and then after two, with the number of the attempt.
func TestFailuresAreTriedAgain(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() error{
		"an error":           func() error { return errRefused },
		"a panic":            func() error { panic("the handler is broken") },
		"an ended goroutine": func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var tried []time.Time
			in := newInbox()
			in.judge = func(_ context.Context, e transfer.Event) error {
				mu.Lock()
				tried = append(tried, time.Now())
				n := len(tried)
				mu.Unlock()
				if e.Attempt != n {
					return fmt.Errorf("attempt %d is the call number %d", e.Attempt, n)
				}
				if n < 3 {
					return fail()
				}
				return nil
			}
			b := bank.NewWith(t, []transfer.Option{in.option()}, 100, 0).WithIndexes()
			end := bank.InBackground(t, b.Coordinator)
			b.MustMove("pay", 60)
			in.await(t, "pay:succeeded")
			end()
			require.Len(t, tried, 3)
			require.GreaterOrEqual(t, tried[1].Sub(tried[0]), time.Second)
			require.GreaterOrEqual(t, tried[2].Sub(tried[1]), 2*time.Second)
			requireDelivered(b)
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// An event that was tried as often as MaxAttempts says is given up: it is listed, and not
// tried again. Redeliver has it tried from the first attempt on.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	in := newInbox()
	var mu sync.Mutex
	broken, tried := true, 0
	in.judge = func(context.Context, transfer.Event) error {
		mu.Lock()
		defer mu.Unlock()
		if tried++; broken {
			return errRefused
		}
		return nil
	}
	option := transfer.WithEvents(transfer.EventHandler{Handle: in.handle, MaxAttempts: 2})
	b := bank.NewWith(t, []transfer.Option{option}, 100, 0).WithIndexes()
	end := bank.InBackground(t, b.Coordinator)
	defer end()
	b.MustMove("pay", 60)
	require.Eventually(t, func() bool {
		rec, err := b.Get(t.Context(), "pay")
		return err == nil && len(rec.Undelivered) == 1 && rec.Undelivered[0].GivenUp
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, []string{"pay"}, b.IDs(transfer.Query{Undelivered: true}))
	rec, err := b.Get(t.Context(), "pay")
	require.NoError(t, err)
	require.Equal(t, []transfer.UndeliveredEvent{{
		Kind: transfer.EventSucceeded, At: rec.LastModified, Attempts: 2, GivenUp: true,
	}}, rec.Undelivered)
	require.Equal(t, bson.MaxKey{}, outboxOf(b, "pay")[0]["due"])
	require.Equal(t, "Nothing. Reverse takes its money back. "+
		"Its event succeeded was given up after 2 attempts: remove the cause, and call Redeliver.", advice(b, "pay"))

	mu.Lock()
	require.Equal(t, 2, tried)
	broken = false
	mu.Unlock()
	require.NoError(t, b.Redeliver(t.Context(), "pay"))
	in.await(t, "pay:succeeded")
	require.Equal(t, 1, in.taken()["pay:succeeded"][0].Attempt)
	requireDelivered(b)
	require.Equal(t, "Nothing. Reverse takes its money back.", advice(b, "pay"))
	require.NoError(t, b.Redeliver(t.Context(), "pay"), "what was delivered is not delivered again")
	require.ErrorIs(t, b.Redeliver(t.Context(), "other"), transfer.ErrTransferNotFound)
	require.ErrorIs(t, b.Redeliver(t.Context(), ""), transfer.ErrInvalidRequest)
	b.MustMove("next", 1)
	in.await(t, "next:succeeded")
	require.Len(t, in.taken()["pay:succeeded"], 1)
	b.CheckBooks(bank.Balances(100, 0))
}

// advice returns what Explain advises about a transfer.
func advice(b *bank.Bank, id string) string {
	b.T.Helper()
	e, err := b.Explain(b.T.Context(), id)
	require.NoError(b.T, err)
	return e.Advice
}

// An observer is told of each attempt, and the stats count what is undelivered, given up
// as well.
func TestObserved(t *testing.T) {
	t.Parallel()
	told := make(chan transfer.EventInfo, 10)
	observer := transfer.WithObserver(transfer.Observer{EventDone: func(i transfer.EventInfo) { told <- i }})
	b := bank.NewWith(t, []transfer.Option{observer, transfer.WithEvents(transfer.EventHandler{
		Handle: func(context.Context, transfer.Event) error { return errRefused }, MaxAttempts: 2,
	})}, 100, 0).WithIndexes()
	end := bank.InBackground(t, b.Coordinator)
	b.MustMove("pay", 60)
	for attempt := 1; attempt <= 2; attempt++ {
		info := bank.Within(t, told)
		require.NotNil(t, info.Context)
		info.Context, info.Took = nil, 0
		require.Equal(t, transfer.EventInfo{
			ID: "pay:succeeded", Transfer: "pay", Kind: "succeeded", Attempt: attempt, GivenUp: attempt == 2, Err: errRefused,
		}, info)
	}
	end()
	stats, err := b.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, stats.Undelivered)
	b.CheckBooks(bank.Balances(100, 0))
}

// The read of what a worker has in hand is lost. No handler was called, so it was no
// attempt: the only one that is allowed comes after that.
func TestLostReadIsNoAttempt(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]bool{"of its own transfer": true, "of another process": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.NewWith(t, []transfer.Option{silent()}, 100, 0).WithIndexes()
			lost := make(chan struct{})
			w := &bank.Wire{Idle: true, What: bank.Lost, OnStrike: func() { close(lost) }, Is: func(message []byte) bool {
				name, counts := bank.CommandIn(message)
				return counts && name == "find" && bytes.Contains(message, []byte("outbox.by"))
			}}
			in := newInbox()
			once := transfer.WithEvents(transfer.EventHandler{Handle: in.handle, MaxAttempts: 1})
			c := b.NewCoordinator(b.Through(w.Client().SetRetryReads(false)), once)
			end := bank.InBackground(t, c)
			b.MustMove("warm", 1)
			in.await(t, "warm:succeeded")
			requireDelivered(b)
			w.SetIdle(false)
			payer := b.Coordinator
			if own {
				payer = c
			}
			_, err := payer.Transfer(t.Context(), bank.Move("pay", "a", "b", 60))
			require.NoError(t, err)
			bank.Within(t, lost)
			bank.Until(t, 10*time.Millisecond, func() (bool, error) {
				rec, err := b.Get(t.Context(), "pay")
				return err == nil && (len(rec.Undelivered) == 0 || rec.Undelivered[0].GivenUp), err
			})
			end()
			require.Len(t, in.taken()["pay:succeeded"], 1)
			require.Equal(t, 1, in.taken()["pay:succeeded"][0].Attempt)
			requireDelivered(b)
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// Events that are poisoned, and handlers that hang and don't heed their context, hold up
// none of the others.
func TestPoisonedHoldsUpNobody(t *testing.T) {
	t.Parallel()
	const bad, good = 300, 300
	in := newInbox()
	stuck := make(chan struct{})
	in.judge = func(_ context.Context, e transfer.Event) error {
		switch {
		case e.Record.Metadata["hangs"] == true:
			<-stuck
			return errRefused
		case e.Record.Metadata["poisoned"] == true:
			return errRefused
		}
		return nil
	}
	b := bank.NewWith(t, []transfer.Option{in.option()}, 10_000, 0).WithIndexes()
	end := bank.InBackground(t, b.Coordinator)
	var bads, goods []transfer.Request
	for i := range bad {
		req := bank.Move(fmt.Sprint("bad", i), "a", "b", 1)
		req.Metadata = map[string]any{"poisoned": true, "hangs": i%3 == 0}
		bads = append(bads, req)
	}
	ids := bank.Numbered("good", good)
	for _, id := range ids {
		goods = append(goods, bank.Move(id, "a", "b", 1))
	}
	for _, all := range [][]transfer.Request{bads, goods} {
		_, errs := b.TransferMany(t.Context(), all)
		for _, err := range errs {
			require.NoError(t, err)
		}
	}
	in.await(t, eventIDs(transfer.EventSucceeded, ids...)...)
	require.Eventually(t, func() bool {
		n, err := b.Count(t.Context(), transfer.Query{Undelivered: true})
		return err == nil && n == bad
	}, time.Minute, 10*time.Millisecond)
	close(stuck)
	end()
	require.Len(t, in.taken(), good)
	b.CheckBooks(bank.Balances(10_000, 0))
}

// More handlers than run at once may hang, and not heed their context: the others have
// their places after that.
func TestDeafHandlersHoldUpNobody(t *testing.T) {
	t.Parallel()
	const deaf = 300
	in := newInbox()
	stuck := make(chan struct{})
	in.judge = func(_ context.Context, e transfer.Event) error {
		if e.Record.Metadata["hangs"] == true {
			<-stuck
		}
		return nil
	}
	b := bank.NewWith(t, []transfer.Option{in.option()}, 10_000, 0).WithIndexes()
	end := bank.InBackground(t, b.Coordinator)
	var requests []transfer.Request
	for i := range deaf {
		req := bank.Move(fmt.Sprint("deaf", i), "a", "b", 1)
		req.Metadata = map[string]any{"hangs": true}
		requests = append(requests, req)
	}
	_, errs := b.TransferMany(t.Context(), requests)
	for _, err := range errs {
		require.NoError(t, err)
	}
	b.MustMove("good", 1)
	in.await(t, "good:succeeded")
	close(stuck)
	end()
	b.CheckBooks(bank.Balances(10_000, 0))
}
