package mongostore

import (
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/words"
)

// ErrForeign is returned for a transfer that touches a collection which is not registered here under the name that
// it stored.
var ErrForeign = errors.New("touches a collection that is not registered here under that name")

// Attempt is one execution's view of its transfer: what the operations of that execution are performed on. It is used
// by one goroutine at a time, but for the operations of one round.
type Attempt struct {
	Transfer     document.Transfer
	Owner        string                        // a nonce of this execution's own
	Threshold    time.Duration                 // of a takeover
	Describe     func(protocol.Refusal) string // the text of a stored failure
	HoldFor      time.Duration                 // how long a hold is held, from its insert on
	Post         *money.Amount                 // what is posted of a hold; nil: all of it
	Cause        error                         // the latest error that made an answer less than Applied
	late         bool                          // a finish that named the time of the purge has not matched
	participants []participant
}

// participant is one participant of a work.
type participant struct {
	key     collections.Subject
	leg     document.Leg // of an effect: the names of the documents and of the one document, and no amount
	effect  *effect      // nil: it is a leg
	marker  string       // the path of the transfer's marker
	id      bson.RawValue
	floor   document.Floor  // as last read
	balance *bson.RawValue  // as last read by a look
	garbled bool            // the latest look has shown no map of markers where one is to be removed
	refusal protocol.Reason // that the latest read has shown; 0: none
	unlike  string          // why its document is not one for the amount, as last read; "": it is one

	// What a refusal is told with: see Evidence.
	currency *string
	unmet    *document.Unmet
	refused  error
}

// NewAttempt resolves a transfer's participants: its legs, its effects, and the transfer that it reverses, in this order. It fails with
// ErrForeign if one is not registered here.
func (s *Store) NewAttempt(t document.Transfer, owner string) (*Attempt, error) {
	w := &Attempt{Transfer: t, Owner: owner, participants: make([]participant, 0, t.MaxParticipants())}
	for part := range t.Participants() {
		var p participant
		var err error
		switch {
		case part.Leg != nil:
			p, err = s.accountParticipant(*part.Leg)
		case part.Effect != nil:
			p, err = s.effectParticipant(*part.Effect)
		default:
			p, err = s.originalParticipant(t)
		}
		if err != nil {
			return nil, err
		}
		w.participants = append(w.participants, p)
	}
	w.nameMarkers()
	return w, nil
}

// accountParticipant returns the participant that a leg is about.
func (s *Store) accountParticipant(leg document.Leg) (participant, error) {
	l := s.Ledgers[leg.Ledger]
	if l == nil || l.Namespace != leg.Namespace {
		return participant{}, unregistered(document.Address{Name: leg.Ledger}, leg.Namespace)
	}
	id, err := s.IDs.Encode(leg.Account)
	return participant{key: l.Subject(id), leg: leg, id: id}, err
}

// nameMarkers sets the paths of the transfer's markers.
func (w *Attempt) nameMarkers() {
	var pending, path string
	for i := range w.participants {
		p := &w.participants[i]
		if fields := p.key.Collection.Fields; fields.Pending != pending {
			pending, path = fields.Pending, fields.Pending+"."+document.MarkerKey(w.Transfer.ID)
		}
		p.marker = path
	}
}

// Participants returns how many documents the transfer touches.
func (w *Attempt) Participants() int { return len(w.participants) }

// reserves returns how many of them, the last ones, are documents: of effects, or the transfer that this one reverses.
func (w *Attempt) reserves() int { return len(w.participants) - len(w.Transfer.Legs) }

// Start completes how an execution begins by what its transfer is.
func (w *Attempt) Start(start protocol.Start) protocol.Start {
	start.Reserve, start.Reversal = w.reserves(), w.Transfer.Reverses != ""
	return start
}

// Name tells a participant.
func (w *Attempt) Name(participant int) string {
	p := &w.participants[participant]
	return document.Address{Documents: p.effect != nil, Name: p.leg.Ledger}.NameOf(p.leg.Account)
}

// unregistered tells what to register, and how.
func unregistered(place document.Address, namespace string) error {
	option := "WithLedger"
	switch {
	case place.Documents:
		option = "WithDocuments"
	case place.Name == "":
		option = "WithAccounts"
	}
	return fmt.Errorf("%s, the collection %s: %w: see %s", place, words.Clip(namespace), ErrForeign, option)
}

// image tells the protocol what a document shows.
func (w *Attempt) image(t document.Transfer) protocol.Image {
	return protocol.Image{Found: true, State: t.State, Epoch: t.Epoch, Mine: t.Owner == w.Owner, Held: t.Held, Clean: t.Clean}
}

// Seen returns the balance that the latest look at a participant showed.
func (w *Attempt) Seen(participant int) (money.Amount, bool) {
	if participant < 0 || participant >= len(w.participants) || w.participants[participant].balance == nil {
		return money.Amount{}, false
	}
	amount, err := money.FromBSON(*w.participants[participant].balance)
	return amount, err == nil
}
