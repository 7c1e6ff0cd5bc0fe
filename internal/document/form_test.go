package document

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

// encodedValues are values that were encoded by hand: some are sound, and some can't be
// read by any server.
func encodedValues() (sound, broken map[string]bson.RawValue) {
	value := func(kind bson.Type, data ...byte) bson.RawValue { return bson.RawValue{Type: kind, Value: data} }
	id := []byte{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
	sound = map[string]bson.RawValue{
		"no text":    value(bson.TypeString, 1, 0, 0, 0, 0),
		"a symbol":   value(bson.TypeSymbol, 2, 0, 0, 0, 'x', 0),
		"false":      value(bson.TypeBoolean, 0),
		"true":       value(bson.TypeBoolean, 1),
		"no bytes":   value(bson.TypeBinary, 0, 0, 0, 0, 0),
		"old bytes":  value(bson.TypeBinary, 5, 0, 0, 0, 2, 1, 0, 0, 0, 7),
		"code":       value(bson.TypeCodeWithScope, 14, 0, 0, 0, 1, 0, 0, 0, 0, 5, 0, 0, 0, 0),
		"a document": value(bson.TypeEmbeddedDocument, 8, 0, 0, 0, 10, 'x', 0, 0),
		"a pointer":  value(bson.TypeDBPointer, append([]byte{1, 0, 0, 0, 0}, id...)...),
		"a pattern":  value(bson.TypeRegex, 'x', 0, 'i', 0),
		"a number":   value(bson.TypeInt32, 1, 2, 3, 4),
	}
	broken = map[string]bson.RawValue{
		"a text without an end":                 value(bson.TypeString, 1, 0, 0, 0, 7),
		"a text of no length":                   value(bson.TypeString, 0, 0, 0, 0),
		"a symbol without an end":               value(bson.TypeSymbol, 1, 0, 0, 0, 7),
		"a script without an end":               value(bson.TypeJavaScript, 1, 0, 0, 0, 7),
		"a boolean of 7":                        value(bson.TypeBoolean, 7),
		"a document without an end":             value(bson.TypeEmbeddedDocument, 5, 0, 0, 0, 9),
		"an array without an end":               value(bson.TypeArray, 5, 0, 0, 0, 9),
		"a boolean of 7 in a document":          value(bson.TypeEmbeddedDocument, 9, 0, 0, 0, 8, 'x', 0, 7, 0),
		"a document that is cut off":            value(bson.TypeEmbeddedDocument, 9, 0, 0, 0, 16, 'x', 0, 7, 0),
		"old bytes of two lengths":              value(bson.TypeBinary, 5, 0, 0, 0, 2, 9, 0, 0, 0, 7),
		"old bytes that are cut off":            value(bson.TypeBinary, 1, 0, 0, 0, 2, 7),
		"code without an end":                   value(bson.TypeCodeWithScope, 14, 0, 0, 0, 1, 0, 0, 0, 7, 5, 0, 0, 0, 0),
		"a scope without an end":                value(bson.TypeCodeWithScope, 14, 0, 0, 0, 1, 0, 0, 0, 0, 5, 0, 0, 0, 7),
		"code longer than itself":               value(bson.TypeCodeWithScope, 14, 0, 0, 0, 9, 0, 0, 0, 0, 5, 0, 0, 0, 0),
		"code without a scope":                  value(bson.TypeCodeWithScope, 9, 0, 0, 0, 1, 0, 0, 0, 0),
		"code that is no code":                  value(bson.TypeCodeWithScope, 4, 0, 0, 0),
		"a boolean of 7 in a scope":             value(bson.TypeCodeWithScope, 18, 0, 0, 0, 1, 0, 0, 0, 0, 9, 0, 0, 0, 8, 'x', 0, 7, 0),
		"a scope with bytes behind it":          value(bson.TypeCodeWithScope, 15, 0, 0, 0, 1, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0),
		"a pointer without an end":              value(bson.TypeDBPointer, append([]byte{1, 0, 0, 0, 7}, id...)...),
		"a number that is cut off":              value(bson.TypeInt64, 1),
		"nothing with another field behind it":  value(bson.TypeNull, 10, 'y', 0),
		"a number with another field behind it": value(bson.TypeInt32, 1, 2, 3, 4, 10, 'y', 0),
	}
	return sound, broken
}

// Values that callers have encoded are refused exactly if a server can't read them. The
// test asks the server.
func TestCheckForm(t *testing.T) {
	t.Parallel()
	papers := mongotest.Database(t).Collection("papers")
	sound, broken := encodedValues()
	for name, value := range sound {
		doc, err := bson.Marshal(bson.D{{Key: "_id", Value: name}, {Key: "x", Value: value}})
		require.NoError(t, err)
		require.NoError(t, CheckForm(doc, 2), name)
		require.Error(t, CheckForm(doc, 1), name)
		_, err = papers.InsertOne(t.Context(), bson.Raw(doc))
		require.NoError(t, err, name)
	}
	for name, value := range broken {
		doc, err := bson.Marshal(bson.D{{Key: "x", Value: value}})
		require.NoError(t, err)
		require.Error(t, CheckForm(doc, 1), name)
		_, err = EncodeDocumentID(value)
		require.Error(t, err, name)
	}
}
