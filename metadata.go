package transfer

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/words"
)

// Limits of metadata.
const (
	maxMetadataBytes = 64 << 10
	maxMetadataDepth = 64 // documents and arrays in each other; the server takes about 200
)

// encodeMetadata returns a caller's metadata as it is stored.
// The keys of maps are in alphabetical order, so that equal maps are equal documents.
func encodeMetadata(metadata map[string]any) (bson.Raw, error) {
	if len(metadata) == 0 {
		return nil, nil
	}
	for key := range metadata {
		if !isTopLevel(key) {
			return nil, invalid("the metadata key %s %s", words.Quote(key), faultOfKey(key))
		}
	}
	raw, err := bson.Marshal(ordered(metadata, maxMetadataDepth))
	switch {
	case err != nil:
		return nil, invalid("metadata: %w", document.Unencoded(err))
	case len(raw) > maxMetadataBytes:
		return nil, invalid("the metadata has %d bytes, more than %d", len(raw), maxMetadataBytes)
	}
	if err := checkEncoded(raw, len(metadata)); err != nil {
		return nil, invalid("metadata: %w", err)
	}
	return raw, nil
}

// faultOfKey says what is wrong with a key.
func faultOfKey(key string) string {
	switch {
	case key == "":
		return "is empty"
	case strings.HasPrefix(key, "$"):
		return "begins with a dollar"
	case strings.Contains(key, "."):
		return "holds a dot"
	case strings.Contains(key, "\x00"):
		return "holds a NUL"
	}
	return "is not UTF-8"
}

// tooDeep stands for a value that is nested too deeply, such as a map that holds itself,
// and can't be encoded.
type tooDeep struct{}

// MarshalBSONValue implements bson.ValueMarshaler.
func (tooDeep) MarshalBSONValue() (byte, []byte, error) {
	return 0, nil, fmt.Errorf("nested more than %d levels deep", maxMetadataDepth)
}

// tooFar stands for a time that BSON can't hold: the driver would store another one.
type tooFar struct{}

// MarshalBSONValue implements bson.ValueMarshaler.
func (tooFar) MarshalBSONValue() (byte, []byte, error) {
	return 0, nil, errors.New("a time beyond the range of BSON")
}

// within returns a time, or tooFar.
func within(t time.Time) any {
	if time.UnixMilli(t.UnixMilli()).Unix() != t.Unix() {
		return tooFar{}
	}
	return t
}

// ordered turns maps with text keys into documents in the order of their keys, down to a
// number of levels.
// What is nil stays nil: it is stored as null.
func ordered(value any, levels int) any {
	switch value := value.(type) {
	case nil, bson.Marshaler, bson.ValueMarshaler: // which write themselves
		return value
	case bson.D:
		if value == nil {
			return value
		}
		return orderedWithin(value, levels)
	case time.Time:
		return within(value)
	}
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.Map:
		if v.Type().Key().Kind() == reflect.String && !v.IsNil() {
			return orderedMap(v, levels)
		}
	case reflect.Slice:
		if kind := v.Type().Elem().Kind(); !v.IsNil() && (kind == reflect.Map || kind == reflect.Interface) {
			return orderedList(v, levels)
		}
	case reflect.Pointer:
		if v.IsNil() {
			return value
		}
		if levels == 0 {
			return tooDeep{}
		}
		return ordered(v.Elem().Interface(), levels-1)
	default:
	}
	return value
}

func orderedMap(v reflect.Value, levels int) any {
	if levels == 0 {
		return tooDeep{}
	}
	document := make(bson.D, 0, v.Len())
	for entries := v.MapRange(); entries.Next(); {
		value := ordered(entries.Value().Interface(), levels-1)
		document = append(document, bson.E{Key: entries.Key().String(), Value: value})
	}
	slices.SortFunc(document, func(a, b bson.E) int { return cmp.Compare(a.Key, b.Key) })
	return document
}

func orderedList(v reflect.Value, levels int) any {
	if levels == 0 {
		return tooDeep{}
	}
	result := make(bson.A, v.Len())
	for i := range result {
		result[i] = ordered(v.Index(i).Interface(), levels-1)
	}
	return result
}

// orderedWithin leaves the order of a document as it is.
func orderedWithin(document bson.D, levels int) any {
	if levels == 0 {
		return tooDeep{}
	}
	result := make(bson.D, len(document))
	for i, field := range document {
		result[i] = bson.E{Key: field.Key, Value: ordered(field.Value, levels-1)}
	}
	return result
}

// checkEncoded refuses a caller's document that can't be stored, or has not the given
// number of fields.
func checkEncoded(doc bson.Raw, fields int) error {
	if err := document.CheckForm(doc, fields); err != nil {
		return err
	}
	return checkNested(doc, maxMetadataDepth)
}

// checkNested refuses a document that is nested too deeply, or holds text that is not
// UTF-8.
func checkNested(document bson.Raw, levels int) error {
	elements, err := document.Elements()
	if err != nil {
		return err
	}
	if levels == 0 {
		return fmt.Errorf("nested more than %d levels deep", maxMetadataDepth)
	}
	for _, e := range elements {
		value := e.Value()
		if text, ok := value.StringValueOK(); !utf8.ValidString(e.Key()) || ok && !utf8.ValidString(text) {
			return errors.New("not valid UTF-8")
		}
		if value.Type != bson.TypeEmbeddedDocument && value.Type != bson.TypeArray {
			continue
		}
		if err := checkNested(bson.Raw(value.Value), levels-1); err != nil {
			return err
		}
	}
	return nil
}

// decodeMetadata returns nil for what is no document: metadata is the caller's, and
// nothing depends on it.
func decodeMetadata(raw bson.Raw) map[string]any {
	if len(raw) == 0 {
		return nil
	}
	var m map[string]any
	if bson.Unmarshal(raw, &m) != nil {
		return nil
	}
	return m
}

// checkEqualities refuses values that look like operators of a query.
// Values are compared for equality, so {"$gt": ""} would stand for a document with a
// field of that name, which does not exist: the caller would learn that nothing is there,
// or that a requirement is not met.
// The server compares nothing with undefined, and would refuse the whole query.
// A document without such fields is a value like any other, and so is a reference of the
// server's own, {"$ref", "$id", "$db"}.
func checkEqualities(values bson.Raw) error {
	if len(values) == 0 {
		return nil
	}
	elements, err := values.Elements()
	if err != nil {
		return invalid("%w", err)
	}
	for _, e := range elements {
		if e.Value().Type == bson.TypeUndefined {
			return invalid("%s wants a value that it must be equal to, and nothing is equal to undefined", words.Quote(e.Key()))
		}
		if name := operatorIn(e.Value()); name != "" {
			return invalid("%s wants a value that it must be equal to, and %s is an operator: there are none here",
				words.Quote(e.Key()), words.Quote(name))
		}
	}
	return nil
}

// operatorIn returns the name of the first operator in a value, at any depth, and "" if
// there is none.
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
