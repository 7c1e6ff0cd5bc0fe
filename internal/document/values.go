package document

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Values are what an effect requires of a document, and what it sets there.
type Values struct {
	// Require and Set are fields and their values.
	Require, Set bson.Raw
}

// WriteRequired requires that a document's fields have the required values.
// Each value is wrapped, so that one that looks like an operator is taken as a value.
func (v Values) WriteRequired(m *wire.Message) {
	for _, field := range wire.Elements(v.Require) {
		m.Begin(field.Key())
		m.Equals(field.Value())
		m.End()
	}
}

// Requirement is the filter of a document with this _id that has the required values.
func (v Values) Requirement(id bson.RawValue) bson.Raw {
	m := wire.NewMessage(256 + v.RequiredBytes())
	m.Value("_id", id)
	v.WriteRequired(m)
	m.End()
	return m.Data
}

// WriteSet writes the fields that are set.
func (v Values) WriteSet(m *wire.Message) {
	for _, field := range wire.Elements(v.Set) {
		m.Value(field.Key(), field.Value())
	}
}

// RequiredBytes bounds the bytes of the conditions for the required values.
func (v Values) RequiredBytes() int {
	const around = 48 // each value
	size := len(v.Require)
	for _, field := range wire.Elements(v.Require) {
		size += around
		if value := field.Value(); value.Type == bson.TypeArray {
			size += len(value.Value) // an array is written twice
		}
	}
	return size
}

// FieldsOf returns how many fields the server compares or sets for an operation.
func (v Values) FieldsOf(kind protocol.Kind) int {
	switch kind {
	case protocol.Prepare, protocol.Look:
		return len(wire.Elements(v.Require))
	case protocol.Pay, protocol.Settle:
		return len(wire.Elements(v.Set))
	default:
		return 0
	}
}

// Differing returns the first field that certainly differs from what is required. Where
// none does, it returns the first one that is not the same to the byte: how the server
// compares depends on more.
func (v Values) Differing(doc bson.Raw) *Unmet {
	found := &Unmet{}
	for _, field := range wire.Elements(v.Require) {
		want, got := field.Value(), doc.Lookup(field.Key())
		if want.Equal(got) || Absent(want) && Absent(got) {
			continue
		}
		numbers := want.IsNumber() && got.IsNumber()
		certain := !numbers && got.Type != bson.TypeArray && want.Type != bson.TypeArray
		if certain || found.Field == "" {
			found = &Unmet{Field: field.Key(), Want: want, Got: got}
		}
		if certain {
			break
		}
	}
	return found
}
