package deployment_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/fences"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// later returns a bank whose clock can be set ahead.
func later(t *testing.T) (b *storetest.Bank, pass func(time.Duration)) {
	t.Helper()
	now := time.Now()
	b = storetest.New(t, func(c *storetest.Config) { c.Now = func() time.Time { return now } })
	return b, func(d time.Duration) { now = now.Add(d) }
}

// signed is a bank whose ledger eu is connected, and one of the two documents by which
// its collections are known again.
type signed struct {
	*storetest.Bank

	pass  func(time.Duration)
	was   string
	write func(identity string)
}

// connectedSigned returns such a bank for each of the two documents.
func connectedSigned(t *testing.T) []signed {
	t.Helper()
	var all []signed
	for beside, id := range map[string]string{"accounts_eu.transfer": "identity", "transfers.transfer": "deployment"} {
		b, pass := later(t)
		require.NoError(t, b.Store.Connect(t.Context(), document.Address{Name: "eu"}))
		require.NoError(t, b.Store.ConnectSameClient(t.Context()))
		var stored bson.M
		notes := b.DB.Collection(beside)
		require.NoError(t, notes.FindOne(t.Context(), bson.M{"_id": id}).Decode(&stored))
		was, _ := stored[id].(string)
		require.NotEmpty(t, was)
		all = append(all, signed{b, pass, was, func(identity string) {
			_, err := notes.UpdateByID(t.Context(), id, bson.M{"$set": bson.M{id: identity}})
			require.NoError(t, err)
		}})
	}
	return all
}

// Whether a collection is still the one that was connected is asked again after a while,
// by one of those who use it.
func TestConnectedIsConfirmed(t *testing.T) {
	t.Parallel()
	for _, b := range connectedSigned(t) {
		eu, transfer := document.Address{Name: "eu"}, touching("eu")
		b.write("another")
		b.pass(9 * time.Second)
		require.True(t, b.Store.Connected(transfer), "it was seen a moment ago")
		b.write(b.was)
		b.pass(2 * time.Second)
		require.False(t, b.Store.Connected(transfer))
		b.Log.Take()
		require.NoError(t, b.Store.Connect(t.Context(), eu))
		require.Len(t, b.Log.Take(), 2, "the notes of the transfers and of the ledger")
		require.True(t, b.Store.Connected(transfer))
		for _, one := range []*collections.Collection{b.Store.Originals, b.Store.Ledgers["eu"]} {
			b.pass(9 * time.Second)
			require.NoError(t, one.Confirm(t.Context()))
			b.pass(2 * time.Second)
			require.False(t, b.Store.Connected(transfer), "the other one was not seen for a while")
			require.NoError(t, b.Store.Connect(t.Context(), eu))
			require.True(t, b.Store.Connected(transfer))
		}
	}
}

// Another collection is refused as it is at the first use, until it is the same again.
func TestAnotherCollectionIsRefused(t *testing.T) {
	t.Parallel()
	for _, b := range connectedSigned(t) {
		eu, transfer := document.Address{Name: "eu"}, touching("eu")
		for name, connect := range map[string]func() error{
			"Connect":           func() error { return b.Store.Connect(t.Context(), eu) },
			"ConnectToRead":     func() error { return b.Store.ConnectToRead(t.Context(), eu) },
			"ConnectSameClient": func() error { return b.Store.ConnectSameClient(t.Context()) },
		} {
			b.write("another")
			b.pass(11 * time.Second)
			require.ErrorIs(t, connect(), collections.ErrUnsupported, name)
			require.ErrorIs(t, connect(), collections.ErrUnsupported, "and from then on, too")
			require.False(t, b.Store.Connected(transfer))
			if name == "Connect" {
				require.ErrorIs(t, b.Store.ConfirmAll(t.Context()), collections.ErrUnsupported)
			}
			b.write(b.was)
			b.pass(11 * time.Second)
			require.NoError(t, connect(), name)
			require.NoError(t, b.Store.Connect(t.Context(), eu))
			require.True(t, b.Store.Connected(transfer))
		}
	}
}

// A look from which something is concluded asks at once.
func TestConfirmedAtOnce(t *testing.T) {
	t.Parallel()
	b, _ := later(t)
	eu := b.Store.Ledgers["eu"]
	require.NoError(t, eu.Confirm(t.Context()), "nothing is known of it")
	require.NoError(t, b.Store.Connect(t.Context(), document.Address{Name: "eu"}))
	require.NoError(t, eu.Confirm(t.Context()))
	require.NoError(t, b.Store.ConfirmAll(t.Context()))
	_, err := b.DB.Collection("accounts_eu.transfer").DeleteOne(t.Context(), bson.M{"_id": "identity"})
	require.NoError(t, err)
	require.ErrorIs(t, b.Store.ConfirmAll(t.Context()), collections.ErrUnsupported)
	require.ErrorIs(t, eu.Confirm(t.Context()), collections.ErrUnsupported)
	require.False(t, b.Store.Connected(touching("eu")))
	require.NoError(t, b.Store.Ledgers[""].Confirm(t.Context()))
}

// In a database that was made anew everything is another one. A process that finds that
// out by its accounts goes on at once.
func TestEverythingIsAnotherOne(t *testing.T) {
	t.Parallel()
	b, _ := later(t)
	eu := document.Address{Name: "eu"}
	require.NoError(t, b.Store.Connect(t.Context(), eu))
	require.NoError(t, b.DB.Drop(t.Context()))
	other, err := storetest.NewRooms(storetest.Config{
		Transfers: b.DB.Collection("transfers"), Fields: storetest.StandardFields(), Now: time.Now,
		Ledgers:     map[string]*mongo.Collection{"": b.DB.Collection("accounts"), "eu": b.DB.Collection("accounts_eu")},
		MarkerLimit: 100, FenceBytes: fences.LeastMemory,
	})
	require.NoError(t, err)
	require.NoError(t, other.Setup(t.Context()))
	require.ErrorIs(t, b.Store.Ledgers["eu"].Confirm(t.Context()), collections.ErrUnsupported)
	require.NoError(t, b.Store.Connect(t.Context(), eu))
	require.True(t, b.Store.Connected(touching("eu")))
}
