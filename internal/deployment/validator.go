package deployment

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
)

const (
	// validatorScan bounds how many documents are looked through for some that a validator
	// accepts, and validatorSample how many of those are tried with the library's fields.
	validatorScan   = 1000
	validatorSample = 20
)

// validators refuses a collection whose validator would refuse the fields that the protocol
// writes. Nothing is written to find out: the server is asked whether documents that it
// accepts now would still pass with those fields in them, and where there are none yet the
// validator's text has to do.
func (s *Deployment) validators(ctx context.Context, l *collections.Collection) error {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	spec, found, err := describe(ctx, l.Commands)
	if err != nil || !found {
		return err
	}
	validator, has := validatorOf(spec)
	if !has {
		return nil
	}
	var refused []string
	if l == s.Originals {
		refused = unnamed(validator, append(transferFields(), "metadata"))
	} else if refused, err = s.tryFields(ctx, l, validator); err != nil {
		return err
	}
	if len(refused) > 0 {
		return fmt.Errorf("%w: the validator of %s refuses what is written there: let it allow the fields %s",
			collections.ErrUnsupported, l.Namespace, quoted(refused))
	}
	return nil
}

// validatorOf returns a validator that refuses what it does not accept.
func validatorOf(spec mongo.CollectionSpecification) (bson.Raw, bool) {
	validator, ok := spec.Options.Lookup("validator").DocumentOK()
	action, _ := spec.Options.Lookup("validationAction").StringValueOK()
	level, _ := spec.Options.Lookup("validationLevel").StringValueOK()
	return validator, ok && len(wire.Elements(validator)) > 0 && action != "warn" && level != "off"
}

// tryFields returns the fields with which documents would not pass.
func (s *Deployment) tryFields(ctx context.Context, l *collections.Collection, validator bson.Raw) ([]string, error) {
	refused := unnamed(validator, []string{l.Fields.Pending, l.Fields.Fence})
	for _, field := range writtenFields(l) {
		if slices.Contains(refused, field.Key) {
			continue
		}
		documents, err := tried(ctx, l.Majority, validator, field)
		if err != nil {
			return nil, err
		}
		if len(documents) > 0 {
			refused = append(refused, field.Key)
		}
	}
	return refused, nil
}

// written returns the fields that the protocol writes into a participant, as expressions: a
// marker of the balance's kind, a fence, and for units a balance of 64 bits.
func writtenFields(l *collections.Collection) bson.D {
	balance := "$" + l.Fields.Balance
	decimal := bson.D{{Key: "$eq", Value: bson.A{bson.D{{Key: "$type", Value: balance}}, "decimal"}}}
	zero := bson.D{{Key: "$cond", Value: bson.A{decimal, bson.NewDecimal128(0x3040<<48, 0), int64(0)}}} // of either kind
	if l.Documents {
		zero = bson.D{{Key: "$literal", Value: int64(0)}}
	}
	fields := bson.D{
		{Key: l.Fields.Pending, Value: bson.D{{Key: "transfer", Value: zero}}},
		{Key: l.Fields.Fence, Value: bson.D{{Key: "$literal", Value: bson.ObjectID{1}}}},
	}
	if l.Documents {
		return fields
	}
	sum := bson.D{{Key: "$add", Value: bson.A{balance, int64(0)}}}
	whole := bson.D{{Key: "$in", Value: bson.A{bson.D{{Key: "$type", Value: balance}}, document.NumberTypes(money.Whole)}}}
	return append(fields, bson.E{Key: l.Fields.Balance, Value: bson.D{{Key: "$cond", Value: bson.A{whole, sum, balance}}}})
}

// tried returns a document that a validator accepts, and would not accept with a field.
func tried(ctx context.Context, c *mongo.Collection, validator bson.Raw, field bson.E) ([]bson.Raw, error) {
	refuses := bson.D{{Key: "$nor", Value: bson.A{validator}}}
	cursor, err := c.Aggregate(ctx, bson.A{
		bson.D{{Key: "$limit", Value: int64(validatorScan)}},
		bson.D{{Key: "$match", Value: validator}},
		bson.D{{Key: "$limit", Value: int64(validatorSample)}},
		bson.D{{Key: "$set", Value: bson.D{field}}},
		bson.D{{Key: "$match", Value: refuses}},
		bson.D{{Key: "$limit", Value: int64(1)}},
		bson.D{{Key: "$project", Value: bson.D{{Key: "_id", Value: 1}}}},
	})
	if err != nil {
		return nil, wire.ServerErrorOf(err, "find", wire.NamespaceOf(c))
	}
	var documents []bson.Raw
	return documents, wire.ServerErrorOf(cursor.All(ctx, &documents), "find", wire.NamespaceOf(c))
}

// unnamed returns those of the fields that a validator's text does not allow: a schema that
// is closed (additionalProperties: false), and does not name them.
func unnamed(validator bson.Raw, fields []string) []string {
	var refused []string
	for _, e := range wire.Elements(validator) {
		switch e.Key() {
		case "$and":
			list, _ := e.Value().ArrayOK()
			parts, _ := list.Values()
			for _, part := range parts {
				document, _ := part.DocumentOK()
				refused = append(refused, unnamed(document, fields)...)
			}
		case "$jsonSchema":
			schema, _ := e.Value().DocumentOK()
			refused = append(refused, closedTo(schema, fields)...)
		}
	}
	slices.Sort(refused)
	return slices.Compact(refused)
}

// closedTo returns the fields that a schema does not allow.
func closedTo(schema bson.Raw, fields []string) []string {
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
			return err != nil || pattern.MatchString(field) // what can't be read here is left to the server
		}
		if !slices.ContainsFunc(wire.Elements(patterns), matches) {
			refused = append(refused, field)
		}
	}
	return refused
}
