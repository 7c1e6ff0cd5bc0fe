package events

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// An idle process with events sends no more commands than one without: also after an
// event has failed, and was delivered later.
func TestIdleCost(t *testing.T) {
	t.Parallel()
	const span, most = 4 * time.Second, 4
	var commands atomic.Int64
	counting := &event.CommandMonitor{Started: func(context.Context, *event.CommandStartedEvent) { commands.Add(1) }}
	in := newInbox()
	in.judge = func(_ context.Context, e transfer.Event) error {
		if e.Attempt == 1 {
			return errRefused
		}
		return nil
	}
	b := bank.NewWith(t, []transfer.Option{silent()}, 100, 0).WithIndexes()
	c := b.NewCoordinator(b.Through(options.Client().SetMonitor(counting)), in.option())
	end := bank.InBackground(t, c)
	defer end()
	_, err := c.Transfer(t.Context(), bank.Move("pay", "a", "b", 60))
	require.NoError(t, err)
	in.await(t, "pay:succeeded")
	requireDelivered(b)
	count := func() float64 {
		before := commands.Load()
		timer := time.NewTimer(span)
		<-timer.C
		return float64(commands.Load()-before) / span.Seconds()
	}
	count() // it sweeps when it begins
	perSecond := count()
	t.Logf("%.1f commands a second", perSecond)
	require.LessOrEqual(t, perSecond, float64(most))
	require.Positive(t, perSecond)
	b.CheckBooks(bank.Balances(100, 0))
}

// A mark that hangs in the network is sent again while the lease lasts, and holds up no
// other: neither event is delivered twice.
func TestMarkHangs(t *testing.T) {
	t.Parallel()
	b := bank.NewWith(t, []transfer.Option{silent()}, 100, 0).WithIndexes()
	hangs := make(chan struct{})
	w := &bank.Wire{What: bank.Swallowed, OnStrike: func() { close(hangs) }, Is: func(message []byte) bool {
		name, counts := bank.CommandIn(message)
		return counts && name == "update" && bytes.Contains(message, []byte("outbox.by"))
	}}
	in := newInbox()
	c := b.NewCoordinator(b.Through(w.Client()), in.option())
	end := bank.InBackground(t, c)
	for _, id := range []string{"pay", "next"} {
		_, err := c.Transfer(t.Context(), bank.Move(id, "a", "b", 10))
		require.NoError(t, err)
		in.await(t, id+":succeeded")
		bank.Within(t, hangs)
	}
	requireDelivered(b)
	end()
	require.Len(t, in.taken(), 2)
	for id, all := range in.taken() {
		require.Len(t, all, 1, id)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// Run ends where it can't go on, and not only when its context ends: handlers or not.
func TestRunEnds(t *testing.T) {
	t.Parallel()
	b := bank.NewWith(t, []transfer.Option{silent()}, 100, 0).WithIndexes()
	in := newInbox()
	other := b.NewCoordinator(b.DB, in.option(transfer.EventFailed))
	require.ErrorIs(t, other.Run(t.Context()), transfer.ErrUnsupportedDeployment)

	c := b.NewCoordinator(b.DB, in.option())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(t.Context()) }()
	_, err := c.Transfer(t.Context(), bank.Move("pay", "a", "b", 60))
	require.NoError(t, err)
	in.await(t, "pay:succeeded")
	require.NoError(t, c.Close(t.Context()))
	require.NoError(t, bank.Within(t, ended), "Run ends with its Coordinator")
	requireDelivered(b)
	b.CheckBooks(bank.Balances(100, 0))
}
