package verbs

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// writing is a call that writes without an execution of a transfer.
type writing struct {
	name string
	to   string // the collection that it writes to
	call func(context.Context, *transfer.Coordinator) error
}

func writings() []writing {
	return []writing{
		{"OpenAccount", "accounts", func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.OpenAccount(ctx, transfer.Account{ID: "new"}))
		}},
		{"UpdateAccount", "accounts", func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.UpdateAccount(ctx, "b", frozen(true)))
		}},
		{"CloseAccount", "accounts", func(ctx context.Context, c *transfer.Coordinator) error {
			return c.CloseAccount(ctx, "c")
		}},
		{"Submit", "transfers", func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.Submit(ctx, bank.Move("t", "a", "b", 1)))
		}},
		{"Extend", "transfers", func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.Extend(ctx, "held", 2*time.Hour))
		}},
		{"RepairOpen", "transfers", func(ctx context.Context, c *transfer.Coordinator) error {
			return c.RepairOpen(ctx, "held")
		}},
		{"Redeliver", "transfers", func(ctx context.Context, c *transfer.Coordinator) error {
			return c.Redeliver(ctx, "held")
		}},
		{"Setup", "transfers", func(ctx context.Context, c *transfer.Coordinator) error { return c.Setup(ctx) }},
	}
}

// holdEvents leaves an event for each hold.
func holdEvents() transfer.Option {
	return transfer.WithEvents(transfer.EventHandler{
		Handle: func(context.Context, transfer.Event) error { return nil },
		Kinds:  []transfer.EventKind{transfer.EventHeld},
	})
}

// closing opens a bank with a hold, whose event nobody has delivered, and connects a
// Coordinator to it over a wire.
func closing(t *testing.T, w *bank.Wire) (*bank.Bank, *transfer.Coordinator) {
	t.Helper()
	b := bank.NewWith(t, []transfer.Option{holdEvents()}, 100, 0, 0)
	b.MustHold("held", 10, time.Hour)
	w.Idle = true
	c := b.NewCoordinator(b.Through(w.Client()), holdEvents())
	require.NoError(t, c.ReopenAccount(t.Context(), "a")) // what it asks a server first is asked
	_, err := c.Get(t.Context(), "held")
	require.NoError(t, err)
	return b, c
}

// loseFlag makes a hold one that RepairOpen repairs.
func loseFlag(b *bank.Bank, call string) {
	b.T.Helper()
	if call == "RepairOpen" {
		b.Change("transfers", "held", bson.M{"$unset": bson.M{"open": ""}})
	}
}

// Close waits for a write that is on its way.
func TestCloseWaitsForWhatIsWritten(t *testing.T) {
	t.Parallel()
	for _, writing := range writings() {
		t.Run(writing.name, func(t *testing.T) {
			t.Parallel()
			reached, released := make(chan struct{}), make(chan struct{})
			w := &bank.Wire{Of: bank.Writes, To: writing.to, OnStrike: func() { close(reached); <-released }}
			b, c := closing(t, w)
			loseFlag(b, writing.name)
			w.SetIdle(false)
			told := make(chan error, 1)
			go func() { told <- writing.call(t.Context(), c) }()
			<-reached
			short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			err := c.Close(short)
			close(released)
			require.ErrorIs(t, err, context.DeadlineExceeded, "Close has not waited")
			require.NoError(t, c.Close(t.Context()))
			require.NoError(t, <-told)
			require.ErrorIs(t, writing.call(t.Context(), c), transfer.ErrClosed)
			b.ExpireAll()
			b.RecoverAll(holdEvents())
			require.Empty(t, b.MustAudit().Findings)
		})
	}
}

// writesIn returns the commands that write. A read that has begun before Close may be
// sent again after it.
func writesIn(sent []string) []string {
	return slices.DeleteFunc(slices.Clone(sent), func(name string) bool { return name == "find" })
}

// A call whose tries are lost gives up when its Coordinator is closed, and writes nothing
// after it.
func TestCloseEndsWhatIsTriedAgain(t *testing.T) {
	t.Parallel()
	for _, writing := range writings() {
		t.Run(writing.name, func(t *testing.T) {
			t.Parallel()
			reached := make(chan struct{})
			w := &bank.Wire{Of: bank.Writes, To: writing.to, What: bank.Lost, Also: allButTwo(bank.Lost), OnStrike: func() { close(reached) }}
			b, c := closing(t, w)
			loseFlag(b, writing.name)
			before := b.Contents()
			w.SetIdle(false)
			told := make(chan error, 1)
			go func() { told <- writing.call(t.Context(), c) }()
			<-reached
			require.NoError(t, c.Close(t.Context()))
			sent := writesIn(w.SentSoFar())
			require.ErrorIs(t, <-told, transfer.ErrClosed)
			require.Equal(t, sent, writesIn(w.SentSoFar()), "it has gone on trying")
			require.Equal(t, before, b.Contents())
		})
	}
}
