package transfer

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/words"
)

// checkEqualities refuses values that look like operators of a query. What is asked for
// are equal values, so {"$gt": ""} would stand for a document with a field of that name,
// which nobody has stored: the caller would be told that nothing is there, or that a
// requirement is not met. A document without such fields is a value like any other, and
// so is a reference of the server's own, {"$ref", "$id", "$db"}.
func checkEqualities(values bson.Raw) error {
	if len(values) == 0 {
		return nil
	}
	elements, err := values.Elements()
	if err != nil {
		return invalid("%w", err)
	}
	for _, e := range elements {
		if name := operatorIn(e.Value()); name != "" {
			return invalid("%s wants a value that it must be equal to, and %s is an operator: there are none here",
				words.Quote(e.Key()), words.Quote(name))
		}
	}
	return nil
}

// operatorIn returns the name of the first operator in a value, however deep; "" if there
// is none.
func operatorIn(value bson.RawValue) string {
	if value.Type != bson.TypeEmbeddedDocument && value.Type != bson.TypeArray {
		return ""
	}
	elements, err := bson.Raw(value.Value).Elements()
	if err != nil {
		return ""
	}
	reference := len(elements) > 1 && elements[0].Key() == "$ref" && elements[1].Key() == "$id"
	for _, e := range elements {
		key := e.Key()
		ofReference := reference && slices.Contains([]string{"$ref", "$id", "$db"}, key)
		if strings.HasPrefix(key, "$") && !ofReference {
			return key
		}
		if name := operatorIn(e.Value()); name != "" {
			return name
		}
	}
	return ""
}
