package document

import (
	"fmt"
	"iter"

	"github.com/mongotransfer/transfer/internal/words"
)

// Originals is the name under which texts name the transfers where a reversal changes
// one.
const Originals = "transfers"

// Participant is one document that a transfer changes.
// Exactly one of its fields is set.
type Participant struct {
	// Leg is the movement on an account.
	Leg *Leg
	// Effect is the change of a document.
	Effect *Effect
	// Original is the ID of the transfer that this one reverses.
	Original string
}

// Participants returns the participants of a transfer, in the order in which the protocol
// counts them: the legs, the effects, and the transfer that it reverses.
func (t *Transfer) Participants() iter.Seq[Participant] {
	return func(yield func(Participant) bool) {
		for i := range t.Legs {
			if !yield(Participant{Leg: &t.Legs[i]}) {
				return
			}
		}
		for i := range t.Effects {
			if !yield(Participant{Effect: &t.Effects[i]}) {
				return
			}
		}
		if t.Reverses != "" {
			yield(Participant{Original: t.Reverses})
		}
	}
}

// Touches reports whether one of the participants is registered at such an address.
func (t *Transfer) Touches(isSuch func(Address) bool) bool {
	for part := range t.Participants() {
		if address, registered := part.Address(); registered && isSuch(address) {
			return true
		}
	}
	return false
}

// MaxParticipants returns the most participants that a transfer can have.
func (t *Transfer) MaxParticipants() int { return len(t.Legs) + len(t.Effects) + 1 }

// Address returns where the participant is registered.
// It reports false for the transfer that is reversed, which needs no registration.
func (p Participant) Address() (Address, bool) {
	switch {
	case p.Leg != nil:
		return Address{Name: p.Leg.Ledger}, true
	case p.Effect != nil:
		return Address{Documents: true, Name: p.Effect.Documents}, true
	}
	return Address{Documents: true, Name: Originals}, false
}

// Namespace returns database and collection of the participant where it was stored.
// It is "" for the transfer that is reversed.
func (p Participant) Namespace() string {
	switch {
	case p.Leg != nil:
		return p.Leg.Namespace
	case p.Effect != nil:
		return p.Effect.Namespace
	}
	return ""
}

// ID returns the ID of the participant's document as texts have it.
func (p Participant) ID() string {
	switch {
	case p.Leg != nil:
		return p.Leg.Account
	case p.Effect != nil:
		return IDText(p.Effect.ID)
	}
	return p.Original
}

// FullName names the participant with its namespace and with the whole of its ID.
func (p Participant) FullName() string {
	switch {
	case p.Leg != nil:
		return fmt.Sprintf("account %q of ledger %q (%s)", p.Leg.Account, p.Leg.Ledger, p.Leg.Namespace)
	case p.Effect != nil:
		return fmt.Sprintf("document %q of %q (%s)", p.ID(), p.Effect.Documents, p.Effect.Namespace)
	}
	return fmt.Sprintf("transfer %q", p.Original)
}

// NameOf names the document with an ID in a text, where long IDs are cut short.
func (a Address) NameOf(id string) string {
	switch {
	case a.Documents:
		return "document " + words.Quote(id) + " of " + words.Quote(a.Name)
	case a.Name != "":
		return "account " + words.Quote(id) + " of ledger " + words.Quote(a.Name)
	}
	return "account " + words.Quote(id)
}
