package document

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// CheckForm refuses a document that a server can't read, or that has another number of
// fields.
// The driver does not check values that callers have encoded themselves. The server gives
// no answer to the single statement with such a document, nor to those that share its
// command.
// Bytes behind a value are another field, which the caller has not named.
func CheckForm(document bson.Raw, fields int) error {
	if err := checkDocument(document); err != nil {
		return err
	}
	if n := len(wire.Elements(document)); n != fields {
		return fmt.Errorf("encoded values that stand for %d fields, not %d", n, fields)
	}
	return nil
}

// checkDocument checks a document's frame, which is all that Validate reads, and the
// values in it.
func checkDocument(document bson.Raw) error {
	if err := document.Validate(); err != nil {
		return err
	}
	if size, _ := leadingLength(document); size != len(document) {
		return errors.New("bytes behind a document's end")
	}
	for _, field := range wire.Elements(document) {
		if err := checkEncoded(field.Value()); err != nil {
			return fmt.Errorf("%s: %w", words.Quote(field.Key()), err)
		}
	}
	return nil
}

// checkEncoded checks a value that is as long as its kind, or its own length, says.
func checkEncoded(value bson.RawValue) error {
	data := value.Value
	switch value.Type {
	case bson.TypeString, bson.TypeSymbol, bson.TypeJavaScript:
		return checkText(data)
	case bson.TypeDBPointer:
		const id = 12 // behind the text
		return checkText(data[:max(0, len(data)-id)])
	case bson.TypeBoolean:
		if data[0] > 1 {
			return fmt.Errorf("a boolean of %d", data[0])
		}
	case bson.TypeBinary:
		return checkBinary(data)
	case bson.TypeCodeWithScope:
		return checkCode(data)
	case bson.TypeEmbeddedDocument, bson.TypeArray:
		return checkDocument(data)
	default: // any bytes are a value
	}
	return nil
}

// checkText checks a text, which has its length before it and an end within that.
func checkText(data []byte) error {
	size, ok := leadingLength(data)
	if !ok || size < 1 || size != len(data)-4 || data[len(data)-1] != 0 {
		return errors.New("a text without an end")
	}
	return nil
}

// checkBinary checks bytes. The old kind states their length twice.
func checkBinary(data []byte) error {
	const old = 2
	if len(data) < 5 {
		return errors.New("bytes that are cut off")
	}
	if data[4] != old {
		return nil
	}
	if size, ok := leadingLength(data[5:]); !ok || size != len(data)-9 {
		return errors.New("bytes whose two lengths differ")
	}
	return nil
}

// checkCode checks code with a scope: the length of both, a text, a document.
func checkCode(data []byte) error {
	size, ok := leadingLength(data)
	if !ok || size != len(data) {
		return errors.New("code that is cut off")
	}
	text := data[4:]
	length, ok := leadingLength(text)
	if !ok || length < 1 || length > len(text)-4 {
		return errors.New("a text without an end")
	}
	return errors.Join(checkText(text[:4+length]), checkDocument(text[4+length:]))
}

// leadingLength reads the length that a value begins with.
func leadingLength(data []byte) (int, bool) {
	if len(data) < 4 {
		return 0, false
	}
	return int(int32(binary.LittleEndian.Uint32(data))), true
}
