package servers

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A server that is away has a ledger with the name of documents here.
// Transfers that touch neither are not delayed.
func TestNamesakeAwayKeepsNobody(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustHold("h", 60, time.Hour)
	away := bank.Client(t, "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100")
	c := b.NewCoordinator(b.DB, transfer.WithDocuments("orders", b.DB.Collection("orders")),
		transfer.WithLedger("away", away.Database(b.DB.Name()).Collection("orders")))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := c.Post(ctx, "h")
	require.NoError(t, err)
	_, err = c.Recover(ctx)
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(100, 0))
}

// A process is refused if its ledger is on another server than in all other processes, in
// a collection of the same name.
// It would post a hold there, find no marker, and return Success.
// The hold shows it, also where nothing records yet which collection the ledger is.
func TestLedgerOnAnotherServerIsRefused(t *testing.T) {
	t.Parallel()
	b := bank.NewBranches(t, bank.SecondServer(t), 100, 100)
	_, err := b.Both.Hold(t.Context(), bank.Across("h", 60), time.Hour)
	require.NoError(t, err)
	removed, err := b.DB.Collection("transfers.transfer").DeleteOne(t.Context(), bson.M{"_id.ledger": "other"})
	require.NoError(t, err)
	require.EqualValues(t, 1, removed.DeletedCount)

	accounts := elsewhere(b)
	wrong := b.NewCoordinator(b.DB, transfer.WithLedger("other", accounts))
	_, err = wrong.Post(t.Context(), "h")
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
	require.ErrorContains(t, err, "nothing there shows that a transfer has ever been there")
	require.ErrorIs(t, wrong.Setup(t.Context()), transfer.ErrUnsupportedDeployment)
	n, err := b.DB.Collection("transfers.transfer").CountDocuments(t.Context(), bson.M{"_id.ledger": "other"})
	require.NoError(t, err)
	require.Zero(t, n, "it records nothing")
	_, err = b.Both.Post(t.Context(), "h")
	require.NoError(t, err)
	b.CheckBooks()
}
