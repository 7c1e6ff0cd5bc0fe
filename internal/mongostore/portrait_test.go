package mongostore

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/audit"
)

// A portrait tells what is wrong with each field, whatever is stored there, and counts what is a number.
func TestPortrait(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	atlas := audit.NewReader(b.store.Deployment)
	places := atlas.Places
	require.Len(t, places, 2)
	require.Equal(t, "eu", places[1].Name)
	for _, row := range []struct {
		changes bson.M
		bad     audit.Document
		counts  bool
	}{
		{nil, audit.Document{}, true},
		{bson.M{"pending": nil, "fence": nil}, audit.Document{}, true},
		{bson.M{"balance": "1"}, audit.Document{BadBalance: "x"}, false},
		{bson.M{"balance": 1.0}, audit.Document{BadBalance: "x"}, false},
		{bson.M{"balance": nil}, audit.Document{BadBalance: "x"}, false},
		{bson.M{"balance": decimal("1.0000000000001")}, audit.Document{BadBalance: "x"}, true},
		{bson.M{"floor": decimal("1")}, audit.Document{BadFloor: "x"}, true},
		{bson.M{"floor": "1"}, audit.Document{BadFloor: "x"}, true},
		{bson.M{"floor": bson.MinKey{}}, audit.Document{}, true},
		{bson.M{"floor": int64(-5), "balance": decimal("1.5")}, audit.Document{}, true},
		{bson.M{"currency": bson.Symbol("EUR")}, audit.Document{}, true},
		{bson.M{"currency": bson.A{"EUR"}}, audit.Document{BadCurrency: "x"}, true},
		{bson.M{"pending": bson.A{}}, audit.Document{BadPending: "x"}, true},
		{bson.M{"pending": 5}, audit.Document{BadPending: "x"}, true},
	} {
		p := atlas.Document(places[0], encode(account("a", row.changes)))
		story := encode(bson.M{"changes": row.changes}).String()
		assert.Equal(t, row.bad.BadBalance != "", p.BadBalance != "", story)
		assert.Equal(t, row.bad.BadFloor != "", p.BadFloor != "", story)
		assert.Equal(t, row.bad.BadCurrency != "", p.BadCurrency != "", story)
		assert.Equal(t, row.bad.BadPending != "", p.BadPending != "", story)
		assert.Empty(t, p.BadID, story)
		assert.Equal(t, row.counts, p.Counts, story)
	}
	for _, id := range []any{5, bson.NewObjectID(), "", bson.M{"a": 1}} {
		assert.NotEmpty(t, atlas.Document(places[0], encode(account(id, nil))).BadID, "%v", id)
	}
}
