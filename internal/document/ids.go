package document

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// MaxIDBytes is the length that the ID of a transfer or an account may have.
const MaxIDBytes = 255

// IDCodec says how account IDs are stored.
type IDCodec uint8

const (
	// StringIDs are stored as they are.
	StringIDs IDCodec = iota
	// ObjectIDs are 24 hex digits outside and an ObjectId inside the database.
	ObjectIDs
)

// String names the codec, as the deployment's note does.
func (c IDCodec) String() string {
	if c == ObjectIDs {
		return "ObjectIDs"
	}
	return "StringIDs"
}

// Encode returns an account's _id.
func (c IDCodec) Encode(id string) (bson.RawValue, error) {
	if err := CheckID(id); err != nil {
		return bson.RawValue{}, err
	}
	if c == StringIDs {
		return wire.RawText(id), nil
	}
	oid, err := bson.ObjectIDFromHex(id)
	if err != nil {
		return bson.RawValue{}, fmt.Errorf("%s is no ObjectId: 24 hex digits are expected", words.Quote(id))
	}
	return bson.RawValue{Type: bson.TypeObjectID, Value: oid[:]}, nil
}

// All selects the _ids of all accounts, and no value of another type. The empty text is
// none: no list could go on behind it.
func (c IDCodec) All() bson.D {
	if c == ObjectIDs {
		return bson.D{{Key: "$gte", Value: bson.ObjectID{}}}
	}
	return bson.D{{Key: "$gt", Value: ""}}
}

// Place returns an ID as a place behind which a list of accounts goes on. A text need not
// be the ID of an account.
func (c IDCodec) Place(id string) (bson.RawValue, error) {
	if c == StringIDs {
		return wire.RawText(id), CheckPlace(id)
	}
	return c.Encode(id)
}

// Canonical returns the ID as Get returns it: the hex digits of an ObjectId in lower
// case.
func (c IDCodec) Canonical(id string) string {
	if c == ObjectIDs {
		return strings.ToLower(id)
	}
	return id
}

// CheckID refuses what can't be an ID: 1 to 255 bytes of UTF-8 are expected.
func CheckID(id string) error {
	switch {
	case id == "":
		return errors.New("the ID is empty")
	case len(id) > MaxIDBytes:
		return fmt.Errorf("the ID %s has %d bytes, more than %d", words.Quote(id), len(id), MaxIDBytes)
	case !utf8.ValidString(id):
		return fmt.Errorf("the ID %s is not valid UTF-8", words.Quote(id))
	}
	return nil
}

// CheckPlace refuses what can't be the place behind which a list goes on: it may be
// longer than an ID.
func CheckPlace(id string) error {
	if !utf8.ValidString(id) {
		return fmt.Errorf("the ID %s is not valid UTF-8", words.Quote(id))
	}
	return nil
}

// Decode returns an account's ID in the form of the API.
func (c IDCodec) Decode(id bson.RawValue) (string, error) {
	if oid, ok := id.ObjectIDOK(); ok && c == ObjectIDs {
		return oid.Hex(), nil
	}
	if text, ok := id.StringValueOK(); ok && c == StringIDs {
		return text, nil
	}
	return "", fmt.Errorf("the _id %s is not of the kind that the coordinator was told to expect: see WithAccountIDs", words.Clip(id.String()))
}

// CompareIDs orders IDs of accounts, which are all texts or all of one length, as the
// server does.
func CompareIDs(a, b bson.RawValue) int {
	if text, ok := a.StringValueOK(); ok {
		other, _ := b.StringValueOK()
		return bytes.Compare([]byte(text), []byte(other))
	}
	return bytes.Compare(a.Value, b.Value)
}
