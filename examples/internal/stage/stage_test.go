package stage

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

func TestMain(m *testing.M) { os.Exit(mongotest.Main(m)) }

// A story leaves nothing on the server, however it ends, and what it fails with is told.
func TestPlay(t *testing.T) {
	t.Setenv("MONGODB_URI", mongotest.URI())
	broken := errors.New("broken off")
	for _, end := range []error{nil, broken} {
		var names []string
		err := play(t.Context(), func(ctx context.Context, s *Stage) error {
			shop := s.Database("shop")
			require.Same(t, shop, s.Database("shop"))
			for _, name := range []string{"shop", "bank"} {
				names = append(names, s.Database(name).Name())
				require.NoError(t, s.Database(name).CreateCollection(ctx, "accounts"))
			}
			require.ElementsMatch(t, names, stored(t, names))
			return end
		})
		require.ErrorIs(t, err, end)
		require.Empty(t, stored(t, names))
	}
}

// stored returns which of the databases there are.
func stored(t *testing.T, names []string) []string {
	t.Helper()
	filter := bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: names}}}}
	found, err := mongotest.Client(t).ListDatabaseNames(t.Context(), filter)
	require.NoError(t, err)
	return found
}
