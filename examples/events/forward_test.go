package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

func TestMain(m *testing.M) { os.Exit(mongotest.Main(m)) }

// startNATS starts a server in this process, and returns its address.
func startNATS(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true,
	})
	require.NoError(t, err)
	go s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	require.True(t, s.ReadyForConnections(30*time.Second))
	return s.ClientURL()
}

// brokenAt is a broker that fails once, before or after it has published.
type brokenAt struct {
	broker
	published bool
	failed    atomic.Bool
}

func (b *brokenAt) publish(ctx context.Context, subject, id string, body []byte) error {
	fails := b.failed.CompareAndSwap(false, true)
	if fails && !b.published {
		return errors.New("the broker is away")
	}
	if err := b.broker.publish(ctx, subject, id, body); err != nil {
		return err
	}
	if fails {
		return errors.New("the broker's answer is lost")
	}
	return nil
}

// bankOf returns a coordinator of a service that moves money, and delivers nothing.
func bankOf(t *testing.T, db *mongo.Database) *transfer.Coordinator {
	t.Helper()
	c, err := transfer.NewCoordinator(db, transfer.WithEvents(transfer.EventHandler{}))
	require.NoError(t, err)
	require.NoError(t, c.Setup(t.Context()))
	for id, units := range map[string]int64{"alice": 100, "bob": 0} {
		_, err := c.OpenAccount(t.Context(), transfer.Account{ID: id, Balance: transfer.Units(units)})
		require.NoError(t, err)
	}
	return c
}

// Of a hold that was posted in part, consumers get to see what was moved, and before that
// what is held.
func TestMessageOfAPost(t *testing.T) {
	part, move := transfer.Units(10), transfer.Request{From: "alice", To: "bob", Amount: transfer.Units(30)}
	legs := []transfer.Leg{{Account: move.From, Amount: move.Amount.Neg()}, {Account: move.To, Amount: move.Amount}}
	held := transfer.Event{Kind: transfer.EventHeld, Record: transfer.Record{State: transfer.StateSuccess, Legs: legs, Posted: &part}}
	require.Equal(t, []leg{{"alice", move.Amount.Neg(), ""}, {"bob", move.Amount, ""}}, messageOf(held).Legs)
	posted := held
	posted.Kind = transfer.EventSucceeded
	require.Equal(t, []leg{{"alice", part.Neg(), ""}, {"bob", part, ""}}, messageOf(posted).Legs)
}

// What becomes of transfers is in the stream, each event once, although a publish fails
// before it is stored, or after.
func TestForwarded(t *testing.T) {
	for name, published := range map[string]bool{"the message is lost": false, "the answer is lost": true} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			db := mongotest.Database(t)
			service := bankOf(t, db)
			b, err := openNATS(ctx, startNATS(t))
			require.NoError(t, err)
			forwarding, stop := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- forward(forwarding, db, &brokenAt{broker: b, published: published}) }()

			move := transfer.Request{ID: "order-17", From: "alice", To: "bob", Amount: transfer.Units(60)}
			_, err = service.Transfer(ctx, move)
			require.NoError(t, err)
			move.ID = "order-18"
			_, err = service.Transfer(ctx, move)
			require.ErrorIs(t, err, transfer.ErrInsufficientFunds)

			consumer, err := b.stream.OrderedConsumer(ctx, "transfers", jetstream.OrderedConsumerConfig{})
			require.NoError(t, err)
			got := map[string]message{}
			for len(got) < 2 {
				next, err := consumer.Next(jetstream.FetchMaxWait(30 * time.Second))
				require.NoError(t, err)
				var m message
				require.NoError(t, json.Unmarshal(next.Data(), &m))
				require.NotContains(t, got, m.ID, "the stream has it once")
				got[m.ID] = m
			}
			require.Eventually(t, func() bool {
				n, err := service.Count(ctx, transfer.Query{Undelivered: true})
				return err == nil && n == 0
			}, 30*time.Second, 10*time.Millisecond)
			stop()
			require.NoError(t, <-ended)
			info, err := b.stream.Stream(ctx, "transfers")
			require.NoError(t, err)
			require.EqualValues(t, 2, info.CachedInfo().State.Msgs)

			paid, failed := got["order-17:succeeded"], got["order-18:failed"]
			require.Equal(t, transfer.StateSuccess, paid.State)
			require.Len(t, paid.Legs, 2)
			require.Equal(t, transfer.StateFail, failed.State)
			require.Equal(t, "insufficientFunds", failed.Reason)
			require.NoError(t, b.close())
			report, err := service.Audit(ctx)
			require.NoError(t, err)
			require.Empty(t, report.Findings)
			require.NoError(t, service.Close(ctx))
		})
	}
}
