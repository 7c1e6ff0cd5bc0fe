package storetest

import (
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Explain returns the winning plan of a logged find, as text.
func (b *Bank) Explain(find *Command) string {
	b.T.Helper()
	var reply struct {
		QueryPlanner struct {
			WinningPlan bson.Raw `bson:"winningPlan"`
		} `bson:"queryPlanner"`
	}
	b.explain(find, "queryPlanner", &reply)
	return reply.QueryPlanner.WinningPlan.String()
}

// Examined runs a logged find again, and returns how many keys or documents the server
// examined for it, whichever is more.
func (b *Bank) Examined(find *Command) int64 {
	b.T.Helper()
	var reply struct {
		Stats struct {
			Keys      int64 `bson:"totalKeysExamined"`
			Documents int64 `bson:"totalDocsExamined"`
		} `bson:"executionStats"`
	}
	b.explain(find, "executionStats", &reply)
	return max(reply.Stats.Keys, reply.Stats.Documents)
}

func (b *Bank) explain(find *Command, verbosity string, reply any) {
	b.T.Helper()
	query := bson.D{{Key: "find", Value: find.Text("find")}}
	for _, field := range []string{"filter", "sort", "limit"} {
		if value := find.Body.Lookup(field); value.Type != 0 {
			query = append(query, bson.E{Key: field, Value: value})
		}
	}
	command := bson.D{{Key: "explain", Value: query}, {Key: "verbosity", Value: verbosity}}
	require.NoError(b.T, b.DB.RunCommand(b.T.Context(), command).Decode(reply))
}
