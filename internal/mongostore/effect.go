package mongostore

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// effect is what a transfer requires of a document and sets there.
type effect struct {
	require, set bson.Raw
	spare        bool // nothing is owed to the document when it is gone
}

// effectParticipant returns the participant that an effect is about.
func (s *Store) effectParticipant(e Effect) (participant, error) {
	l := s.documents[e.Documents]
	if l == nil || l.namespace != e.Namespace {
		return participant{}, unregistered(Address{Documents: true, Name: e.Documents}, e.Namespace)
	}
	return participant{
		key: l.subject(e.ID), id: e.ID, effect: &effect{require: e.Require, set: e.Set},
		leg: Leg{Ledger: e.Documents, Account: IDText(e.ID), Amount: money.Zero(money.Whole)},
	}, nil
}

// originalParticipant returns the participant that a reversal is about: the transfer that it reverses, which must be a Success that nothing has
// reversed. Once that is purged nobody can reverse it again: so nothing is owed to it.
func (s *Store) originalParticipant(t Transfer) (participant, error) {
	require, err := bson.Marshal(bson.D{{Key: "state", Value: protocol.Success}, {Key: "reversedBy", Value: nil}})
	if err != nil {
		return participant{}, err
	}
	set, err := bson.Marshal(bson.D{{Key: "reversedBy", Value: t.ID}})
	id := rawValue(t.Reverses)
	return participant{
		key: s.originals.subject(id), id: id, effect: &effect{require: require, set: set, spare: true},
		leg: Leg{Ledger: "transfers", Account: t.Reverses, Amount: money.Zero(money.Whole)},
	}, err
}

// requires writes the conditions under which a document can be reserved: its fields have the required values, and no transfer has
// reserved it. A value is wrapped, so that one that looks like an operator is none.
func (e *effect) requires(m *message, pending string) {
	m.begin(pending)
	m.beginArray("$in")
	m.null("0")
	m.begin("1")
	m.end()
	m.end()
	m.noArray()
	m.end()
	e.has(m)
}

// has requires that a document's fields have the required values.
func (e *effect) has(m *message) {
	for _, field := range elements(e.require) {
		m.begin(field.Key())
		m.equals(field.Value())
		m.end()
	}
}

// apply writes what the effect sets.
func (e *effect) apply(m *message) {
	for _, field := range elements(e.set) {
		m.value(field.Key(), field.Value())
	}
}

// elements returns the fields of a document that was encoded here, or has been read.
func elements(document bson.Raw) []bson.RawElement {
	all, err := document.Elements()
	if err != nil {
		return nil
	}
	return all
}

// effectFacts judges the document of an effect, but for its requirement.
func effectFacts(w *Attempt, p *participant, document bson.Raw) protocol.Facts {
	p.unmet = nil
	if document == nil {
		p.unmet = &Unmet{Missing: true}
		return protocol.Facts{Unmet: true, MayBeGone: p.effect.spare}
	}
	markers, marker := p.key.ledger.fields.markers(document, w.Transfer.ID)
	if marker {
		markers--
	}
	unmet := markers > 0 || !p.key.ledger.fields.hasMap(document)
	if unmet {
		p.unmet = p.key.ledger.fields.reservation(document, w.Transfer.ID)
	}
	return protocol.Facts{
		Found: true, Marker: marker || p.garbles(w, document), Fence: p.key.ledger.fields.fence(document),
		Open: true, Currency: true, Kind: true, BelowMarkerLimit: true, Funds: true, WithinLimits: true,
		Unmet: unmet,
	}
}

// judgeRequirements asks which of the documents that could be reserved have the required values, and tells those who ask for the others.
// The server compares, as it does when a document is reserved.
func judgeRequirements(ctx context.Context, requests []*Call, from *mongo.Collection) {
	var open []*Call
	for _, r := range requests {
		if facts := r.Answer.Facts; r.participant().effect != nil && facts.Found && !facts.Marker && !facts.Unmet {
			open = append(open, r)
		}
	}
	for len(open) > 0 {
		var round, rest []*Call // each document once in a round: the answer names documents
		asked := map[Subject]bool{}
		for _, r := range open {
			if asked[r.participant().key] {
				rest = append(rest, r)
				continue
			}
			asked[r.participant().key] = true
			round = append(round, r)
		}
		for some := range portions(round, maxCommandBytes, wantedBytes) {
			judgeRound(ctx, some, from)
		}
		open = rest
	}
}

func judgeRound(ctx context.Context, requests []*Call, from *mongo.Collection) {
	met, err := findMatching(ctx, requests, from)
	if err != nil && len(requests) > 1 && refusedWhole(err) {
		for _, r := range requests { // one of them may be why
			judgeRound(ctx, []*Call{r}, from)
		}
		return
	}
	var refused []*Call
	for _, r := range requests {
		if err != nil {
			r.answer(protocol.Unknown, err)
			continue
		}
		if r.Answer.Facts.Unmet = !met[r.participant().key]; r.Answer.Facts.Unmet {
			refused = append(refused, r)
		}
	}
	for some := range slices.Chunk(refused, maxExplained) {
		explain(ctx, some)
	}
}

// findMatching returns those of the requests' documents that have the required values.
func findMatching(ctx context.Context, requests []*Call, from *mongo.Collection) (map[Subject]bool, error) {
	either := make(bson.A, len(requests))
	for i, r := range requests {
		either[i] = r.participant().wanted()
	}
	onlyID := options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}).SetBatchSize(int32(len(requests) + 1))
	var found []bson.Raw
	if err := findAll(ctx, from, bson.D{{Key: "$or", Value: either}}, &found, onlyID); err != nil {
		return nil, err
	}
	met := make(map[Subject]bool, len(found))
	for _, document := range found {
		met[requests[0].participant().key.ledger.subject(canonical(document.Lookup("_id")))] = true
	}
	return met, nil
}

// wanted selects the document of an effect where it has the required values.
func (p *participant) wanted() bson.Raw {
	m := newMessage(256 + p.effect.requiredBytes())
	m.value("_id", p.id)
	p.effect.has(m)
	m.end()
	return m.data
}
