package config

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// Healthy reports a member that is not the primary: with directConnection a client stays
// with it, reads what is old, and can't write.
func TestMemberThatIsNoPrimaryIsNotHealthy(t *testing.T) {
	t.Parallel()
	for _, primary := range []bool{true, false} {
		server := newFakeServer(t, bson.D{
			{Key: "setName", Value: "rs0"}, {Key: "hosts", Value: bson.A{"127.0.0.1:27017"}},
			{Key: "helloOk", Value: true}, {Key: "ismaster", Value: primary}, {Key: "isWritablePrimary", Value: primary},
			{Key: "secondary", Value: !primary}, {Key: "minWireVersion", Value: 0}, {Key: "maxWireVersion", Value: 17},
			{Key: "maxBsonObjectSize", Value: 16 << 20}, {Key: "maxMessageSizeBytes", Value: 48_000_000},
			{Key: "maxWriteBatchSize", Value: 100_000},
		})
		err := server.coordinator(t).Healthy(t.Context())
		if primary {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "it is not the primary")
			require.ErrorContains(t, err, "directConnection")
		}
	}
}

// Every call refuses a server that can't keep the promises, with a text that says what to
// do, before any command but hello.
func TestUnfitServersAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		hello  bson.D
		advice string
	}{
		{"a standalone", bson.D{{Key: "maxWireVersion", Value: 17}}, "start it as a replica set"},
		{"a replica set of MongoDB 4.4", bson.D{
			{Key: "maxWireVersion", Value: 9}, {Key: "setName", Value: "rs0"}, {Key: "hosts", Value: bson.A{"127.0.0.1:27017"}},
		}, "MongoDB 5.0 or later is needed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := newFakeServer(t, append(c.hello,
				bson.E{Key: "helloOk", Value: true}, bson.E{Key: "ismaster", Value: true}, bson.E{Key: "isWritablePrimary", Value: true},
				bson.E{Key: "minWireVersion", Value: 0}, bson.E{Key: "maxBsonObjectSize", Value: 16 << 20},
				bson.E{Key: "maxMessageSizeBytes", Value: 48_000_000}, bson.E{Key: "maxWriteBatchSize", Value: 100_000},
			))
			coordinator := server.coordinator(t)
			for name, call := range map[string]func(context.Context) error{
				"Setup": coordinator.Setup,
				"Transfer": func(ctx context.Context) error {
					_, err := coordinator.Transfer(ctx, bank.Move("t", "a", "b", 1))
					return err
				},
				"Submit": func(ctx context.Context) error {
					_, err := coordinator.Submit(ctx, bank.Move("t", "a", "b", 1))
					return err
				},
				"Recover": func(ctx context.Context) error { _, err := coordinator.Recover(ctx); return err },
				"Run":     coordinator.Run,
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
				err := call(ctx)
				cancel()
				require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, name)
				require.ErrorContains(t, err, c.advice, name)
				require.NotErrorIs(t, err, transfer.ErrInDoubt, name)
			}
			server.mu.Lock()
			defer server.mu.Unlock()
			require.Contains(t, server.asked, "hello")
			for _, command := range server.asked {
				require.Contains(t, []string{"hello", "isMaster", "ismaster"}, command)
			}
		})
	}
}

// A database whose name differs from another one's in case alone is named as the cause.
func TestDatabaseThatDiffersInCase(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	other := b.DB.Client().Database(strings.ToUpper(b.DB.Name()))
	c := b.NewCoordinator(other)
	_, moved := c.Transfer(t.Context(), bank.Move("t", "a", "b", 1))
	ledger := b.NewCoordinator(b.DB, transfer.WithLedger("other", other.Collection("ledger")))
	for name, err := range map[string]error{
		"Setup": c.Setup(t.Context()), "Transfer": moved, "Setup with a ledger": ledger.Setup(t.Context()),
	} {
		require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, name)
		require.ErrorContains(t, err, "in case alone", name)
		require.Equal(t, transfer.NothingStored, transfer.OutcomeOf(err), name)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// A name that the server doesn't allow is named as the cause, by each way to begin.
func TestNameThatTheServerDoesNotAllow(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	c := b.NewCoordinator(b.DB.Client().Database("bad$name"))
	for name, begin := range map[string]func(context.Context) error{"Setup": c.Setup, "Check": c.Check} {
		err := begin(t.Context())
		require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, name)
		require.ErrorContains(t, err, "bad$name", name)
		require.ErrorContains(t, err, "plainer", name)
	}
}
