package config

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A connection string with the name of another replica set is named as the cause.
func TestAnotherReplicaSetIsNamed(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1)
	wrong := options.Client().SetDirect(false).SetReplicaSet("another").SetServerSelectionTimeout(100 * time.Millisecond)
	c := b.NewCoordinator(b.Through(wrong))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err := c.GetAccount(ctx, "a")
	require.ErrorContains(t, err, `no server is a member of the replica set "another": check replicaSet in the connection string`)
	b.CheckBooks(bank.Balances(1))
}
