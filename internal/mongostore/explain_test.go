package mongostore_test

import (
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/storetest"
)

// explain returns the winning plan of a find that was logged.
func (b *bank) explain(find *storetest.Command) string {
	b.T.Helper()
	query := bson.D{{Key: "find", Value: find.Text("find")}}
	for _, field := range []string{"filter", "sort"} {
		if value := find.Body.Lookup(field); value.Type != 0 {
			query = append(query, bson.E{Key: field, Value: value})
		}
	}
	var reply struct {
		QueryPlanner struct {
			WinningPlan bson.Raw `bson:"winningPlan"`
		} `bson:"queryPlanner"`
	}
	require.NoError(b.T, b.DB.RunCommand(b.T.Context(), bson.D{{Key: "explain", Value: query}}).Decode(&reply))
	return reply.QueryPlanner.WinningPlan.String()
}

// examined returns how many keys and documents a find that was logged has looked at,
// whichever is more.
func (b *bank) examined(find *storetest.Command) int64 {
	b.T.Helper()
	query := bson.D{{Key: "find", Value: find.Text("find")}}
	for _, field := range []string{"filter", "sort"} {
		query = append(query, bson.E{Key: field, Value: find.Body.Lookup(field)})
	}
	var reply struct {
		Stats struct {
			Keys      int64 `bson:"totalKeysExamined"`
			Documents int64 `bson:"totalDocsExamined"`
		} `bson:"executionStats"`
	}
	command := bson.D{{Key: "explain", Value: query}, {Key: "verbosity", Value: "executionStats"}}
	require.NoError(b.T, b.DB.RunCommand(b.T.Context(), command).Decode(&reply))
	return max(reply.Stats.Keys, reply.Stats.Documents)
}
