package config

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// toEU returns a request that pays units to x of the ledger eu.
func toEU(id string, units int64) transfer.Request {
	return transfer.Request{ID: id, Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-units)}, {Ledger: "eu", Account: "x", Amount: transfer.Units(units)},
	}}
}

// Where the ledger eu is another collection in each of two processes, one of them isn't
// told that what it asks for was done, because the other one has done it.
func TestOneNameForTwoCollections(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.Insert("eu1", bson.M{"_id": "x", "balance": int64(0)})
	b.Insert("eu2", bson.M{"_id": "x", "balance": int64(0)})
	one := b.NewCoordinator(b.DB, transfer.WithLedger("eu", b.DB.Collection("eu1")))
	two := b.NewCoordinator(b.DB, transfer.WithLedger("eu", b.DB.Collection("eu2")))
	require.NoError(t, one.Setup(t.Context()))
	require.NoError(t, two.Setup(t.Context()))
	_, err := one.Transfer(t.Context(), toEU("moved", 7))
	require.NoError(t, err)
	_, err = one.Hold(t.Context(), toEU("held", 5), time.Hour)
	require.NoError(t, err)
	_, err = one.Submit(t.Context(), toEU("submitted", 3))
	require.NoError(t, err)
	before := b.Contents()
	ask := func(c *transfer.Coordinator) map[string]error {
		_, many := c.TransferMany(t.Context(), []transfer.Request{toEU("moved", 7)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return map[string]error{
			"Transfer":     bank.ErrorOf(c.Transfer(ctx, toEU("moved", 7))),
			"Hold":         bank.ErrorOf(c.Hold(ctx, toEU("held", 5), time.Hour)),
			"Submit":       bank.ErrorOf(c.Submit(ctx, toEU("submitted", 3))),
			"TransferMany": many[0],
		}
	}
	for verb, err := range ask(two) {
		var conflict *transfer.ConflictError
		require.ErrorAs(t, err, &conflict, verb)
		require.Equal(t, []string{"collections"}, conflict.Differs, verb)
	}
	require.Equal(t, before, b.Contents())
	for verb, err := range ask(one) {
		require.NoError(t, err, verb)
	}
}

// A ledger that was moved with its identity is the same one: a request that is repeated
// after that is answered as before.
func TestMovedLedgerIsTheSame(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.Insert("eu1", bson.M{"_id": "x", "balance": int64(0)})
	one := b.NewCoordinator(b.DB, transfer.WithLedger("eu", b.DB.Collection("eu1")))
	require.NoError(t, one.Setup(t.Context()))
	_, err := one.Transfer(t.Context(), toEU("moved", 7))
	require.NoError(t, err)
	admin := b.DB.Client().Database("admin")
	for _, suffix := range []string{"", ".transfer"} {
		from, to := b.DB.Name()+".eu1"+suffix, b.DB.Name()+".eu2"+suffix
		require.NoError(t, admin.RunCommand(t.Context(), bson.D{{Key: "renameCollection", Value: from}, {Key: "to", Value: to}}).Err())
	}
	two := b.NewCoordinator(b.DB, transfer.WithLedger("eu", b.DB.Collection("eu2")))
	rec, err := two.Transfer(t.Context(), toEU("moved", 7))
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
	eu, err := two.Ledger("eu")
	require.NoError(t, err)
	x, err := eu.Get(t.Context(), "x")
	require.NoError(t, err)
	require.Equal(t, transfer.Units(7), x.Balance)
}
