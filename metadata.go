package transfer

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/words"
)

// Limits of metadata.
const (
	maxMetadataBytes = 64 << 10
	maxMetadataDepth = 64 // documents and arrays in each other; the server takes about 200, with ours around them
)

// encodeMetadata returns a caller's metadata as it is stored: the keys of maps in alphabetical order, so that equal maps are
// equal documents.
func encodeMetadata(metadata map[string]any) (bson.Raw, error) {
	if len(metadata) == 0 {
		return nil, nil
	}
	for key := range metadata {
		if key == "" || strings.HasPrefix(key, "$") || strings.ContainsAny(key, ".\x00") || !utf8.ValidString(key) {
			return nil, invalid("the metadata key %s is empty, holds a dot or NUL, begins with a dollar or is not UTF-8", words.Quote(key))
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

// tooDeep stands for what is nested too deeply, a map that holds itself among it, and can't be encoded.
type tooDeep struct{}

// MarshalBSONValue implements bson.ValueMarshaler.
func (tooDeep) MarshalBSONValue() (byte, []byte, error) {
	return 0, nil, fmt.Errorf("nested more than %d levels deep", maxMetadataDepth)
}

// ordered turns maps with text keys into documents in the order of their keys, so many levels deep. What is nil stays so: it is stored as
// null.
func ordered(value any, levels int) any {
	switch value := value.(type) {
	case nil, bson.Marshaler, bson.ValueMarshaler: // which write themselves
		return value
	case bson.D:
		if value == nil {
			return value
		}
		return orderedWithin(value, levels)
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
		document = append(document, bson.E{Key: entries.Key().String(), Value: ordered(entries.Value().Interface(), levels-1)})
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

// checkEncoded refuses what can't be stored of a caller's document of so many fields.
func checkEncoded(doc bson.Raw, fields int) error {
	if err := document.CheckForm(doc, fields); err != nil {
		return err
	}
	return checkNested(doc, maxMetadataDepth)
}

// checkNested refuses a document that is nested too deeply, or has text in it that is not UTF-8.
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

// decodeMetadata returns nil for what is no document: metadata is the caller's, and nothing rests on it.
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
