package transfer_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
)

// A process whose ledger is on another server than that of everybody else doesn't go on with
// a transfer that has crashed: it would pay into the account of that name there.
func TestCrashedTransferIsNotTakenElsewhere(t *testing.T) {
	t.Parallel()
	b := newBranches(t, startServer(t), 100, 100)
	b.dying(3, lost, func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Transfer(ctx, across("t", 60))
		return err
	}, func(*mongo.Database) []transfer.Option { return []transfer.Option{b.other()} })

	elsewhere := startServer(t)
	client, err := mongo.Connect(options.Client().ApplyURI(elsewhere.URI()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	accounts := client.Database(b.db.Name()).Collection("accounts")
	_, err = accounts.InsertOne(t.Context(), bson.M{"_id": "a", "balance": int64(5)})
	require.NoError(t, err)

	wrong := b.coordinator(b.db, transfer.WithLedger("other", accounts), transfer.WithStallThreshold(0))
	_, _ = wrong.Recover(t.Context())
	b.recoverAll(b.other())
	b.audit()
}
