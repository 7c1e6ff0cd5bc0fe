package mongostore

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// effect is what a transfer requires of a document and sets there.
type effect struct {
	require, set bson.Raw
	spare        bool // nothing is owed to the document when it is gone
}

// effectParticipant returns the participant that an effect is about.
func (s *Store) effectParticipant(e document.Effect) (participant, error) {
	l := s.Documents[e.Documents]
	if l == nil || l.Namespace != e.Namespace {
		return participant{}, unregistered(document.Address{Documents: true, Name: e.Documents}, e.Namespace)
	}
	return participant{
		key: l.Subject(e.ID), id: e.ID, effect: &effect{require: e.Require, set: e.Set},
		leg: document.Leg{Ledger: e.Documents, Account: document.IDText(e.ID), Amount: money.Zero(money.Whole)},
	}, nil
}

// originalParticipant returns the participant that a reversal is about: the transfer that it reverses, which must be a Success that nothing has
// reversed. Once that is purged nobody can reverse it again: so nothing is owed to it.
func (s *Store) originalParticipant(t document.Transfer) (participant, error) {
	require, err := bson.Marshal(bson.D{{Key: "state", Value: protocol.Success}, {Key: "reversedBy", Value: nil}})
	if err != nil {
		return participant{}, err
	}
	set, err := bson.Marshal(bson.D{{Key: "reversedBy", Value: t.ID}})
	id := wire.RawValue(t.Reverses)
	return participant{
		key: s.Originals.Subject(id), id: id, effect: &effect{require: require, set: set, spare: true},
		leg: document.Leg{Ledger: document.Originals, Account: t.Reverses, Amount: money.Zero(money.Whole)},
	}, err
}

// requires writes the conditions under which a document can be reserved: its fields have the required values, and no transfer has
// reserved it. A value is wrapped, so that one that looks like an operator is none.
func (e *effect) requires(m *wire.Message, pending string) {
	m.Begin(pending)
	m.BeginArray("$in")
	m.Null("0")
	m.Begin("1")
	m.End()
	m.End()
	m.NoArray()
	m.End()
	e.has(m)
}

// has requires that a document's fields have the required values.
func (e *effect) has(m *wire.Message) {
	for _, field := range wire.Elements(e.require) {
		m.Begin(field.Key())
		m.Equals(field.Value())
		m.End()
	}
}

// apply writes what the effect sets.
func (e *effect) apply(m *wire.Message) {
	for _, field := range wire.Elements(e.set) {
		m.Value(field.Key(), field.Value())
	}
}

// effectFacts judges the document of an effect, but for its requirement.
func effectFacts(w *Attempt, p *participant, view document.View) protocol.Facts {
	p.unmet = nil
	if !view.Found() {
		p.unmet = &document.Unmet{Missing: true}
		return protocol.Facts{Unmet: true, MayBeGone: p.effect.spare}
	}
	markers := view.Markers(w.Transfer.ID)
	others := markers.Count
	if markers.Own {
		others--
	}
	unmet := others > 0 || !view.HasMap()
	if unmet {
		p.unmet = view.Reservation(w.Transfer.ID)
	}
	return protocol.Facts{
		Found: true, Marker: markers.Own || w.garbles(view), Fence: view.Fence(),
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
		asked := map[collections.Subject]bool{}
		for _, r := range open {
			if asked[r.participant().key] {
				rest = append(rest, r)
				continue
			}
			asked[r.participant().key] = true
			round = append(round, r)
		}
		for some := range wire.Portions(round, wire.MaxCommandBytes, wantedBytes) {
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
func findMatching(ctx context.Context, requests []*Call, from *mongo.Collection) (map[collections.Subject]bool, error) {
	either := make(bson.A, len(requests))
	for i, r := range requests {
		either[i] = r.participant().wanted()
	}
	onlyID := options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}).SetBatchSize(int32(len(requests) + 1))
	var found []bson.Raw
	if err := wire.FindAll(ctx, from, bson.D{{Key: "$or", Value: either}}, &found, onlyID); err != nil {
		return nil, err
	}
	met := make(map[collections.Subject]bool, len(found))
	for _, doc := range found {
		met[requests[0].participant().key.Collection.Subject(doc.Lookup("_id"))] = true
	}
	return met, nil
}

// wanted selects the document of an effect where it has the required values.
func (p *participant) wanted() bson.Raw {
	m := wire.NewMessage(256 + p.effect.requiredBytes())
	m.Value("_id", p.id)
	p.effect.has(m)
	m.End()
	return m.Data
}

// wantedBytes returns what the condition for the values that an effect requires takes at
// the most.
func wantedBytes(r *Call) int {
	p := r.participant()
	return 2*wire.ElementBytes + len(p.id.Value) + p.effect.requiredBytes()
}

// requiredBytes returns what the conditions for the required values take at the most.
func (e *effect) requiredBytes() int {
	const around = 48 // each value
	size := len(e.require)
	for _, field := range wire.Elements(e.require) {
		size += around
		if value := field.Value(); value.Type == bson.TypeArray {
			size += len(value.Value) // which is named twice
		}
	}
	return size
}
