package inspection

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

const (
	// scannedDocuments is how many documents are searched for some that a validator
	// accepts.
	scannedDocuments = 1000
	// triedDocuments is how many of those are tried with the library's fields.
	triedDocuments = 20
)

// CheckValidator refuses a collection whose validator would refuse the fields that the
// protocol writes. It writes nothing to find out: it asks the server whether documents
// that pass now would still pass with those fields in them. Where the validator's text
// alone decides, it reads the text.
func (i *Inspector) CheckValidator(ctx context.Context, c *collections.Collection) error {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	spec, found, err := Describe(ctx, c.Commands)
	if err != nil || !found {
		return err
	}
	validator, strict := strictValidator(spec)
	if !strict {
		return nil
	}
	var refused []string
	if i.catalog.ContentsOf(c) == collections.OfTransfers {
		refused = refusedByText(validator, append(transferFields(), "metadata"))
	} else if refused, err = refusedFields(ctx, c, validator); err != nil {
		return err
	}
	if len(refused) == 0 {
		return nil
	}
	kinds := ""
	if slices.Contains(refused, c.Fields.Fence) {
		kinds = "; a fence is an ObjectId or a timestamp"
	}
	return fmt.Errorf("%w: the validator of %s refuses what is written there: let it allow the fields %s%s",
		collections.ErrUnsupported, c.Namespace, words.QuoteAll(refused), kinds)
}

// strictValidator returns a collection's validator, and whether it refuses documents.
func strictValidator(spec mongo.CollectionSpecification) (validator bson.Raw, strict bool) {
	validator, ok := spec.Options.Lookup("validator").DocumentOK()
	action, _ := spec.Options.Lookup("validationAction").StringValueOK()
	level, _ := spec.Options.Lookup("validationLevel").StringValueOK()
	return validator, ok && len(wire.Elements(validator)) > 0 && action != "warn" && level != "off"
}

// refusedFields returns the fields with which participants would not pass.
func refusedFields(ctx context.Context, c *collections.Collection, validator bson.Raw) ([]string, error) {
	refused := refusedByText(validator, []string{c.Fields.Pending, c.Fields.Fence})
	for _, field := range writtenFields(c) {
		if slices.Contains(refused, field.Key) {
			continue
		}
		refuses, err := refusesWith(ctx, c.Majority, validator, field)
		if err != nil {
			return nil, err
		}
		if refuses {
			refused = append(refused, field.Key)
		}
	}
	return refused, nil
}

// writtenFields returns the fields that the protocol writes into a participant, as
// expressions: a marker and a done mark of the balance's kind, a fence of either kind,
// and for units a balance of 64 bits.
func writtenFields(c *collections.Collection) bson.D {
	balance := "$" + c.Fields.Balance
	decimal := bson.D{{Key: "$eq", Value: bson.A{bson.D{{Key: "$type", Value: balance}}, "decimal"}}}
	zero := bson.D{{Key: "$cond", Value: bson.A{decimal, bson.NewDecimal128(0x3040<<48, 0), int64(0)}}} // of either kind
	if c.Documents {
		zero = bson.D{{Key: "$literal", Value: int64(0)}}
	}
	fields := bson.D{
		{Key: c.Fields.Pending, Value: bson.D{{Key: document.MarkerKey("transfer"), Value: zero}}},
		{Key: c.Fields.Pending, Value: bson.D{{Key: document.DoneKey("transfer"), Value: zero}}},
		{Key: c.Fields.Fence, Value: bson.D{{Key: "$literal", Value: bson.ObjectID{1}}}},
		{Key: c.Fields.Fence, Value: bson.D{{Key: "$literal", Value: bson.Timestamp{T: 1, I: 1}}}}, // that the server draws
	}
	if c.Documents {
		return fields
	}
	sum := bson.D{{Key: "$add", Value: bson.A{balance, int64(0)}}}
	whole := bson.D{{Key: "$in", Value: bson.A{bson.D{{Key: "$type", Value: balance}}, document.NumberTypes(money.Whole)}}}
	return append(fields, bson.E{Key: c.Fields.Balance, Value: bson.D{{Key: "$cond", Value: bson.A{whole, sum, balance}}}})
}

// refusesWith reports whether a validator accepts some document and would refuse the same
// document with one field more.
func refusesWith(ctx context.Context, handle *mongo.Collection, validator bson.Raw, field bson.E) (bool, error) {
	refused := bson.D{{Key: "$nor", Value: bson.A{validator}}}
	documents, err := wire.Aggregate(ctx, handle, bson.A{
		bson.D{{Key: "$limit", Value: int64(scannedDocuments)}},
		bson.D{{Key: "$match", Value: validator}},
		bson.D{{Key: "$limit", Value: int64(triedDocuments)}},
		bson.D{{Key: "$set", Value: bson.D{field}}},
		bson.D{{Key: "$match", Value: refused}},
		bson.D{{Key: "$limit", Value: int64(1)}},
		bson.D{{Key: "$project", Value: bson.D{{Key: "_id", Value: 1}}}},
	})
	return len(documents) > 0, err
}

// refusedByText returns the fields that a validator's text does not allow: it has a
// closed schema (additionalProperties: false) that does not name them.
func refusedByText(validator bson.Raw, fields []string) []string {
	var refused []string
	for _, e := range wire.Elements(validator) {
		switch e.Key() {
		case "$and":
			parts, _ := arrayOf(e.Value())
			for _, part := range parts {
				document, _ := part.DocumentOK()
				refused = append(refused, refusedByText(document, fields)...)
			}
		case "$jsonSchema":
			schema, _ := e.Value().DocumentOK()
			refused = append(refused, refusedBySchema(schema, fields)...)
		}
	}
	slices.Sort(refused)
	return slices.Compact(refused)
}

// refusedBySchema returns the fields that a schema does not allow.
func refusedBySchema(schema bson.Raw, fields []string) []string {
	if open, isFlag := schema.Lookup("additionalProperties").BooleanOK(); !isFlag || open {
		return nil
	}
	properties, _ := schema.Lookup("properties").DocumentOK()
	patterns, _ := schema.Lookup("patternProperties").DocumentOK()
	var refused []string
	for _, field := range fields {
		if _, err := properties.LookupErr(field); err == nil {
			continue
		}
		matches := func(e bson.RawElement) bool {
			pattern, err := regexp.Compile(e.Key())
			return err != nil || pattern.MatchString(field) // the server judges a pattern that can't be read here
		}
		if !slices.ContainsFunc(wire.Elements(patterns), matches) {
			refused = append(refused, field)
		}
	}
	return refused
}
