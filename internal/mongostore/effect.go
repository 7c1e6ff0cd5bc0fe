package mongostore

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// effect is what a transfer requires of a document and sets there.
type effect struct {
	require, set bson.Raw
	mayBeGone    bool // nothing is owed to a document that is gone
}

// effectParticipant returns the participant of an effect.
func (s *Store) effectParticipant(e document.Effect) (participant, error) {
	l := s.catalog.Documents[e.Documents]
	if l == nil || l.Namespace != e.Namespace {
		return participant{}, unregistered(document.Address{Documents: true, Name: e.Documents}, e.Namespace)
	}
	return participant{
		subject: l.Subject(e.ID), id: e.ID, effect: &effect{require: e.Require, set: e.Set},
		leg: document.Leg{Ledger: e.Documents, Account: document.IDText(e.ID), Amount: money.Zero(money.Whole)},
	}, nil
}

// originalParticipant returns the participant of a reversal: the transfer that it
// reverses. That must be a Success, and no other transfer may have reversed it. Once it
// is purged no transfer can reverse it again: so nothing is owed to it.
func (s *Store) originalParticipant(t document.Transfer) (participant, error) {
	require, err := bson.Marshal(bson.D{{Key: "state", Value: protocol.Success}, {Key: "reversedBy", Value: nil}})
	if err != nil {
		return participant{}, err
	}
	set, err := bson.Marshal(bson.D{{Key: "reversedBy", Value: t.ID}})
	id := wire.RawValue(t.Reverses)
	return participant{
		subject: s.catalog.Originals.Subject(id), id: id,
		effect: &effect{require: require, set: set, mayBeGone: true},
		leg:    document.Leg{Ledger: document.Originals, Account: t.Reverses, Amount: money.Zero(money.Whole)},
	}, err
}

// requireReservable writes the conditions under which a document can be reserved: its
// fields have the required values, and no transfer has reserved it.
func (p *participant) requireReservable(m *wire.Message, unreserved bson.Raw) {
	if p.nullMap {
		m.Begin(p.subject.Collection.Fields.Pending)
		m.Text("$type", "null")
		m.End()
	} else {
		m.Document("$expr", unreserved)
	}
	p.effect.requireValues(m)
}

// setReservation sets the marker. A null in the place of the map has to be replaced as a
// whole.
func (p *participant) setReservation(m *wire.Message) {
	if !p.nullMap {
		m.Amount(p.marker.path, p.leg.Amount)
		return
	}
	m.Begin(p.subject.Collection.Fields.Pending)
	m.Amount(p.marker.key, p.leg.Amount)
	m.End()
}

// requireValues requires that a document's fields have the required values.
// Each value is wrapped, so that one that looks like an operator is taken as a value.
func (e *effect) requireValues(m *wire.Message) {
	for _, field := range wire.Elements(e.require) {
		m.Begin(field.Key())
		m.Equals(field.Value())
		m.End()
	}
}

// setValues writes the fields that the effect sets.
func (e *effect) setValues(m *wire.Message) {
	for _, field := range wire.Elements(e.set) {
		m.Value(field.Key(), field.Value())
	}
}

// requiredBytes bounds the bytes of the conditions for the required values.
func (e *effect) requiredBytes() int {
	const around = 48 // each value
	size := len(e.require)
	for _, field := range wire.Elements(e.require) {
		size += around
		if value := field.Value(); value.Type == bson.TypeArray {
			size += len(value.Value) // an array is written twice
		}
	}
	return size
}

// differing returns the first field that certainly differs from what is required. Where
// none does, it returns the first one that is not the same to the byte: how the server
// compares depends on more.
func (e *effect) differing(doc bson.Raw) *document.Unmet {
	found := &document.Unmet{}
	for _, field := range wire.Elements(e.require) {
		want, got := field.Value(), doc.Lookup(field.Key())
		if want.Equal(got) || document.Absent(want) && document.Absent(got) {
			continue
		}
		numbers := want.IsNumber() && got.IsNumber()
		certain := !numbers && got.Type != bson.TypeArray && want.Type != bson.TypeArray
		if certain || found.Field == "" {
			found = &document.Unmet{Field: field.Key(), Want: want, Got: got}
		}
		if certain {
			break
		}
	}
	return found
}
