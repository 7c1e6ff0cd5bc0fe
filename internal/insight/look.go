package insight

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Trace is what the document of a participant shows of a transfer.
type Trace uint8

const (
	// Unread is that of a document that could not be read.
	Unread Trace = iota
	// None means that the transfer has changed nothing there, or that what it had
	// reserved was given back.
	None
	// Reserved means that a marker is there: the money is taken off the account, or is
	// still to come.
	Reserved
	// Settled means that nothing is due there any more: paid, or taken for good.
	Settled
	// Missing means that there is no document.
	Missing
)

// ErrForeign is the error of a participant whose collection is not registered here.
var ErrForeign = errors.New("its collection is not registered here")

// Participant is one document that a transfer changes, and what it shows of it.
type Participant struct {
	document.Participant
	// Trace is what the document shows.
	Trace Trace
	// Note says more, for people.
	Note string
	// Err is why the document could not be read.
	Err error
	// HasMark says that the transfer has left something in the document.
	HasMark bool
	// Anew says that the document was found to be gone, and is there again without a
	// marker: nothing shows whether it was paid.
	Anew bool
}

// Name names the participant's document in a text.
func (p *Participant) Name() string {
	address, _ := p.Address()
	return address.NameOf(p.ID())
}

// Look reads the documents of a transfer's participants, in their order.
// A document that can't be read has an error, and keeps nobody from reading the others.
func (i *Insight) Look(ctx context.Context, t *document.Transfer) []Participant {
	ctx = wire.Detached(ctx)
	var all []Participant
	places := map[*collections.Collection][]int{}
	for p := range t.Participants() {
		place, err := i.place(p)
		all = append(all, Participant{Participant: p, Err: err})
		if err == nil {
			places[place] = append(places[place], len(all)-1)
		}
	}
	for place, members := range places {
		i.lookIn(ctx, t, place, members, all)
	}
	return all
}

// place returns the collection of a participant.
func (i *Insight) place(p document.Participant) (*collections.Collection, error) {
	address, registered := p.Address()
	if !registered {
		return i.catalog.Originals, nil
	}
	place := i.catalog.At(address)
	if place == nil || place.Namespace != namespaceOf(p) {
		return nil, ErrForeign
	}
	return place, nil
}

func namespaceOf(p document.Participant) string {
	if p.Leg != nil {
		return p.Leg.Namespace
	}
	return p.Effect.Namespace
}

// lookIn reads the members of one collection.
func (i *Insight) lookIn(
	ctx context.Context, t *document.Transfer, place *collections.Collection, members []int, all []Participant,
) {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	found, err := i.read(ctx, place, members, all)
	for _, n := range members {
		p := &all[n]
		if err != nil {
			p.Err = err
			continue
		}
		id, err := i.idOf(p.Participant)
		if p.Err = err; err == nil {
			p.judge(t, place.Fields.View(found[place.Subject(id)]))
		}
	}
}

// read reads the members' documents of one collection.
func (i *Insight) read(
	ctx context.Context, place *collections.Collection, members []int, all []Participant,
) (map[collections.Subject]bson.Raw, error) {
	if address, registered := all[members[0]].Address(); registered {
		if err := i.connect(ctx, address); err != nil {
			return nil, err
		}
	}
	var ids bson.A
	for _, n := range members {
		id, err := i.idOf(all[n].Participant)
		if err != nil {
			continue // which its own entry says
		}
		ids = append(ids, id)
	}
	documents, err := wire.FindByID(ctx, place.Majority, ids, options.Find().SetProjection(place.Projection()))
	if err != nil {
		return nil, err
	}
	found := make(map[collections.Subject]bson.Raw, len(documents))
	for _, d := range documents {
		found[place.Subject(d.Lookup("_id"))] = d
	}
	return found, nil
}

// idOf returns the _id of a participant's document.
func (i *Insight) idOf(p document.Participant) (bson.RawValue, error) {
	switch {
	case p.Leg != nil:
		return i.catalog.IDs.Encode(p.Leg.Account)
	case p.Effect != nil:
		return p.Effect.ID, nil
	}
	return wire.RawValue(p.Original), nil
}

// judge says what a document shows of a transfer.
func (p *Participant) judge(t *document.Transfer, view document.View) {
	if !view.Found() {
		p.Trace, p.Note = Missing, p.whyMissing(t)
		return
	}
	switch trace := view.Markers(t.ID).Own; {
	case trace == protocol.Illegible:
		p.Trace, p.Note = Unread, "its markers are no document: see RepairPending"
		return
	case trace == protocol.Done:
		p.Trace, p.HasMark = Settled, true
		p.Note = "a mark is left, which is removed later"
	case trace == protocol.Reserved:
		p.Trace, p.HasMark = Reserved, true
	case foundGone(t, p):
		p.Trace, p.Anew = Unread, true
		p.Note = "the document was gone, and is there again without the marker"
		return
	case t.State.Forward():
		p.Trace = Settled
	default:
		p.Trace = None
	}
	switch {
	case p.HasMark && t.State.Final():
		p.Note = "a mark is left, though the transfer is final: see Audit"
	case p.Leg == nil || t.State.Final():
	case view.Closed():
		p.Note = "the account is closed"
	case view.Frozen():
		p.Note = "the account is frozen"
	}
}

// whyMissing says what a missing document means.
// Only what the transfer has found there before was certainly removed.
func (p *Participant) whyMissing(t *document.Transfer) string {
	switch {
	case p.Original != "":
		return "it was removed, and nobody waits for it"
	case t.Failure != nil && t.Failure.Code == protocol.NotFound.String() && p.isNamedBy(t.Failure):
		return "it was missing then, too"
	case t.State == protocol.Success, t.State.Final() && t.Held:
		return "it was removed since"
	case t.State.Final():
		return "it is not there, and may never have been"
	case t.State == protocol.Initiated:
		return "the transfer will be refused"
	}
	return "the transfer can't be finished there until it is back with its marker"
}

// isNamedBy reports whether a failure is about the participant.
func (p *Participant) isNamedBy(f *document.Failure) bool {
	address, _ := p.Address()
	return f.Ledger == address.Name && f.Account == p.ID()
}
