package lookout

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// A log handler may call what waits for the lookout.
func TestLogHandlerMayCallBack(t *testing.T) {
	client, err := mongo.Connect()
	require.NoError(t, err)
	require.NoError(t, client.Disconnect(t.Context()))
	db := client.Database("none")
	catalog, err := collections.New(collections.Config{
		Transfers: db.Collection("transfers"), Ledgers: map[string]*mongo.Collection{"": db.Collection("accounts")}, Now: time.Now,
	})
	require.NoError(t, err)
	l := New(queries.New(catalog), nil, time.Now)
	handler := storetest.NewWithoutLock(t, &l.mu)
	l.log = slog.New(handler)
	l.followStream()
	require.Equal(t, 1, handler.Records())
	require.True(t, l.stream.retryAt.After(time.Now().Add(-time.Minute)))
}
