package document_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
)

// decodedBefore is a transfer as the release of format 1 decodes it.
type decodedBefore struct {
	ID     string `bson:"_id"`
	Digest []byte `bson:"digest"`
}

// A release of format 1 that runs already can't read a transfer of format 2, so it leaves
// it alone.
// What it has stored itself, each of both can read.
func TestReleaseBeforeCantReadAnother(t *testing.T) {
	for _, format := range []int{document.FormatBefore, document.Format} {
		stored := document.Transfer{ID: "order-17", CreatedAt: time.Now(), Digest: document.Digest{Format: format, Sum: []byte{1, 42}}}
		encoded := stored.Encode()
		decoded, err := document.DecodeTransfer(encoded)
		require.NoError(t, err)
		require.Equal(t, stored.Digest, decoded.Digest)
		again, err := bson.Marshal(bson.D{{Key: "digest", Value: decoded.Digest}})
		require.NoError(t, err)
		require.Equal(t, encoded.Lookup("digest"), bson.Raw(again).Lookup("digest"), "as a claim requires it")

		var before decodedBefore
		err = bson.Unmarshal(encoded, &before)
		if format == document.Format {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []byte{1, 42}, before.Digest)
	}
}

// A digest of a later format makes a transfer unreadable.
// One that was lost leaves it readable, and in no format.
func TestDigestsOfNoFormat(t *testing.T) {
	later, older := bson.Binary{Subtype: 0x81, Data: []byte{1}}, bson.Binary{Subtype: 2, Data: []byte{1}}
	for _, digest := range []any{later, older, "text", int64(1), bson.D{}} {
		encoded, err := bson.Marshal(bson.D{{Key: "_id", Value: "order-17"}, {Key: "digest", Value: digest}})
		require.NoError(t, err)
		_, err = document.DecodeTransfer(encoded)
		require.ErrorIs(t, err, document.ErrUnreadable)
		require.ErrorContains(t, err, `see its field "digest"`)
	}
	for _, lost := range []bson.D{{}, {{Key: "digest", Value: nil}}} {
		encoded, err := bson.Marshal(lost)
		require.NoError(t, err)
		decoded, err := document.DecodeTransfer(encoded)
		require.NoError(t, err)
		require.Zero(t, decoded.Digest)
	}
}

// The sum says what was asked for, in whatever format it is stored.
func TestSameInBothFormats(t *testing.T) {
	one := document.Digest{Format: document.Format, Sum: []byte{1, 42}}
	require.True(t, one.Same(document.Digest{Format: document.FormatBefore, Sum: []byte{1, 42}}))
	require.False(t, one.Same(document.Digest{Format: document.Format, Sum: []byte{1, 43}}))
}
