package mongostore

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A marker's key tells its transfer, whatever that is called; and what is no marker's key tells none.
func TestTransferOf(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"t", "order-17", "a.b", "$a", "100%", "%2E", "17", "0", "a\x00b", "é", "%", "%%", "a%2"} {
		got, ok := transferOf(markerKey(id))
		require.True(t, ok, id)
		assert.Equal(t, id, got)
	}
	for _, key := range []string{"", "%", "%2", "%zz", "%2e", "%41", "17", "a%2", "%25%"} {
		_, ok := transferOf(key)
		assert.False(t, ok, key)
	}
}

// A portrait tells what is wrong with each field, whatever is stored there, and counts what is a number.
func TestPortrait(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	atlas := NewAuditReader(b.store.Deployment)
	places := atlas.Places
	require.Len(t, places, 2)
	require.Equal(t, "eu", places[1].Name)
	for _, row := range []struct {
		changes bson.M
		bad     AuditDocument
		counts  bool
	}{
		{nil, AuditDocument{}, true},
		{bson.M{"pending": nil, "fence": nil}, AuditDocument{}, true},
		{bson.M{"balance": "1"}, AuditDocument{BadBalance: "x"}, false},
		{bson.M{"balance": 1.0}, AuditDocument{BadBalance: "x"}, false},
		{bson.M{"balance": nil}, AuditDocument{BadBalance: "x"}, false},
		{bson.M{"balance": decimal("1.0000000000001")}, AuditDocument{BadBalance: "x"}, true},
		{bson.M{"floor": decimal("1")}, AuditDocument{BadFloor: "x"}, true},
		{bson.M{"floor": "1"}, AuditDocument{BadFloor: "x"}, true},
		{bson.M{"floor": bson.MinKey{}}, AuditDocument{}, true},
		{bson.M{"floor": int64(-5), "balance": decimal("1.5")}, AuditDocument{}, true},
		{bson.M{"currency": bson.Symbol("EUR")}, AuditDocument{}, true},
		{bson.M{"currency": bson.A{"EUR"}}, AuditDocument{BadCurrency: "x"}, true},
		{bson.M{"pending": bson.A{}}, AuditDocument{BadPending: "x"}, true},
		{bson.M{"pending": 5}, AuditDocument{BadPending: "x"}, true},
	} {
		p := atlas.auditDocument(places[0], encode(account("a", row.changes)))
		story := encode(bson.M{"changes": row.changes}).String()
		assert.Equal(t, row.bad.BadBalance != "", p.BadBalance != "", story)
		assert.Equal(t, row.bad.BadFloor != "", p.BadFloor != "", story)
		assert.Equal(t, row.bad.BadCurrency != "", p.BadCurrency != "", story)
		assert.Equal(t, row.bad.BadPending != "", p.BadPending != "", story)
		assert.Empty(t, p.BadID, story)
		assert.Equal(t, row.counts, p.Counts, story)
	}
	for _, id := range []any{5, bson.NewObjectID(), "", bson.M{"a": 1}} {
		assert.NotEmpty(t, atlas.auditDocument(places[0], encode(account(id, nil))).BadID, "%v", id)
	}
}
