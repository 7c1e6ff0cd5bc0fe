package audit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// Ranges without a gap between them contain each document once, whatever its _id is, and
// the server reads no more than their part of the index.
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
			b := storetest.New(t, func(c *storetest.Config) { c.IDs = row.ids })
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
				_, err := b.DB.Collection("accounts").InsertOne(t.Context(), storetest.Account(id, nil))
				require.NoError(t, err)
			}
			reader := audit.NewReader(b.Store.Catalog)
			b.Log.Take()
			read := map[string]int{}
			for _, r := range []audit.Range{{To: row.a}, {From: row.a, To: row.b}, {From: row.b}} {
				for d, err := range reader.ReadDocuments(t.Context(), reader.Collections[0], r) {
					require.NoError(t, err)
					read[d.Key]++
				}
				plan := b.Explain(b.Log.Take()[0])
				require.Contains(t, plan, `"_id_"`)
				require.NotContains(t, plan, "COLLSCAN")
			}
			require.Len(t, read, len(ids))
			for key, times := range read {
				require.Equal(t, 1, times, "%q", key)
			}
			require.ErrorContains(t, reader.Check(audit.Range{From: row.b, To: row.a}, audit.Range{}), "nothing")
			require.NoError(t, reader.Check(audit.Range{From: row.a, To: row.b}, audit.Range{}))
		})
	}
}
