package mongostore

import (
	"errors"
	"fmt"
	"math"

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
	value := canonical(bson.RawValue{Type: kind, Value: data})
	return value, checkDocumentID(value)
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
