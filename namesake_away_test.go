package transfer_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
)

// A server that is away, and has a ledger of the same name as documents here, keeps nobody
// from the transfers that touch neither.
func TestNamesakeAwayKeepsNobody(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	b.hold("h", 60, time.Hour)
	away, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = away.Disconnect(context.Background()) })
	c := b.coordinator(b.db, transfer.WithDocuments("orders", b.db.Collection("orders")),
		transfer.WithLedger("away", away.Database(b.db.Name()).Collection("orders")))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = c.Post(ctx, "h")
	require.NoError(t, err)
	_, err = c.Recover(ctx)
	require.NoError(t, err)
	b.audit(initial(100, 0))
}
