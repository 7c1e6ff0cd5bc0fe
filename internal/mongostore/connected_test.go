package mongostore

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/deployment"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// touching returns a transfer that touches ledgers.
func touching(ledgers ...string) *document.Transfer {
	var t document.Transfer
	for _, ledger := range ledgers {
		t.Legs = append(t.Legs, document.Leg{Ledger: ledger})
	}
	return &t
}

// A place is known to be connected once it has been, and then to ask for it costs
// nothing.
func TestConnectedPlacesAreKnown(t *testing.T) {
	b := newShop(t, func(c *config) {
		for i := range deployment.MaxPlacesSeen {
			name := fmt.Sprint("ledger ", i)
			c.Ledgers[name] = c.Transfers.Database().Collection(name)
		}
	})
	withOrders := touching("", "eu")
	withOrders.Effects = []document.Effect{{Documents: "orders"}}
	require.False(t, b.store.Connected(touching("")))
	require.NoError(t, b.store.Connect(t.Context(), document.Address{}))
	require.True(t, b.store.Connected(touching("", "")))
	require.False(t, b.store.Connected(touching("", "eu")))
	require.NoError(t, b.store.Connect(t.Context(), document.Address{}, document.Address{Name: "eu"}))
	require.True(t, b.store.Connected(touching("", "eu", "")))
	require.False(t, b.store.Connected(withOrders), "documents are a place of their own")
	require.NoError(t, b.store.Connect(t.Context(), b.store.Addresses()...))
	require.True(t, b.store.Connected(withOrders))
	require.Zero(t, testing.AllocsPerRun(100, func() { b.store.Connected(withOrders) }))

	require.False(t, b.store.Connected(touching("", "nowhere")), "it is not registered")
	require.False(t, b.store.Connected(&document.Transfer{}), "nothing is known of no places")
	many := touching("", "eu", "ledger 0", "ledger 1")
	require.True(t, b.store.Connected(many))
	many.Legs = append(many.Legs, document.Leg{Ledger: "ledger 2"})
	require.False(t, b.store.Connected(many), "of so many Connect is asked")
}

// Two places that are each known to be fit may be one collection, through two clients. 1.
// A transfer uses the one, and another one the other. 2. A third one uses both: an
// account would be two participants with one marker between them.
func TestConnectedPlacesMayBeOne(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for name, same := range map[string]bool{"accounts": true, "twin": false} {
		first := mongotest.Client(t).Database(b.db.Name()).Collection(name)
		second := mongotest.Client(t).Database(b.db.Name()).Collection(name)
		if !same {
			second = mongotest.Client(t).Database(b.db.Name() + "2").Collection(name)
		}
		store, err := newRooms(config{
			Transfers: b.store.Transfers, Ledgers: map[string]*mongo.Collection{"one": first, "two": second},
			Fields: standardFields(), MarkerLimit: 1, Now: b.store.Clock.Now,
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
