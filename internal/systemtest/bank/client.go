package bank

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Client returns a client of the server at uri that ends with the test, as [End] does.
func Client(t *testing.T, uri string, opts ...*options.ClientOptions) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(append([]*options.ClientOptions{options.Client().ApplyURI(uri)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { End(client) })
	return client
}

// End ends a client. It takes no leave of the server, which may be silent, paused or
// gone.
func End(client *mongo.Client) {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = client.Disconnect(now)
}
