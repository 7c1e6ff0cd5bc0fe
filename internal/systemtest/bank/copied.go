package bank

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

// Copied copies a database with all notes, as mongorestore does with another name, and
// returns the copy by the same client.
func Copied(t *testing.T, from *mongo.Database) *mongo.Database {
	t.Helper()
	to := from.Client().Database(mongotest.Database(t).Name())
	names, err := from.ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	for _, name := range names {
		cursor, err := from.Collection(name).Find(t.Context(), bson.D{})
		require.NoError(t, err)
		var documents []bson.Raw
		require.NoError(t, cursor.All(t.Context(), &documents))
		if len(documents) > 0 {
			_, err = to.Collection(name).InsertMany(t.Context(), documents)
			require.NoError(t, err)
		}
	}
	return to
}
