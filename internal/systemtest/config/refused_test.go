package config

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A deployment that Setup or Check has refused stays refused, even if it was fit before.
// A process that only logs the error doesn't go on with it.
func TestWhatSetupRefusesStaysRefused(t *testing.T) {
	t.Parallel()
	for _, used := range []bool{false, true} {
		b := bank.New(t, 100, 0).WithIndexes()
		c := b.NewCoordinator(b.DB)
		require.NoError(t, c.Check(t.Context()))
		if used {
			_, err := c.Transfer(t.Context(), bank.Move("before", "a", "b", 10))
			require.NoError(t, err)
			_, err = c.Recover(t.Context())
			require.NoError(t, err)
		}
		expiring := mongo.IndexModel{
			Keys: bson.D{{Key: "at", Value: 1}}, Options: options.Index().SetExpireAfterSeconds(3600),
		}
		name, err := b.DB.Collection("accounts").Indexes().CreateOne(t.Context(), expiring)
		require.NoError(t, err)
		require.ErrorIs(t, c.Setup(t.Context()), transfer.ErrUnsupportedDeployment)
		for verb, call := range fitVerbs(c) {
			if verb != "Audit" && verb != "BalanceAt" { // these only read
				require.ErrorIs(t, call(t.Context()), transfer.ErrUnsupportedDeployment, verb)
			}
		}
		require.NoError(t, b.DB.Collection("accounts").Indexes().DropOne(t.Context(), name))
		require.NoError(t, c.Setup(t.Context()))
		_, err = c.Transfer(t.Context(), bank.Move("after", "a", "b", 10))
		require.NoError(t, err)
		b.CheckBooks(bank.Balances(100, 0))
	}
}
