package audit

import (
	"fmt"

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
	// MayBeGone says that nothing is owed to the document when it is gone.
	MayBeGone bool

	id bson.RawValue
}

// Participants returns the participants of a transfer: its legs, its effects, and the
// transfer that it reverses.
func (r *Reader) Participants(t document.Transfer) []Participant {
	participants := make([]Participant, 0, len(t.Legs)+len(t.Effects)+1)
	for _, leg := range t.Legs {
		p := Participant{
			Namespace: leg.Namespace, ID: leg.Account, Amount: &leg.Amount,
			Name: fmt.Sprintf("account %q of ledger %q (%s)", leg.Account, leg.Ledger, leg.Namespace),
		}
		if id, err := r.catalog.IDs.Encode(leg.Account); err == nil {
			p.id, p.Key = id, document.ComparableID(id)
			p.Collection = r.registered(document.Address{Name: leg.Ledger}, leg.Namespace)
		}
		participants = append(participants, p)
	}
	for _, e := range t.Effects {
		participants = append(participants, Participant{
			Collection: r.registered(document.Address{Documents: true, Name: e.Documents}, e.Namespace),
			Namespace:  e.Namespace, ID: document.IDText(e.ID), Key: document.ComparableID(e.ID), id: e.ID,
			Name: fmt.Sprintf("document %q of %q (%s)", document.IDText(e.ID), e.Documents, e.Namespace),
		})
	}
	if t.Reverses != "" {
		id := wire.RawValue(t.Reverses)
		participants = append(participants, Participant{
			Collection: r.Transfers, Namespace: r.Transfers.Namespace,
			ID: t.Reverses, Key: document.ComparableID(id), id: id, MayBeGone: true,
			Name: fmt.Sprintf("transfer %q", t.Reverses),
		})
	}
	return participants
}

// registered returns the collection that is registered under a name, nil if that is not
// the namespace which the transfer names.
func (r *Reader) registered(address document.Address, namespace string) *collections.Collection {
	if c := r.catalog.At(address); c != nil && c.Namespace == namespace {
		return c
	}
	return nil
}

// participantOf finds a document among a transfer's participants.
//
// Another service, which works on the same transfers, may have registered the document's
// collection under another name. Its healthy transfers must not be called foreign here. So
// a participant whose name is unknown counts if its namespace is the document's. It may
// also be one of a collection with that namespace on a cluster that is not registered here.
func participantOf(r *Reader, d *Document, t *Transfer) (p Participant, is bool) {
	for _, candidate := range r.Participants(t.Transfer) {
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
