package upgrade

import (
	_ "embed"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// earlier are the documents of an earlier release, one in each line, with the name of its
// collection.
//
//go:embed testdata/format1.jsonl
var earlier string

// rooms registers the collections of the earlier deployment.
func rooms(db *mongo.Database) []transfer.Option {
	return append(bank.Mirror(db), bank.Orders(db)...)
}

// newEarlier returns a bank as an earlier release has left it.
// Its coordinator is of this release.
func newEarlier(t *testing.T) *bank.Bank {
	t.Helper()
	b := bank.NewBare(t)
	b.Coordinator = b.NewCoordinator(b.DB, rooms(b.DB)...)
	restore(b)
	return b
}

// restore stores the earlier documents in an empty database.
func restore(b *bank.Bank) {
	b.T.Helper()
	documents := map[string][]any{}
	for line := range strings.Lines(strings.ReplaceAll(earlier, "DATABASE", b.DB.Name())) {
		var stored struct {
			In       string
			Document bson.Raw
		}
		require.NoError(b.T, bson.UnmarshalExtJSON([]byte(line), true, &stored))
		documents[stored.In] = append(documents[stored.In], stored.Document)
	}
	for collection, all := range documents {
		b.Insert(collection, all...)
	}
}

// notes returns the collections of the notes.
func notes() []string {
	return []string{"transfers.transfer", "accounts.transfer", "mirror.transfer", "orders.transfer"}
}

// formats returns the formats that the notes name.
func formats(b *bank.Bank) map[string]int64 {
	b.T.Helper()
	found := map[string]int64{}
	for _, collection := range notes() {
		var note struct{ Format int64 }
		filter := bson.D{{Key: "_id", Value: "deployment"}}
		require.NoError(b.T, b.DB.Collection(collection).FindOne(b.T.Context(), filter).Decode(&note))
		found[collection] = note.Format
	}
	return found
}

// subtype returns the subtype of a transfer's digest.
func subtype(b *bank.Bank, id string) byte {
	b.T.Helper()
	stored, err := b.DB.Collection("transfers").FindOne(b.T.Context(), bson.D{{Key: "_id", Value: id}}).Raw()
	require.NoError(b.T, err)
	subtype, _, ok := stored.Lookup("digest").BinaryOK()
	require.True(b.T, ok)
	return subtype
}
