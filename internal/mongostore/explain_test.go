package mongostore

import (
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// explain returns the winning plan of a find that was logged.
func (b *bank) explain(find *command) string {
	b.t.Helper()
	query := bson.D{{Key: "find", Value: find.text("find")}}
	for _, field := range []string{"filter", "sort"} {
		if value := find.body.Lookup(field); value.Type != 0 {
			query = append(query, bson.E{Key: field, Value: value})
		}
	}
	var reply struct {
		QueryPlanner struct {
			WinningPlan bson.Raw `bson:"winningPlan"`
		} `bson:"queryPlanner"`
	}
	require.NoError(b.t, b.db.RunCommand(b.t.Context(), bson.D{{Key: "explain", Value: query}}).Decode(&reply))
	return reply.QueryPlanner.WinningPlan.String()
}

// examined returns how many keys and documents a find that was logged has looked at, whichever is more.
func (b *bank) examined(find *command) int64 {
	b.t.Helper()
	query := bson.D{{Key: "find", Value: find.text("find")}}
	for _, field := range []string{"filter", "sort"} {
		query = append(query, bson.E{Key: field, Value: find.body.Lookup(field)})
	}
	var reply struct {
		Stats struct {
			Keys      int64 `bson:"totalKeysExamined"`
			Documents int64 `bson:"totalDocsExamined"`
		} `bson:"executionStats"`
	}
	command := bson.D{{Key: "explain", Value: query}, {Key: "verbosity", Value: "executionStats"}}
	require.NoError(b.t, b.db.RunCommand(b.t.Context(), command).Decode(&reply))
	return max(reply.Stats.Keys, reply.Stats.Documents)
}
