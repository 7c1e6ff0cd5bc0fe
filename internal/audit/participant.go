package audit

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Participant is a document that a transfer writes to.
type Participant struct {
	// Collection is nil if it is not registered here.
	Collection *collections.Collection
	// Namespace is the collection's name as the transfer has it.
	Namespace string
	// Key is the document's _id in a form that can be compared.
	Key string
	// ID is the document's ID as the API has it.
	ID string
	// Name is its name in messages.
	Name string
	// Amount is that of a leg, and nil for other participants.
	Amount *money.Amount
	// Currency is that of a leg.
	Currency string
	// MayBeGone says that nothing is owed to the document when it is gone.
	MayBeGone bool

	id bson.RawValue
}

// participants returns the participants of a transfer.
func (r *Reader) participants(t document.Transfer) []Participant {
	participants := make([]Participant, 0, t.MaxParticipants())
	for p := range t.Participants() {
		participants = append(participants, r.participant(t, p))
	}
	return participants
}

func (r *Reader) participant(t document.Transfer, of document.Participant) Participant {
	p := Participant{ID: of.ID(), Name: of.FullName()}
	switch {
	case of.Leg != nil:
		p.Namespace, p.Amount, p.Currency = of.Leg.Namespace, &of.Leg.Amount, t.CurrencyOf(*of.Leg)
		id, err := r.catalog.IDs.Encode(of.Leg.Account)
		if err != nil {
			return p
		}
		p.id, p.Collection = id, r.registered(of, p.Namespace)
	case of.Effect != nil:
		p.Namespace, p.id = of.Effect.Namespace, of.Effect.ID
		p.Collection = r.registered(of, p.Namespace)
	default:
		p.Namespace, p.id = r.Transfers.Namespace, wire.RawText(of.Original)
		p.Collection, p.MayBeGone = r.Transfers, true
	}
	p.Key = document.ComparableID(p.id)
	return p
}

// registered returns the collection that is registered where a participant is, nil if
// that has another namespace than the transfer names.
func (r *Reader) registered(of document.Participant, namespace string) *collections.Collection {
	address, _ := of.Address()
	if c := r.catalog.At(address); c != nil && c.Namespace == namespace {
		return c
	}
	return nil
}

// participantOf finds a document among a transfer's participants.
//
// Another service, which works on the same transfers, may have registered the document's
// collection under another name. Its healthy transfers must not be called foreign here.
// So a participant whose name is unknown counts if its namespace is the document's. It
// may also be one of a collection with that namespace on a cluster that is not registered
// here.
func participantOf(r *Reader, d *Document, t *Transfer) (p Participant, is bool) {
	for _, candidate := range r.participants(t.Transfer) {
		switch {
		case candidate.Key != d.Key:
		case candidate.Collection == d.Collection:
			return candidate, true
		case candidate.Collection == nil && candidate.Namespace == d.Collection.Namespace:
			p, is = candidate, true
		}
	}
	return p, is
}
