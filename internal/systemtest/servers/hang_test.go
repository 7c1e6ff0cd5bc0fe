package servers

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// When no answers come back any more, every call ends with its context, and so does
// Close.
// When the network is back, the coordinator works again.
func TestCallsEndWithTheirContexts(t *testing.T) {
	t.Parallel()
	// Others may keep a test's machine busy for as long as commands may take.
	for round := 0; callsWithoutAnswers(t) >= 4*time.Second; round++ {
		require.Less(t, round, 5, "somebody waits for something else than its context")
	}
}

// callsWithoutAnswers returns how long calls take whose contexts end soon, while no
// answers come back.
func callsWithoutAnswers(t *testing.T) time.Duration {
	t.Helper()
	b := bank.New(t, 100, 0)
	for i := range 300 {
		b.Insert("transfers", bson.D{
			{Key: "_id", Value: bson.NewObjectID().Hex()}, {Key: "state", Value: "Fail"}, {Key: "legs", Value: bson.A{}},
			{Key: "createdAt", Value: time.Unix(int64(i), 0)}, {Key: "metadata", Value: bson.D{{Key: "x", Value: strings.Repeat("x", 100)}}},
		})
	}
	net := &bank.Silence{}
	fresh := b.NewCoordinator(b.Through(options.Client().SetDialer(net)))
	c := b.NewCoordinator(b.Through(options.Client().SetDialer(net)))
	_, err := c.Transfer(t.Context(), bank.Move("warm", "a", "b", 1))
	require.NoError(t, err)
	for rec, err := range c.List(t.Context(), transfer.Query{}) {
		require.NoError(t, err)
		require.NotEmpty(t, rec.ID)
		net.Set(true)
		break // it ends soon too
	}
	var calls []func(context.Context) error
	for _, c := range []*transfer.Coordinator{fresh, c} {
		calls = append(calls,
			func(ctx context.Context) error { _, err := c.Transfer(ctx, bank.Move("t", "a", "b", 1)); return err },
			func(ctx context.Context) error { _, err := c.Submit(ctx, bank.Move("s", "a", "b", 1)); return err },
			func(ctx context.Context) error { _, err := c.Cancel(ctx, "t", ""); return err },
			func(ctx context.Context) error { _, err := c.Wait(ctx, "t"); return err },
			func(ctx context.Context) error { _, err := c.Get(ctx, "t"); return err },
			func(ctx context.Context) error { _, err := c.Recover(ctx); return err },
			func(ctx context.Context) error { _, err := c.OpenAccount(ctx, transfer.Account{ID: "x"}); return err },
			func(ctx context.Context) error { return c.CloseAccount(ctx, "b") },
			func(ctx context.Context) error { return c.Setup(ctx) },
			func(ctx context.Context) error { return c.Close(ctx) },
		)
	}
	begun := time.Now()
	bank.Together(len(calls), func(i int) error {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		return calls[i](ctx)
	})
	took := time.Since(begun)
	net.Set(false)
	b.RecoverAll()
	return took
}

// A lost answer delays a worker only for the time limit of a command.
func TestWorkerOutlivesALostAnswer(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	net := &bank.Silence{}
	c := b.NewCoordinator(b.Through(options.Client().SetDialer(net)))
	end := bank.InBackground(t, c)
	_, err := b.Submit(t.Context(), bank.Move("1", "a", "b", 1))
	require.NoError(t, err)
	_, err = b.Wait(t.Context(), "1")
	require.NoError(t, err)
	net.Set(true)
	_, err = b.Submit(t.Context(), bank.Move("2", "a", "b", 1))
	require.NoError(t, err)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = b.Wait(short, "2")
	require.ErrorIs(t, err, transfer.ErrInDoubt)
	net.Set(false)
	_, err = b.Wait(t.Context(), "2")
	require.NoError(t, err)
	end()
	b.CheckBooks(bank.Balances(100, 0))
}
