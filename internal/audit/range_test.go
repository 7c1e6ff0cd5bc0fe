package mongostore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/document"
)

// Ranges without a gap take in each document once, whatever its _id is, and read no more than their part of the index.
func TestRangesWithoutAGap(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		ids  document.IDCodec
		a, b string
	}{
		"texts":     {document.StringIDs, "b", "m"},
		"ObjectIds": {document.ObjectIDs, "6a0000000000000000000000", "6B0000000000000000000000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, func(c *config) { c.IDs = row.ids })
			ids := []any{
				"", "a", "b", "c", "m", "z", bson.MinKey{}, bson.MaxKey{}, nil, 5, 1.5, true, time.Now(), bson.M{"a": 1}, bson.Binary{},
			}
			for _, hex := range []string{
				"000000000000000000000000", "650000000000000000000000", "660000000000000000000000", "6a0000000000000000000000",
				"6b0000000000000000000000", "ffffffffffffffffffffffff",
			} {
				id, err := bson.ObjectIDFromHex(hex)
				require.NoError(t, err)
				ids = append(ids, id)
			}
			for _, id := range ids {
				_, err := b.db.Collection("accounts").InsertOne(t.Context(), account(id, nil))
				require.NoError(t, err)
			}
			atlas := audit.NewReader(b.store.Deployment)
			b.log.take()
			seen := map[string]int{}
			for _, r := range []audit.Range{{To: row.a}, {From: row.a, To: row.b}, {From: row.b}} {
				for p, err := range atlas.ReadDocuments(t.Context(), atlas.Places[0], r) {
					require.NoError(t, err)
					seen[p.Key]++
				}
				plan := b.explain(b.log.take()[0])
				require.Contains(t, plan, `"_id_"`)
				require.NotContains(t, plan, "COLLSCAN")
			}
			require.Len(t, seen, len(ids))
			for key, times := range seen {
				require.Equal(t, 1, times, "%q", key)
			}
			require.ErrorContains(t, atlas.Check(audit.Range{From: row.b, To: row.a}, audit.Range{}), "nothing")
			require.NoError(t, atlas.Check(audit.Range{From: row.a, To: row.b}, audit.Range{}))
		})
	}
}
