package document_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// A marker's key escapes the characters that have a meaning to the server.
func TestMarkerKey(t *testing.T) {
	t.Parallel()
	for id, key := range storetest.AwkwardIDs() {
		assert.Equal(t, key, document.MarkerKey(id), "%q", id)
	}
}

// A marker's key contains its transfer's ID, whatever that is. Other keys name no
// transfer.
func TestTransferOf(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"t", "order-17", "a.b", "$a", "100%", "%2E", "17", "0", "a\x00b", "é", "%", "%%", "a%2"} {
		got, ok := document.TransferOf(document.MarkerKey(id))
		require.True(t, ok, id)
		assert.Equal(t, id, got)
	}
	for _, key := range []string{"", "%", "%2", "%zz", "%2e", "%41", "17", "a%2", "%25%"} {
		_, ok := document.TransferOf(key)
		assert.False(t, ok, key)
	}
}
