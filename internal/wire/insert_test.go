package wire

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// A document without an answer from the server doesn't count as stored.
func TestInsertsAreCounted(t *testing.T) {
	t.Parallel()
	for stored, want := range map[int]protocol.Result{2: protocol.Applied, 1: protocol.Unknown, 0: protocol.Unknown} {
		taken := bson.M{"index": 1, "code": CodeDuplicateKey, "keyPattern": bson.M{"_id": 1}}
		reply := encoded(t, bson.M{"ok": 1, "n": stored, "writeErrors": bson.A{taken}})
		all := insertVerdicts(3, reply, protocol.Applied, nil)
		assert.Equal(t, []protocol.Result{want, protocol.NotMatched, want}, []protocol.Result{all[0].Result, all[1].Result, all[2].Result})
	}
}

func encoded(t *testing.T, document any) bson.Raw {
	t.Helper()
	data, err := bson.Marshal(document)
	require.NoError(t, err)
	return data
}
