package oplogreader_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/fences"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/oplogreader"
	"github.com/mongotransfer/transfer/internal/storetest"
)

func TestMain(m *testing.M) { os.Exit(mongotest.Main(m)) }

// A stream is opened on a set of one member. It shows nothing of what happens.
// In a set of three the other members read the oplog.
func TestOver(t *testing.T) {
	t.Parallel()
	for members, opened := range map[int]bool{1: true, 3: false} {
		set, err := mongotest.StartSet(t.Context(), members)
		require.NoError(t, err)
		client, err := mongo.Connect(options.Client().ApplyURI(set.URI()))
		require.NoError(t, err)
		db := client.Database("bank")
		rooms, err := storetest.NewRooms(storetest.Config{
			Transfers: db.Collection("transfers"), Ledgers: map[string]*mongo.Collection{"": db.Collection("accounts")},
			Fields: storetest.StandardFields(), MarkerLimit: 100, FenceBytes: fences.LeastMemory, Now: time.Now,
		})
		require.NoError(t, err)
		require.NoError(t, rooms.Setup(t.Context()))
		stream, err := oplogreader.Over(rooms.Queries)(t.Context(), time.Second)
		if require.Equal(t, opened, err == nil, "%v", err); opened {
			_, err := db.Collection("transfers").InsertOne(t.Context(), map[string]int{"seen": 1})
			require.NoError(t, err)
			require.NoError(t, stream.Next(t.Context())) // what came with the cursor
			begun := time.Now()
			require.NoError(t, stream.Next(t.Context()))
			require.Greater(t, time.Since(begun), time.Second/2)
			stream.Close(t.Context())
		}
		require.NoError(t, client.Disconnect(context.WithoutCancel(t.Context())))
		require.NoError(t, set.Stop())
	}
}
