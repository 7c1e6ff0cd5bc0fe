package document_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/storetest"
	"github.com/mongotransfer/transfer/internal/wire"
)

// IDs have 1 to 255 bytes of UTF-8.
func TestCheckID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", strings.Repeat("a", 256), strings.Repeat("é", 128), "\xff", "a\xc3", "\xed\xa0\x80"} {
		require.Error(t, document.CheckID(id), "%q", id)
		_, err := document.StringIDs.Encode(id)
		require.Error(t, err)
	}
	for id := range storetest.AwkwardIDs() {
		require.NoError(t, document.CheckID(id))
	}
}

// A stored _id of the wrong kind is reported, and not guessed.
func TestDecodeID(t *testing.T) {
	t.Parallel()
	oid := bson.NewObjectID()
	for _, row := range []struct {
		codec document.IDCodec
		id    any
		want  string
	}{
		{document.StringIDs, "alice", "alice"}, {document.ObjectIDs, oid, oid.Hex()},
		{document.StringIDs, oid, ""}, {document.ObjectIDs, oid.Hex(), ""}, {document.StringIDs, int64(5), ""}, {document.ObjectIDs, nil, ""},
	} {
		got, err := row.codec.Decode(wire.RawValue(row.id))
		assert.Equal(t, row.want, got)
		assert.Equal(t, row.want == "", err != nil)
	}
}
