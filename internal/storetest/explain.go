package storetest

import (
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Explain returns the server's plan for a find that was sent, as text.
func (b *Bank) Explain(find *Command) string {
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
	explain := bson.D{{Key: "explain", Value: query}}
	require.NoError(b.T, b.DB.RunCommand(b.T.Context(), explain).Decode(&reply))
	return reply.QueryPlanner.WinningPlan.String()
}
