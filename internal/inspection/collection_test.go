package inspection

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
)

// A collection may be sharded only by _id.
func TestShardedByID(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		entry bson.M
		fine  bool
	}{
		"ranged":           {bson.M{"key": bson.M{"_id": 1}}, true},
		"hashed":           {bson.M{"key": bson.M{"_id": "hashed"}}, true},
		"not sharded":      {bson.M{"_id": "bank.accounts"}, true},
		"dropped":          {bson.M{"key": bson.M{"region": 1}, "dropped": true}, true},
		"not dropped":      {bson.M{"key": bson.M{"region": 1}, "dropped": false}, false},
		"another field":    {bson.M{"key": bson.M{"region": 1}}, false},
		"compound":         {bson.M{"key": bson.D{{Key: "_id", Value: 1}, {Key: "region", Value: 1}}}, false},
		"compound, behind": {bson.M{"key": bson.D{{Key: "region", Value: 1}, {Key: "_id", Value: 1}}}, false},
		"field of _id":     {bson.M{"key": bson.M{"_id.region": 1}}, false},
	} {
		entry, err := bson.Marshal(row.entry)
		require.NoError(t, err)
		err = checkShardKey("bank.accounts", entry)
		if row.fine {
			require.NoError(t, err, name)
		} else {
			require.ErrorIs(t, err, collections.ErrUnsupported, name)
			require.ErrorContains(t, err, "bank.accounts", name)
		}
	}
}
