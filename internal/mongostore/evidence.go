package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Evidence is what was seen of a participant when it refused, to be told. No decision
// rests on it.
type Evidence struct {
	// Currency is the account's, "" where it has none; nil where it was not seen.
	Currency *string
	// Unmet says how the document of an effect is not as required.
	Unmet *document.Unmet
	// Refused is the server's refusal of the latest write.
	Refused error
}

// Evidence returns what is known of a participant that has refused.
func (w *Attempt) Evidence(participant int) Evidence {
	if participant < 0 || participant >= len(w.participants) {
		return Evidence{}
	}
	p := &w.participants[participant]
	return Evidence{Currency: p.currency, Unmet: p.unmet, Refused: p.refused}
}

// maxExplained is how many documents are read at once to tell what is not as required of
// them: the fields may be large.
const maxExplained = 64

// explain finds out which of the required values the documents of effects don't have, for
// those who are refused: it reads the fields that are required of them. Where that fails,
// or the document has changed meanwhile, it is not told which.
func explain(ctx context.Context, requests []*Call) {
	l := requests[0].participant().key.Collection
	ids := make(bson.A, len(requests))
	fields := bson.M{}
	for i, r := range requests {
		p := r.participant()
		p.unmet = &document.Unmet{}
		ids[i] = p.id
		for _, field := range wire.Elements(p.effect.require) {
			fields[field.Key()] = 1
		}
	}
	documents, err := wire.FindByID(ctx, l.Majority, ids, options.Find().SetProjection(fields))
	if err != nil {
		return
	}
	for _, doc := range documents {
		for _, r := range requests {
			if p := r.participant(); p.key == l.Subject(doc.Lookup("_id")) {
				p.unmet = p.effect.differing(doc)
			}
		}
	}
}

// differing returns the first field that certainly differs from what is required, or else
// the first one that is not the same to the byte: how the server compares depends on
// more.
func (e *effect) differing(doc bson.Raw) *document.Unmet {
	found := &document.Unmet{}
	for _, field := range wire.Elements(e.require) {
		want, got := field.Value(), doc.Lookup(field.Key())
		if want.Equal(got) || document.Absent(want) && document.Absent(got) {
			continue
		}
		numbers := want.IsNumber() && got.IsNumber()
		certain := !numbers && got.Type != bson.TypeArray && want.Type != bson.TypeArray
		if certain || found.Field == "" {
			found = &document.Unmet{Field: field.Key(), Want: want, Got: got}
		}
		if certain {
			break
		}
	}
	return found
}
