package transfer

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/words"
)

// Limits of effects.
const (
	maxEffects = 100
	// maxEffectFields and maxEffectBytes bound the fields that one requires, and those
	// that it sets. To find thousands of fields in a document takes a server seconds.
	maxEffectFields = 100
	maxEffectBytes  = 64 << 10
)

// requires is the verb of the fields that an effect compares.
const requires = "requires"

// Effect is a change of a document in step with the money: an order goes from unpaid to
// paid as its payment is committed.
//
// The document is found by its _id, and is reserved from when the transfer is prepared
// until it is settled.
// No other transfer can reserve it meanwhile, and the required fields are not changed
// before the commit.
// Other code that writes such a document requires that its field pending is missing or
// empty, or ignores the reservation at its own risk.
// None deletes it while the field has an entry: a commit that was answered may be lost.
// A TTL index would do so, and is refused with ErrUnsupportedDeployment.
//
// Documents are reserved before money is taken: of several transfers that want one at
// once, the first has it.
// No transfer waits for a reservation.
// Of two transfers that want the same two documents at once, each may be refused for what
// the other one has reserved; ask again under a new ID.
//
// An effect is stored with its transfer, so that another process, of another version of
// the service, can finish it.
// Once the transfer is committed the fields have to be set.
// Where the server refuses that, by a validator or a unique index, the transfer stays
// committed, [Record].Stuck says why, and it goes on when the cause is repaired.
//
// A transfer has up to 100 effects.
// Each requires up to 100 fields, and sets up to 100.
// The fields that one requires, and those that it sets, take up to 64 KB each.
// The library writes the fields pending and fence of the documents, under the names of
// [Fields].
type Effect struct {
	// Documents is the name of a collection that was registered by [WithDocuments].
	Documents string
	// ID is the document's _id: text, a number without a fraction, an ObjectID, a bool, a
	// time, bytes, or a document of these.
	ID any
	// Require are top-level fields and the values that they must have when the transfer
	// is prepared.
	// They are compared as a query compares them: nil also matches a missing field.
	// The field itself must be equal: an array that contains the value is not.
	// Operators are refused.
	// Defaults to nil: the document only has to exist.
	Require bson.D
	// Set are top-level fields and the values that they get when the transfer is
	// committed.
	// Defaults to nil: the document stays as it is.
	Set bson.D
}

// planEffects checks effects and returns them as they are stored.
func (c *Coordinator) planEffects(effects []Effect) ([]document.Effect, error) {
	if len(effects) > maxEffects {
		return nil, invalid("%d effects are more than %d", len(effects), maxEffects)
	}
	var planned []document.Effect
	for _, e := range effects {
		if !c.catalog.HasDocuments(e.Documents) {
			return nil, invalid("the documents %s are not registered: see WithDocuments", words.Quote(e.Documents))
		}
		if e.ID == nil {
			return nil, invalid("an effect on %q: the document's ID is missing", e.Documents)
		}
		stored := document.Effect{Documents: e.Documents, Namespace: c.catalog.DocumentsNamespace(e.Documents)}
		var err error
		if stored.ID, err = document.EncodeDocumentID(ordered(e.ID, maxMetadataDepth)); err != nil {
			return nil, invalid("an effect on %s: %w", words.Quote(e.Documents), err)
		}
		name := document.IDText(stored.ID)
		if stored.Require, err = c.effectFields(words.Quote(name), requires, e.Require); err != nil {
			return nil, err
		}
		if stored.Set, err = c.effectFields(words.Quote(name), "sets", e.Set); err != nil {
			return nil, err
		}
		same := func(other document.Effect) bool { return compareEffects(other, stored) == 0 }
		if slices.ContainsFunc(planned, same) {
			return nil, invalid("two effects are on the same document, %s of %s", words.Quote(name), words.Quote(e.Documents))
		}
		planned = append(planned, stored)
	}
	return planned, nil
}

// effectFields checks and encodes what an effect requires or sets.
func (c *Coordinator) effectFields(doc, verb string, fields bson.D) (bson.Raw, error) {
	if len(fields) == 0 {
		return nil, nil
	}
	if len(fields) > maxEffectFields {
		return nil, invalid("the effect on %s %s %d fields, more than %d", doc, verb, len(fields), maxEffectFields)
	}
	own := []string{"_id", c.settings.fields.Pending, c.settings.fields.Fence}
	for i, field := range fields {
		switch {
		case !isTopLevel(field.Key):
			return nil, invalid("the effect on %s %s %s, which is no top-level field", doc, verb, words.Quote(field.Key))
		case slices.Contains(own, field.Key):
			return nil, invalid("the effect on %s %s %s, which is not for effects", doc, verb, words.Quote(field.Key))
		case slices.ContainsFunc(fields[:i], func(other bson.E) bool { return other.Key == field.Key }):
			return nil, invalid("the effect on %s %s %s twice", doc, verb, words.Quote(field.Key))
		}
	}
	raw, err := bson.Marshal(ordered(fields, maxMetadataDepth))
	switch {
	case err != nil:
		return nil, invalid("the effect on %s: %w", doc, document.Unencoded(err))
	case len(raw) > maxEffectBytes:
		return nil, invalid("what the effect on %s %s has %d bytes, more than %d", doc, verb, len(raw), maxEffectBytes)
	}
	if err := cmp.Or(checkEncoded(raw, len(fields)), document.CheckValues(raw)); err != nil {
		return nil, invalid("the effect on %s: %w", doc, err)
	}
	if verb == requires {
		if err := checkEqualities(raw); err != nil {
			return nil, fmt.Errorf("the effect on %s: %w", doc, err)
		}
	}
	return raw, nil
}

// isTopLevel reports whether a key can name a top-level field.
func isTopLevel(key string) bool {
	return key != "" && !strings.HasPrefix(key, "$") && !strings.ContainsAny(key, ".\x00") && utf8.ValidString(key)
}

func compareEffects(a, b document.Effect) int {
	return cmp.Or(
		cmp.Compare(a.Documents, b.Documents),
		cmp.Compare(a.ID.Type, b.ID.Type),
		cmp.Compare(string(a.ID.Value), string(b.ID.Value)),
	)
}

// sortedFields returns a document with its fields, at all levels, in the order of their
// names: the caller's maps may have been written in any order.
func sortedFields(raw bson.Raw) []byte {
	elements, err := raw.Elements()
	if err != nil {
		return raw
	}
	slices.SortStableFunc(elements, func(a, b bson.RawElement) int { return cmp.Compare(a.Key(), b.Key()) })
	var sorted []byte
	for _, element := range elements {
		value := element.Value()
		sorted = append(append(append(sorted, byte(value.Type)), element.Key()...), 0)
		if value.Type == bson.TypeEmbeddedDocument || value.Type == bson.TypeArray {
			within := sortedFields(bson.Raw(value.Value))
			sorted = append(binary.BigEndian.AppendUint32(sorted, uint32(len(within))), within...)
			continue
		}
		sorted = append(sorted, value.Value...)
	}
	return sorted
}

// sortedEffects returns effects in an order of their own.
func sortedEffects(effects []document.Effect) []document.Effect {
	return slices.SortedFunc(slices.Values(effects), compareEffects)
}

// effectsOf returns a transfer's effects as they were requested.
func effectsOf(t document.Transfer) []Effect {
	var effects []Effect
	for _, e := range t.Effects {
		var id any
		if err := e.ID.Unmarshal(&id); err != nil {
			id = e.ID
		}
		effects = append(effects, Effect{
			Documents: e.Documents, ID: id, Require: fieldsOf(e.Require), Set: fieldsOf(e.Set),
		})
	}
	return effects
}

// fieldsOf decodes what effectFields has encoded.
func fieldsOf(raw bson.Raw) bson.D {
	var fields bson.D
	if len(raw) == 0 || bson.Unmarshal(raw, &fields) != nil {
		return nil
	}
	return fields
}
