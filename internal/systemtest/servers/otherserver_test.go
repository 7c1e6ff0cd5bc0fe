package servers

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// elsewhere returns a collection of the same name as that of the ledger other, on a third
// server, where an account has the same ID.
func elsewhere(b *bank.Branches) *mongo.Collection {
	b.T.Helper()
	client := bank.Client(b.T, bank.StartServer(b.T).URI())
	accounts := client.Database(b.DB.Name()).Collection("accounts")
	_, err := accounts.InsertOne(b.T.Context(), bson.M{"_id": "a", "balance": int64(5)})
	require.NoError(b.T, err)
	return accounts
}

// crashAcross leaves a transfer of 60 to the other server behind, whose process died when
// it had sent the decision.
func crashAcross(b *bank.Branches, id string, decision bank.Fault) {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(b.T.Context(), 20*time.Second)
	defer cancel()
	w := &bank.Wire{At: 3, What: decision, Die: true, OnDeath: cancel}
	c := b.NewCoordinator(b.Through(w.Client()), b.Other())
	_, err := c.Transfer(ctx, bank.Across(id, 60))
	bank.Kill(c)
	bank.RequireUnended(b.T, err)
	require.True(b.T, w.HasStruck())
}

// A process whose ledger is on another server than that of everybody else, in a
// collection of the same name, recovers nothing: it would find no marker there, take the
// transfer for settled or undone, and the money would be gone.
func TestNothingIsRecoveredOnAnotherServer(t *testing.T) {
	t.Parallel()
	for state, decision := range map[string]bank.Fault{"Committed": bank.AnswerLost, "Preparing": bank.Lost} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			b := bank.NewBranches(t, bank.StartServer(t), 100, 100)
			_, err := b.Both.Transfer(t.Context(), bank.Across("before", 10))
			require.NoError(t, err)
			crashAcross(b, "crashed", decision)
			require.Equal(t, state, b.RawTransfer("crashed").State)

			accounts := elsewhere(b)
			wrong := b.NewCoordinator(b.DB, transfer.WithLedger("other", accounts), transfer.WithStallThreshold(0))
			_, err = wrong.Recover(t.Context())
			require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
			require.Equal(t, state, b.RawTransfer("crashed").State)

			_, err = b.NewCoordinator(b.DB, b.Other(), transfer.WithStallThreshold(0)).Recover(t.Context())
			require.NoError(t, err)
			b.CheckBooks()
			n, err := accounts.CountDocuments(t.Context(), bson.M{"balance": int64(5)})
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
		})
	}
}
