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

// ErrForeign is returned for a transfer that touches a collection which is not registered
// here under the name that the transfer stored.
var ErrForeign = errors.New("touches a collection that is not registered here under that name")

// Attempt is one execution's view of its transfer: what its operations are performed on.
// It is used by one goroutine at a time, except for the operations of one round.
type Attempt struct {
	// Transfer is the transfer as this execution last saw it stored.
	Transfer document.Transfer
	// Owner is a nonce that no other execution has.
	Owner string
	// Threshold is how long a transfer must stand still before it is taken over.
	Threshold time.Duration
	// Describe returns the text of a failure that is stored. Without it no text is
	// stored.
	Describe func(protocol.Refusal) string
	// HoldFor is how long a hold is held, counted from its insert.
	HoldFor time.Duration
	// Post is what is posted of a hold. nil posts all of it.
	Post *money.Amount
	// Cause is the latest error that made an answer less than Applied.
	Cause error

	finishMissed bool // a finish that named the time of the purge has not matched
	participants []participant
}

// participant is one document that an attempt touches.
type participant struct {
	subject collections.Subject
	leg     document.Leg // of an effect: the names of the collection and of the document, no amount
	effect  *effect      // nil: it is a leg
	marker  trace        // the transfer's marker
	done    trace        // the transfer's done mark
	id      bson.RawValue

	floor   document.Floor  // as last read
	balance *bson.RawValue  // as last read by a look
	apart   bool            // writes have a statement of their own
	nullMap bool            // the latest read has shown a null in the place of an effect's map
	garbled bool            // the latest look has shown no map where a marker is to be removed
	refusal protocol.Reason // that the latest read has shown; 0: none
	unlike  string          // why the document last read is not one for the amount; "": it is one

	// Details of a refusal: see Evidence.
	currency     *string
	unmet        *document.Unmet
	writeRefused error
}

// trace is an entry of a participant's map of markers.
type trace struct {
	key  string
	path string // with the field of the map
}

// NewAttempt resolves a transfer's participants: its legs, its effects, and the transfer
// that it reverses, in this order.
// It fails with ErrForeign if one of their collections is not registered here.
func (s *Store) NewAttempt(t document.Transfer, owner string) (*Attempt, error) {
	a := &Attempt{Transfer: t, Owner: owner, participants: make([]participant, 0, t.MaxParticipants())}
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
		a.participants = append(a.participants, p)
	}
	a.nameMarkers()
	return a, nil
}

// accountParticipant returns the participant of a leg.
func (s *Store) accountParticipant(leg document.Leg) (participant, error) {
	l := s.catalog.Ledgers[leg.Ledger]
	if l == nil || l.Namespace != leg.Namespace {
		return participant{}, unregistered(document.Address{Name: leg.Ledger}, leg.Namespace)
	}
	id, err := s.catalog.IDs.Encode(leg.Account)
	return participant{subject: l.Subject(id), leg: leg, id: id}, err
}

// nameMarkers sets the names of the transfer's traces.
func (a *Attempt) nameMarkers() {
	marker, done := trace{key: document.MarkerKey(a.Transfer.ID)}, trace{key: document.DoneKey(a.Transfer.ID)}
	var pending string
	for i := range a.participants {
		p := &a.participants[i]
		if fields := p.subject.Collection.Fields; fields.Pending != pending {
			pending = fields.Pending
			marker.path, done.path = pending+"."+marker.key, pending+"."+done.key
		}
		p.marker, p.done = marker, done
	}
}

// unregistered returns the error that says which collection to register, and how.
func unregistered(address document.Address, namespace string) error {
	option := "WithLedger"
	switch {
	case address.Documents:
		option = "WithDocuments"
	case address.Name == "":
		option = "WithAccounts"
	}
	return fmt.Errorf("%s, the collection %s: %w: see %s", address, words.Clip(namespace), ErrForeign, option)
}

// Participants returns how many documents the transfer touches.
func (a *Attempt) Participants() int { return len(a.participants) }

// reservedDocuments returns how many of the participants, the last ones, are documents:
// of effects, or the transfer that this one reverses.
func (a *Attempt) reservedDocuments() int { return len(a.participants) - len(a.Transfer.Legs) }

// Start completes an execution's start by what its transfer is.
func (a *Attempt) Start(start protocol.Start) protocol.Start {
	start.Reserve, start.Reversal = a.reservedDocuments(), a.Transfer.Reverses != ""
	start.WaitWhileTaken = start.Reversal
	start.Hold = start.Hold || a.Transfer.Hold
	start.ByRecord = a.Transfer.Digest.Format != document.Format
	return start
}

// Name returns how messages name a participant.
func (a *Attempt) Name(participant int) string {
	p := &a.participants[participant]
	return document.Address{Documents: p.effect != nil, Name: p.leg.Ledger}.NameOf(p.leg.Account)
}
