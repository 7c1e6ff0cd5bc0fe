package document

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/wire"
)

// documentIDs returns IDs of documents as a server may store them. Neighbours may be
// equal to the server.
func documentIDs(t *testing.T) []any {
	t.Helper()
	decimal := func(text string) bson.Decimal128 {
		d, err := bson.ParseDecimal128(text)
		require.NoError(t, err)
		return d
	}
	at := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	return []any{
		0, int64(0), 0.0, math.Copysign(0, -1), decimal("0"), decimal("-0E+3"),
		7, int64(7), 7.0, decimal("7"), decimal("7.00"), decimal("0.7E+1"), 7.5, decimal("7.5"),
		int64(1 << 53), float64(1 << 53), int64(1<<53 + 1), float64(1<<53 + 2), int64(1<<53 + 2),
		int64(1 << 60), float64(1 << 60), decimal("1152921504606846976"), decimal("1152921504606846976.5"),
		-1e300, int64(math.MinInt64), float64(math.MinInt64), decimal("-9223372036854775808"), int64(math.MaxInt64), float64(math.MaxInt64),
		decimal("9223372036854775807"), decimal("9223372036854775808"), decimal("1E+6000"), decimal("1E-6000"), math.Inf(1), decimal("Infinity"),
		"7", bson.Symbol("7"), "order", bson.Symbol("order"), "", strings.Repeat("x", 500), "Grüße $.%",
		bson.ObjectID{7}, bson.ObjectID{8}, true, false, at, bson.Timestamp{T: uint32(at.Unix())}, bson.NewDateTimeFromTime(at),
		bson.Binary{Subtype: 4, Data: make([]byte, 16)}, bson.Binary{Subtype: 3, Data: make([]byte, 16)}, bson.Binary{Data: make([]byte, 16)},
		bson.D{{Key: "a", Value: 1}, {Key: "b", Value: 2.0}}, bson.D{{Key: "a", Value: 1.0}, {Key: "b", Value: int64(2)}},
		bson.D{{Key: "b", Value: 2}, {Key: "a", Value: 1}}, bson.D{{Key: "a", Value: bson.D{{Key: "a", Value: decimal("1.0")}}}},
		bson.D{{Key: "a", Value: bson.D{{Key: "a", Value: 1}}}}, bson.D{{Key: "a", Value: bson.Symbol("x")}}, bson.D{{Key: "a", Value: "x"}},
	}
}

// An ID of a document has one form: two IDs that are equal to the server have the same
// one, and two different IDs don't.
// A document is found in whichever form its _id is stored.
func TestDocumentIDsAreCanonical(t *testing.T) {
	collection := mongotest.Database(t).Collection("orders")
	ids := documentIDs(t)
	found, apart := 0, 0
	for i, stored := range ids {
		_, err := collection.InsertOne(t.Context(), bson.D{{Key: "_id", Value: stored}})
		require.NoError(t, err, "%T %v", stored, stored)
		doc, err := collection.FindOne(t.Context(), bson.D{}).Raw()
		require.NoError(t, err)
		for j, asked := range ids {
			id, err := EncodeDocumentID(asked)
			if err != nil {
				continue
			}
			count, err := collection.CountDocuments(t.Context(), bson.D{{Key: "_id", Value: asked}})
			require.NoError(t, err)
			require.Equal(t, count == 1, Canonical(doc.Lookup("_id")).Equal(id),
				"%T %v is stored, and %T %v asked for", stored, stored, asked, asked)
			switch {
			case i == j:
			case count == 1:
				found++
			default:
				apart++
			}
		}
		_, err = collection.DeleteMany(t.Context(), bson.D{})
		require.NoError(t, err)
	}
	require.Greater(t, found, 50)
	require.Greater(t, apart, 1000)
}

// An ID is refused if it is not one, may be equal to one in another form, or is too long.
func TestRefusedDocumentIDs(t *testing.T) {
	for _, id := range []any{
		nil, 0.5, math.NaN(), math.Inf(1), bson.A{1}, []string{"a"}, bson.Regex{Pattern: "a"}, bson.MinKey{}, bson.Undefined{}, bson.D{},
		bson.D{{Key: "a", Value: nil}}, bson.D{{Key: "a", Value: bson.D{{Key: "b", Value: 0.5}}}}, bson.D{{Key: "a", Value: bson.A{}}},
		strings.Repeat("x", wire.MaxDocumentIDBytes), bson.JavaScript("x"), make(chan int),
		"\xff", bson.D{{Key: "a", Value: "\xff"}}, bson.D{{Key: "\xff", Value: 1}}, bson.D{{Key: "$a", Value: 1}},
	} {
		_, err := EncodeDocumentID(id)
		require.Error(t, err, "%T %v", id, id)
	}
	half, err := bson.ParseDecimal128("0.5")
	require.NoError(t, err)
	for _, id := range []any{0.5, 1e30, half} {
		_, err := EncodeDocumentID(id)
		require.EqualError(t, err, "a number that is a document's ID must be whole, and fit in 64 bits", "%T %v", id, id)
	}
}

// A document's ID is shown as text if it is text, and otherwise with its type.
func TestIDText(t *testing.T) {
	for want, id := range map[string]any{
		"order":                      "order",
		"070000000000000000000000":   bson.ObjectID{7},
		`{"$numberLong":"7"}`:        7,
		`{"a": {"$numberLong":"1"}}`: bson.D{{Key: "a", Value: 1}},
	} {
		value, err := EncodeDocumentID(id)
		require.NoError(t, err)
		require.Equal(t, want, IDText(value))
	}
}
