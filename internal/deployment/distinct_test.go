package deployment_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// config returns the configuration of a bank with one ledger more.
func config(b *storetest.Bank, name string, ledger *mongo.Collection) storetest.Config {
	ledgers := map[string]*mongo.Collection{name: ledger}
	for name, l := range b.Store.Ledgers {
		ledgers[name] = l.Commands
	}
	return storetest.Config{
		Transfers: b.Store.Transfers, Ledgers: ledgers, Fields: storetest.StandardFields(), MarkerLimit: 1, Now: time.Now,
	}
}

// One collection under two names would make one account two participants with one marker.
// It is refused: through one client at once, and through two as soon as the server can be
// asked.
func TestOneCollectionUnderTwoNames(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	db := b.Store.Transfers.Database()
	for _, name := range []string{"accounts", "accounts_eu", "transfers"} {
		_, err := storetest.NewRooms(config(b, "again", db.Collection(name)))
		require.ErrorContains(t, err, db.Name()+"."+name)
	}
	other := mongotest.Client(t)
	for name, refused := range map[string]bool{"accounts": true, "transfers": true, "accounts_us": false} {
		store, err := storetest.NewRooms(config(b, "again", other.Database(db.Name()).Collection(name)))
		require.NoError(t, err)
		for range 2 {
			err := store.Connect(t.Context(), store.Addresses()...)
			if refused {
				require.ErrorIs(t, err, collections.ErrUnsupported, name)
				require.ErrorContains(t, err, db.Name()+"."+name)
				require.False(t, store.Connected(touching("", "eu", "again")), "a collection that was refused is not connected")
				require.False(t, name == "transfers" && store.Connected(touching("again")))
				require.ErrorIs(t, store.Setup(t.Context()), collections.ErrUnsupported)
			} else {
				require.NoError(t, err, name)
			}
		}
	}
	// The same name in another database is another collection.
	store, err := storetest.NewRooms(config(b, "again", mongotest.Database(t).Collection("accounts")))
	require.NoError(t, err)
	require.NoError(t, store.Connect(t.Context(), store.Addresses()...))
}

// The same name on another cluster is another collection, as its UUID shows.
func TestSameNameOnAnotherCluster(t *testing.T) {
	t.Setenv("MONGODB_URI", "")
	server, err := mongotest.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	b := storetest.New(t)
	far := mongotest.Client(t, options.Client().ApplyURI(server.URI())).Database(b.DB.Name()).Collection("accounts")
	store, err := storetest.NewRooms(config(b, "far", far))
	require.NoError(t, err)
	both := touching("", "far")
	require.NoError(t, store.Connect(t.Context(), document.Address{}))
	require.NoError(t, store.Connect(t.Context(), document.Address{Name: "far"}))
	assert.False(t, store.Connected(both), "they have one name, and nothing has shown yet that they are two")
	require.NoError(t, store.Connect(t.Context(), both.Addresses()...))
	assert.True(t, store.Connected(both))
	require.NoError(t, store.Connect(t.Context(), store.Addresses()...))
	assert.True(t, store.Ledgers["eu"].SameClient)
	assert.False(t, store.Ledgers["far"].SameClient)
	require.NoError(t, store.Setup(t.Context()))
}
