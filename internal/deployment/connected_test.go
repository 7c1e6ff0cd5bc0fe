package deployment_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/deployment"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// touching returns a transfer that touches ledgers.
func touching(ledgers ...string) *document.Transfer {
	var t document.Transfer
	for _, ledger := range ledgers {
		t.Legs = append(t.Legs, document.Leg{Ledger: ledger})
	}
	return &t
}

// A collection is known to be connected once it has been. From then on it costs nothing
// to ask.
func TestConnectedPlacesAreKnown(t *testing.T) {
	b := storetest.New(t, func(c *storetest.Config) {
		c.Documents = map[string]*mongo.Collection{"orders": c.Transfers.Database().Collection("orders")}
		for i := range deployment.MaxCompared {
			name := fmt.Sprint("ledger ", i)
			c.Ledgers[name] = c.Transfers.Database().Collection(name)
		}
	})
	withOrders := touching("", "eu")
	withOrders.Effects = []document.Effect{{Documents: "orders"}}
	require.False(t, b.Store.Connected(touching("")))
	require.NoError(t, b.Store.Connect(t.Context(), document.Address{}))
	require.True(t, b.Store.Connected(touching("", "")))
	require.False(t, b.Store.Connected(touching("", "eu")))
	require.NoError(t, b.Store.Connect(t.Context(), document.Address{}, document.Address{Name: "eu"}))
	require.True(t, b.Store.Connected(touching("", "eu", "")))
	require.False(t, b.Store.Connected(withOrders), "documents have an address of their own")
	require.NoError(t, b.Store.Connect(t.Context(), b.Store.Addresses()...))
	require.True(t, b.Store.Connected(withOrders))
	require.Zero(t, testing.AllocsPerRun(100, func() { b.Store.Connected(withOrders) }))

	require.False(t, b.Store.Connected(touching("", "nowhere")), "it is not registered")
	require.False(t, b.Store.Connected(&document.Transfer{}), "nothing is known of a transfer without addresses")
	many := touching("", "eu", "ledger 0", "ledger 1")
	require.True(t, b.Store.Connected(many))
	many.Legs = append(many.Legs, document.Leg{Ledger: "ledger 2"})
	require.False(t, b.Store.Connected(many), "beyond the limit Connect is asked")
}

// Two addresses that are each connected may lead to one collection, through two clients:
//
//  1. One transfer uses the first, and another one the second.
//  2. A third transfer uses both. An account would be two participants with one marker
//     between them.
func TestConnectedPlacesMayBeOne(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	for name, same := range map[string]bool{"accounts": true, "twin": false} {
		first := mongotest.Client(t).Database(b.DB.Name()).Collection(name)
		second := mongotest.Client(t).Database(b.DB.Name()).Collection(name)
		if !same {
			second = mongotest.Client(t).Database(b.DB.Name() + "2").Collection(name)
		}
		store, err := storetest.NewRooms(storetest.Config{
			Transfers: b.Store.Transfers, Ledgers: map[string]*mongo.Collection{"one": first, "two": second},
			Fields: storetest.StandardFields(), MarkerLimit: 1, Now: b.Store.Clock.Now,
		})
		require.NoError(t, err)
		one, two := document.Address{Name: "one"}, document.Address{Name: "two"}
		require.NoError(t, store.Connect(t.Context(), one))
		require.NoError(t, store.Connect(t.Context(), two))
		require.True(t, store.Connected(touching("one")))
		require.True(t, store.Connected(touching("two")))
		if same {
			require.False(t, store.Connected(touching("one", "two")))
			require.ErrorIs(t, store.Connect(t.Context(), one, two), collections.ErrUnsupported)
			require.False(t, store.Connected(touching("one", "two")))
		} else {
			require.True(t, store.Connected(touching("one", "two")))
		}
	}
}
