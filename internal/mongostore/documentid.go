package mongostore

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// maxDocumentIDBytes bounds the ID of an effect's document: the server's own limit is that of a key in its index.
const maxDocumentIDBytes = 1024

// EncodeDocumentID returns the _id of an effect's document in the one form in which all IDs that the server takes for equal are written.
func EncodeDocumentID(id any) (bson.RawValue, error) {
	kind, data, err := bson.MarshalValue(id)
	if err != nil {
		return bson.RawValue{}, err
	}
	if len(data) > maxDocumentIDBytes {
		return bson.RawValue{}, fmt.Errorf("the document's ID has %d bytes, more than %d", len(data), maxDocumentIDBytes)
	}
	value := bson.RawValue{Type: kind, Value: data}
	if err := errors.Join(value.Validate(), checkValue(value)); err != nil {
		return bson.RawValue{}, err
	}
	value = canonical(value)
	return value, checkDocumentID(value)
}

// CheckValues refuses a document with values that the server doesn't compare, or no longer, and with such as no server can read: who
// sends them gets no answer of their own, nor do those who share the command.
func CheckValues(document bson.Raw) error {
	for _, field := range elements(document) {
		if err := checkValue(field.Value()); err != nil {
			return fmt.Errorf("%q: %w", field.Key(), err)
		}
	}
	return nil
}

func checkValue(value bson.RawValue) error {
	switch value.Type {
	case bson.TypeUndefined, bson.TypeDBPointer:
		return fmt.Errorf("a value of the kind %s", value.Type)
	case bson.TypeString, bson.TypeSymbol, bson.TypeJavaScript:
		if last := len(value.Value) - 1; last < 0 || value.Value[last] != 0 {
			return errors.New("a text without an end")
		}
	case bson.TypeEmbeddedDocument, bson.TypeArray:
		return CheckValues(bson.Raw(value.Value))
	default:
	}
	return nil
}

// checkDocumentID refuses what the server does not take for an _id, and what it may take for equal to something written otherwise.
func checkDocumentID(id bson.RawValue) error {
	switch id.Type {
	case bson.TypeString, bson.TypeObjectID, bson.TypeInt64, bson.TypeBinary, bson.TypeBoolean, bson.TypeDateTime, bson.TypeTimestamp:
		return nil
	case bson.TypeEmbeddedDocument:
		fields := elements(id.Document())
		if len(fields) == 0 {
			return errors.New("the document's ID is empty")
		}
		for _, field := range fields {
			if strings.HasPrefix(field.Key(), "$") {
				return fmt.Errorf("the document's ID has a field %q, which is an operator", field.Key())
			}
			if err := checkDocumentID(field.Value()); err != nil {
				return err
			}
		}
		return nil
	case bson.TypeNull, bson.TypeUndefined:
		return errors.New("the document's ID is missing")
	default:
		return fmt.Errorf("a document's ID can't be of the kind %s", id.Type)
	}
}

// canonical writes whole numbers as int64, which the server takes for equal to the same ones of other kinds.
func canonical(id bson.RawValue) bson.RawValue {
	const exact = 1 << 53 // up to which a double tells whole numbers apart
	if whole, ok := id.Int32OK(); ok {
		return rawValue(int64(whole))
	}
	if number, ok := id.DoubleOK(); ok && number == math.Trunc(number) && math.Abs(number) <= exact {
		return rawValue(int64(number))
	}
	if document, ok := id.DocumentOK(); ok {
		m := newMessage(len(id.Value))
		for _, field := range elements(document) {
			m.value(field.Key(), canonical(field.Value()))
		}
		m.end()
		return bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: m.data}
	}
	return id
}

// IDText tells a document's ID.
func IDText(id bson.RawValue) string {
	if text, ok := id.StringValueOK(); ok {
		return text
	}
	if oid, ok := id.ObjectIDOK(); ok {
		return oid.Hex()
	}
	return id.String()
}
