package config

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// before returns a client on which something happens just before its n-th command of a
// name on what lies beside collections is sent, counted from 1.
func before(command string, n int64, happens func()) *options.ClientOptions {
	var seen atomic.Int64
	return options.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		collection, _ := e.Command.Lookup(e.CommandName).StringValueOK()
		if e.CommandName == command && strings.HasSuffix(collection, ".transfer") && seen.Add(1) == n {
			happens()
		}
	}})
}

// A process that begins while another one draws the identity and records it finds both or
// only the identity, whichever of its commands are late.
func TestFirstUseWhileAnotherRecords(t *testing.T) {
	t.Parallel()
	for command, most := range map[string]int64{"aggregate": 3, "findAndModify": 2} {
		for n := int64(1); n <= most; n++ {
			b := bank.New(t, 100, 0).WithIndexes()
			forgetIdentities(b)
			happened := false
			client := before(command, n, func() {
				happened = true
				require.NoError(t, b.NewCoordinator(b.DB).Setup(t.Context()))
			})
			c := b.NewCoordinator(b.Through(client))
			_, err := c.Transfer(t.Context(), bank.Move("t", "a", "b", 10))
			require.NoError(t, err, "%s %d", command, n)
			require.True(t, happened, "%s %d", command, n)
			require.NoError(t, c.Check(t.Context()))
			requireRecorded(b)
			b.CheckBooks(bank.Balances(100, 0))
		}
	}
}

// A process that finds no record, and whose own is refused as another one is there by
// then, is refused before it has left a note.
func TestRecordOfAnotherIsThereByThen(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	forgetIdentities(b)
	b.Remove("accounts.transfer", "deployment")
	client := before("findAndModify", 2, func() { // the first one draws the identity
		b.Insert("transfers.transfer", bson.D{{Key: "identity", Value: "another"}, {Key: "_id", Value: bson.D{
			{Key: "ledger", Value: ""}, {Key: "namespace", Value: b.DB.Name() + ".accounts"},
		}}})
	})
	c := b.NewCoordinator(b.Through(client))
	_, err := c.Transfer(t.Context(), bank.Move("t", "a", "b", 10))
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
	require.ErrorContains(t, err, "is another collection")
	stored := b.Contents()
	_, err = c.Transfer(t.Context(), bank.Move("t", "a", "b", 10))
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
	require.Equal(t, stored, b.Contents(), "it writes nothing any more")
	n, err := b.DB.Collection("accounts.transfer").CountDocuments(t.Context(), bson.M{"_id": "deployment"})
	require.NoError(t, err)
	require.Zero(t, n)
	require.Equal(t, map[string]int64{"a": 100, "b": 0}, b.Balances())
}

// Adopt does not replace a record that was written since it was read.
func TestAdoptWhileAnotherAdopts(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.SetField("accounts.transfer", "identity", "identity", "another")
	var stored map[string][]string
	client := before("findAndModify", 1, func() {
		require.NoError(t, b.NewCoordinator(b.DB).Adopt(t.Context()))
		stored = b.Contents()
	})
	err := b.NewCoordinator(b.Through(client)).Adopt(t.Context())
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
	require.ErrorContains(t, err, "was changed by somebody else: ask again")
	require.Equal(t, stored, b.Contents())
	require.NoError(t, b.NewCoordinator(b.DB).Check(t.Context()))
}
