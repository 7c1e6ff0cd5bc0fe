package mongostore

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// maxExplained is how many documents are read at once to explain what is not as required.
// Their fields may be large.
const maxExplained = 64

// judgeRequirements asks which of the documents that could be reserved have the required
// values. The server compares, as it does when a document is reserved.
// Each round asks for each document once, because the answer names documents.
func judgeRequirements(ctx context.Context, calls []*Call, from *mongo.Collection) {
	var open []*Call
	for _, call := range calls {
		if facts := call.Answer.Facts; call.participant().effect != nil && facts.Found && facts.Trace == protocol.NoTrace && !facts.Unmet {
			open = append(open, call)
		}
	}
	for len(open) > 0 {
		var round, rest []*Call
		asked := map[collections.Subject]bool{}
		for _, call := range open {
			if asked[call.participant().subject] {
				rest = append(rest, call)
				continue
			}
			asked[call.participant().subject] = true
			round = append(round, call)
		}
		for some := range wire.Portions(round, wire.MaxCommandBytes, requirementBytes) {
			judgeRound(ctx, some, from)
		}
		open = rest
	}
}

// judgeRound judges the requirements of calls on different documents.
// Where the server refuses the whole question, one of the requirements may be the reason:
// each is asked alone.
func judgeRound(ctx context.Context, calls []*Call, from *mongo.Collection) {
	met, err := findMatching(ctx, calls, from)
	if err != nil && len(calls) > 1 && wire.RefusedWhole(err) {
		for _, call := range calls {
			judgeRound(ctx, []*Call{call}, from)
		}
		return
	}
	var refused []*Call
	for _, call := range calls {
		if err != nil {
			call.answer(protocol.Unknown, err)
			continue
		}
		if call.Answer.Facts.Unmet = !met[call.participant().subject]; call.Answer.Facts.Unmet {
			refused = append(refused, call)
		}
	}
	for some := range slices.Chunk(refused, maxExplained) {
		explainUnmet(ctx, some)
	}
}

// findMatching returns those of the calls' documents that have the required values.
func findMatching(ctx context.Context, calls []*Call, from *mongo.Collection) (map[collections.Subject]bool, error) {
	either := make(bson.A, len(calls))
	for i, call := range calls {
		either[i] = call.participant().effect.Requirement(call.participant().id)
	}
	onlyID := options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}).SetBatchSize(int32(len(calls) + 1))
	var found []bson.Raw
	if err := wire.FindAll(ctx, from, bson.D{{Key: "$or", Value: either}}, &found, onlyID); err != nil {
		return nil, err
	}
	l := calls[0].participant().subject.Collection
	met := make(map[collections.Subject]bool, len(found))
	for _, doc := range found {
		met[l.Subject(doc.Lookup("_id"))] = true
	}
	return met, nil
}

// requirementBytes bounds the bytes of a call's requirement.
func requirementBytes(call *Call) int {
	p := call.participant()
	return 2*wire.ElementBytes + len(p.id.Value) + p.effect.RequiredBytes()
}

// explainUnmet finds out which of the required values the documents of refused effects
// don't have: it reads the fields that are required of them. Where the read fails, or the
// document has changed since, no field is named.
func explainUnmet(ctx context.Context, calls []*Call) {
	l := calls[0].participant().subject.Collection
	ids := make(bson.A, len(calls))
	fields := bson.M{}
	for i, call := range calls {
		p := call.participant()
		p.unmet = &document.Unmet{}
		ids[i] = p.id
		for _, field := range wire.Elements(p.effect.Require) {
			fields[field.Key()] = 1
		}
	}
	documents, err := wire.FindByID(ctx, l.Majority, ids, options.Find().SetProjection(fields))
	if err != nil {
		return
	}
	for _, doc := range documents {
		for _, call := range calls {
			if p := call.participant(); p.subject == l.Subject(doc.Lookup("_id")) {
				p.unmet = p.effect.Differing(doc)
			}
		}
	}
}
