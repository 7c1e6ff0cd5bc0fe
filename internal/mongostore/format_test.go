package mongostore_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// What an earlier release has stored is committed by its record, and a takeover stores it
// in the format in which it found it.
func TestEarlierTransfersAreByRecord(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for format, byRecord := range map[int]bool{document.FormatBefore: true, document.Format: false} {
		a := b.Attempt("order", b.Leg("alice", -60), b.Leg("bob", 60))
		a.Transfer.Digest.Format = format
		require.Equal(t, byRecord, a.Start(protocol.Start{Claim: protocol.TakeOver}).ByRecord, "format %d", format)
		b.Applied(a, storetest.Claim(protocol.Insert))
		before := b.Raw("transfers", "order").Lookup("digest")

		taken := b.Attempt("order", b.Leg("alice", -60), b.Leg("bob", 60))
		taken.Transfer.Digest.Format = format
		b.Applied(taken, storetest.Claim(protocol.TakeToCancel))
		require.Equal(t, format, taken.Transfer.Digest.Format)
		require.Equal(t, before, b.Raw("transfers", "order").Lookup("digest"))
		_, err := b.DB.Collection("transfers").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: "order"}})
		require.NoError(t, err)
	}
}
