package mongostore

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/wire"
)

// effect is what a transfer requires of a document and sets there.
type effect struct {
	document.Values
	original bool // it is the transfer that a reversal reverses
}

// effectParticipant returns the participant of an effect.
func (s *Store) effectParticipant(e document.Effect) (participant, error) {
	l := s.catalog.Documents[e.Documents]
	if l == nil || l.Namespace != e.Namespace {
		return participant{}, unregistered(document.Address{Documents: true, Name: e.Documents}, e.Namespace)
	}
	return participant{
		subject: l.Subject(e.ID), id: e.ID, effect: &effect{Values: document.Values{Require: e.Require, Set: e.Set}},
		leg: document.Leg{Ledger: e.Documents, Account: document.IDText(e.ID), Amount: money.Zero(money.Whole)},
	}, nil
}

// originalParticipant returns the participant of a reversal: the transfer that it
// reverses. Once that is purged no transfer can reverse it again: nothing is owed to it.
func (s *Store) originalParticipant(t document.Transfer) (participant, error) {
	values, err := document.ReversalValues(t.ID)
	id := wire.RawValue(t.Reverses)
	return participant{
		subject: s.catalog.Originals.Subject(id), id: id, effect: &effect{Values: values, original: true},
		leg: document.Leg{Ledger: document.Originals, Account: t.Reverses, Amount: money.Zero(money.Whole)},
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
	p.effect.WriteRequired(m)
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
