package pipeline_test

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/pipeline"
	"github.com/mongotransfer/transfer/internal/wire"
)

func fieldsOfTest() document.Fields {
	return document.Fields{
		Balance: "the balance", Pending: "pending", Fence: "fence", Floor: "floor", Currency: "currency",
		Closed: "closed", Frozen: "frozen",
	}
}

func passes(t *testing.T, on *mongo.Collection, bodies pipeline.Bodies) bool {
	t.Helper()
	trial, err := bodies.Trial(fieldsOfTest())
	require.NoError(t, err)
	got, err := wire.Aggregate(t.Context(), on, trial.Pipeline)
	return err == nil && trial.Passed(got)
}

// A server passes, also where the collection is empty. One that leaves out a single
// condition of a single shape doesn't.
func TestTrial(t *testing.T) {
	t.Parallel()
	bodies, err := pipeline.New(fieldsOfTest())
	require.NoError(t, err)
	on := mongotest.Database(t).Collection("accounts")
	require.True(t, passes(t, on, bodies))
	spoiled := 0
	for shape, body := range bodies {
		for i := range conditionsIn(t, body) {
			others := maps.Clone(bodies)
			others[shape] = withoutCondition(t, body, i)
			spoiled++
			assert.False(t, passes(t, on, others), "%+v without %s", shape, conditionsIn(t, body)[i])
		}
	}
	assert.Equal(t, 2*(11+5+5+11)+4, spoiled)
}

// conditionsIn returns the conditions of a body.
func conditionsIn(t *testing.T, body bson.Raw) []bson.RawValue {
	t.Helper()
	all, err := body.LookupErr("$let", "in", "$cond", "0", "$and")
	require.NoError(t, err)
	values, err := all.Array().Values()
	require.NoError(t, err)
	return values
}

// withoutCondition returns a body in which the i-th condition always holds.
func withoutCondition(t *testing.T, body bson.Raw, i int) bson.Raw {
	t.Helper()
	var decoded bson.D
	require.NoError(t, bson.Unmarshal(body, &decoded))
	in := decoded[0].Value.(bson.D)[1].Value.(bson.D)[0].Value.(bson.A)
	in[0].(bson.D)[0].Value.(bson.A)[i] = true
	encoded, err := bson.Marshal(decoded)
	require.NoError(t, err)
	return encoded
}
