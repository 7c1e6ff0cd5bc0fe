package document

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// EncodeDocumentID returns the _id of an effect's document in the one form in which all
// IDs that the server takes for equal are written.
func EncodeDocumentID(id any) (bson.RawValue, error) {
	kind, data, err := bson.MarshalValue(id)
	if err != nil {
		return bson.RawValue{}, Unencoded(err)
	}
	if len(data) > wire.MaxDocumentIDBytes {
		return bson.RawValue{}, fmt.Errorf("the document's ID has %d bytes, more than %d", len(data), wire.MaxDocumentIDBytes)
	}
	value := bson.RawValue{Type: kind, Value: data}
	m := wire.NewMessage(len(data) + 16)
	m.Value("_id", value)
	m.End()
	if err := errors.Join(CheckForm(m.Data, 1), CheckValues(m.Data)); err != nil {
		return bson.RawValue{}, err
	}
	value = Canonical(value)
	return value, checkDocumentID(value)
}

// CheckValues refuses a document with values that the server doesn't compare, or no
// longer.
func CheckValues(document bson.Raw) error {
	for _, field := range wire.Elements(document) {
		if err := checkValue(field.Value()); err != nil {
			return fmt.Errorf("%s: %w", words.Quote(field.Key()), err)
		}
	}
	return nil
}

func checkValue(value bson.RawValue) error {
	switch value.Type {
	case bson.TypeUndefined, bson.TypeDBPointer:
		return fmt.Errorf("a value of the kind %s", value.Type)
	case bson.TypeEmbeddedDocument, bson.TypeArray:
		return CheckValues(bson.Raw(value.Value))
	default:
	}
	return nil
}

// checkDocumentID refuses what the server does not take for an _id, and what it may take
// for equal to something that is written otherwise.
func checkDocumentID(id bson.RawValue) error {
	switch id.Type {
	case bson.TypeString:
		if !utf8.ValidString(id.StringValue()) {
			return errors.New("the document's ID is not valid UTF-8")
		}
		return nil
	case bson.TypeObjectID, bson.TypeInt64, bson.TypeBinary, bson.TypeBoolean, bson.TypeDateTime, bson.TypeTimestamp:
		return nil
	case bson.TypeEmbeddedDocument:
		return checkDocumentIDs(wire.Elements(id.Document()))
	case bson.TypeNull, bson.TypeUndefined:
		return errors.New("the document's ID is missing")
	case bson.TypeDouble, bson.TypeDecimal128:
		return errors.New("a number that is a document's ID must be whole, and fit in 64 bits")
	default:
		return fmt.Errorf("a document's ID can't be of the kind %s", id.Type)
	}
}

// checkDocumentIDs checks the fields of an ID that is a document.
// None may look like an operator: a filter would take it for one, and find other
// documents.
func checkDocumentIDs(fields []bson.RawElement) error {
	if len(fields) == 0 {
		return errors.New("the document's ID is empty")
	}
	for _, field := range fields {
		if key := field.Key(); strings.HasPrefix(key, "$") || !utf8.ValidString(key) {
			return fmt.Errorf("the document's ID has a field %s, which begins with a dollar or is not UTF-8", words.Quote(key))
		}
		if err := checkDocumentID(field.Value()); err != nil {
			return err
		}
	}
	return nil
}

// Canonical returns an ID in one of the forms that the server takes for equal: whole
// numbers of all kinds as int64, symbols as text.
func Canonical(id bson.RawValue) bson.RawValue {
	switch id.Type {
	case bson.TypeInt32:
		return wire.RawValue(int64(id.Int32()))
	case bson.TypeDouble:
		const behind = 1 << 63
		if number := id.Double(); number == math.Trunc(number) && number >= -behind && number < behind {
			return wire.RawValue(int64(number))
		}
	case bson.TypeDecimal128:
		if number, whole := wholeNumber(id.Decimal128()); whole {
			return wire.RawValue(number)
		}
	case bson.TypeSymbol:
		return wire.RawValue(id.Symbol())
	case bson.TypeEmbeddedDocument:
		m := wire.NewMessage(len(id.Value))
		for _, field := range wire.Elements(id.Document()) {
			m.Value(field.Key(), Canonical(field.Value()))
		}
		m.End()
		return bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: m.Data}
	default: // all others are in one form as they are
	}
	return id
}

// ComparableID returns an _id so that two of them are equal where the server takes them
// for equal.
func ComparableID(id bson.RawValue) string {
	id = Canonical(id)
	return string(append([]byte{byte(id.Type)}, id.Value...))
}

// wholeNumber returns the value of a decimal that is a whole number and fits.
func wholeNumber(d bson.Decimal128) (int64, bool) {
	number, exponent, err := d.BigInt()
	if err != nil {
		return 0, false
	}
	ten, rest := big.NewInt(10), new(big.Int)
	for ; exponent < 0 && number.Sign() != 0; exponent++ {
		if number.QuoRem(number, ten, rest); rest.Sign() != 0 {
			return 0, false
		}
	}
	for ; exponent > 0 && number.IsInt64(); exponent-- {
		number.Mul(number, ten)
	}
	return number.Int64(), number.IsInt64()
}

// IDText returns a document's ID as texts have it.
func IDText(id bson.RawValue) string {
	if text, ok := id.StringValueOK(); ok {
		return text
	}
	if oid, ok := id.ObjectIDOK(); ok {
		return oid.Hex()
	}
	return id.String()
}
