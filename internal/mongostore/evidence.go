package mongostore

import (
	"context"
	"net/url"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Evidence is what was seen of a participant when it refused, to be told. No decision
// rests on it.
type Evidence struct {
	// Currency is the account's, "" where it has none; nil where it was not seen.
	Currency *string
	// Unmet says how the document of an effect is not as required.
	Unmet *Unmet
	// Refused is the server's refusal of the latest write.
	Refused error
}

// Unmet says how the document of an effect, or the original of a reversal, is not as
// required. The zero value says that it isn't.
type Unmet struct {
	Missing    bool
	ReservedBy string // the transfer that has reserved it
	Field      string // that has another value
	Want, Got  bson.RawValue
}

// Evidence returns what is known of a participant that has refused.
func (w *Attempt) Evidence(participant int) Evidence {
	if participant < 0 || participant >= len(w.participants) {
		return Evidence{}
	}
	p := &w.participants[participant]
	return Evidence{Currency: p.currency, Unmet: p.unmet, Refused: p.refused}
}

// currency returns an account's currency in words that can be told: what is no text is
// named by its type.
func (f Fields) currency(document bson.Raw) string {
	stored := document.Lookup(f.Currency)
	if absent(stored) {
		return ""
	}
	if text, ok := stored.StringValueOK(); ok {
		return text
	}
	if symbol, ok := stored.SymbolOK(); ok {
		return symbol
	}
	return stored.Type.String()
}

// reservation says by whom a document is reserved, or that its map of markers is none.
func (f Fields) reservation(document bson.Raw, transferID string) *Unmet {
	pending := document.Lookup(f.Pending)
	markers, ok := pending.DocumentOK()
	if !ok {
		return &Unmet{Field: f.Pending, Got: pending}
	}
	own := markerKey(transferID)
	for _, marker := range elements(markers) {
		if marker.Key() != own {
			return &Unmet{ReservedBy: markedBy(marker.Key())}
		}
	}
	return &Unmet{}
}

// markedBy returns the ID of the transfer that a marker's key stands for.
func markedBy(key string) string {
	if id, err := url.PathUnescape(key); err == nil {
		return id
	}
	return key
}

// maxExplained is how many documents are read at once to tell what is not as required of
// them: the fields may be large.
const maxExplained = 64

// explain finds out which of the required values the documents of effects don't have, for
// those who are refused: it reads the fields that are required of them. Where that fails,
// or the document has changed meanwhile, it is not told which.
func explain(ctx context.Context, requests []*Call) {
	l := requests[0].participant().key.ledger
	ids := make(bson.A, len(requests))
	fields := bson.M{}
	for i, r := range requests {
		p := r.participant()
		p.unmet = &Unmet{}
		ids[i] = p.id
		for _, field := range elements(p.effect.require) {
			fields[field.Key()] = 1
		}
	}
	documents, err := findByID(ctx, l.majority, ids, options.Find().SetProjection(fields))
	if err != nil {
		return
	}
	for _, document := range documents {
		for _, r := range requests {
			if p := r.participant(); p.key == l.subject(canonical(document.Lookup("_id"))) {
				p.unmet = p.effect.differing(document)
			}
		}
	}
}

// differing returns the first field that certainly differs from what is required, or else
// the first one that is not the same to the byte: how the server compares depends on
// more.
func (e *effect) differing(document bson.Raw) *Unmet {
	found := &Unmet{}
	for _, field := range elements(e.require) {
		want, got := field.Value(), document.Lookup(field.Key())
		if want.Equal(got) || absent(want) && absent(got) {
			continue
		}
		numbers := want.IsNumber() && got.IsNumber()
		certain := !numbers && got.Type != bson.TypeArray && want.Type != bson.TypeArray
		if certain || found.Field == "" {
			found = &Unmet{Field: field.Key(), Want: want, Got: got}
		}
		if certain {
			break
		}
	}
	return found
}
