package mongotest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A server with users accepts writes of its root user, and of no client without the
// password.
func TestStartWithUsers(t *testing.T) {
	server, err := StartWithUsers(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	write := func(uri string) error {
		client := Client(t, options.Client().ApplyURI(uri))
		_, err := client.Database("x").Collection("x").InsertOne(t.Context(), bson.D{})
		return err
	}
	require.NoError(t, write(server.URI()))
	_, rest, _ := strings.Cut(server.URI(), "@")
	require.ErrorContains(t, write("mongodb://"+rest), "requires authentication")
	assert.ErrorContains(t, write("mongodb://root:wrong@"+rest), "auth")
}
