package transfer_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
)

// A process whose ledger is on another server than that of everybody else, in a collection
// of the same name, is refused: it would post a hold there, find no marker, and say Success.
func TestLedgerOnAnotherServerIsRefused(t *testing.T) {
	t.Parallel()
	b := newBranches(t, startServer(t), 100, 100)
	_, err := b.both.Hold(t.Context(), across("h", 60), time.Hour)
	require.NoError(t, err)

	elsewhere := startServer(t)
	client, err := mongo.Connect(options.Client().ApplyURI(elsewhere.URI()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	accounts := client.Database(b.db.Name()).Collection("accounts")
	_, err = accounts.InsertOne(t.Context(), bson.M{"_id": "a", "balance": int64(5)})
	require.NoError(t, err)

	wrong := b.coordinator(b.db, transfer.WithLedger("other", accounts))
	_, err = wrong.Post(t.Context(), "h")
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
	require.ErrorIs(t, wrong.Setup(t.Context()), transfer.ErrUnsupportedDeployment)
	_, err = b.both.Post(t.Context(), "h")
	require.NoError(t, err)
	b.audit()
}
