package memory

import (
	"bytes"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// change is what an update does to one document.
type change struct {
	update   any // operators, a list of stages, or the document that comes instead
	scope    scope
	at       bson.Timestamp
	inserted bool // the document is made by the update
}

// applied returns a document after the update.
func (c change) applied(document bson.D) (after bson.D, err error) {
	same := func(a, b any) bool { return bytes.Equal(encoded(a), encoded(b)) }
	switch update := c.update.(type) {
	case bson.A:
		same = equal
		after, err = c.throughStages(document, update)
	case bson.D:
		if operators, are := operatorsOf(update); are {
			after, err = c.throughOperators(document, operators)
		} else {
			after, same = replaced(document, update), equal
		}
	default:
		return nil, refuse(codeFailedToParse, "an update is a document or a list of stages")
	}
	if err != nil {
		return nil, err
	}
	if id := field(document, "_id"); id != any(missing{}) && !same(id, field(after, "_id")) {
		return nil, refuse(codeImmutableField, "Performing an update on the path '_id' would modify the immutable field '_id'")
	}
	return after, checkSize(after)
}

func replaced(document, by bson.D) bson.D {
	id := field(document, "_id")
	if id == any(missing{}) || field(by, "_id") != any(missing{}) {
		return by
	}
	return append(bson.D{{Key: "_id", Value: id}}, by...)
}

// check refuses an update that no document could have.
func check(update any) error {
	operators, _ := update.(bson.D)
	if _, are := operatorsOf(operators); !are {
		return nil
	}
	_, err := assignments(operators)
	return err
}

// assignment is what an operator does to one field.
type assignment struct {
	operator string
	field    bson.E
}

// throughOperators updates by operators. The server applies them in the order of the
// fields' names, and so adds new fields in that order.
func (c change) throughOperators(document, operators bson.D) (bson.D, error) {
	all, err := assignments(operators)
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if document, err = c.throughOperator(document, a.operator, a.field); err != nil {
			return nil, err
		}
	}
	return document, nil
}

// assignments returns what operators do to each field, in the order of the fields.
func assignments(operators bson.D) ([]assignment, error) {
	var all []assignment
	for _, o := range operators {
		fields, is := o.Value.(bson.D)
		if !is {
			return nil, refuse(codeFailedToParse, "Modifiers operate on fields but we found %s instead", typeOf(o.Value))
		}
		for _, f := range fields {
			all = append(all, assignment{o.Key, f})
		}
	}
	for _, a := range all {
		if err := a.check(); err != nil {
			return nil, err
		}
	}
	steps := func(a assignment) []string { return strings.Split(a.field.Key, ".") }
	slices.SortStableFunc(all, func(a, b assignment) int { return slices.Compare(steps(a), steps(b)) })
	for i := 1; i < len(all); i++ {
		before, path := all[i-1].field.Key, all[i].field.Key
		if before == path || strings.HasPrefix(path, before+".") {
			return nil, refuse(codeConflictingOperators, "Updating the path '%s' would create a conflict at '%s'", path, before)
		}
	}
	return all, nil
}

// check refuses an assignment that no document could have.
func (a assignment) check() error {
	for step := range strings.SplitSeq(a.field.Key, ".") {
		switch {
		case step == "":
			return refuse(codeEmptyFieldName, "The update path '%s' contains an empty field name, which is not allowed.", a.field.Key)
		case strings.HasPrefix(step, "$"):
			return refuse(codeBadValue, "the server in memory doesn't know an update of the path '%s'", a.field.Key)
		}
	}
	v := a.field.Value
	switch kind, is := v.(bson.D); {
	case a.operator == "$inc" && rankOf(v) != rankNumber:
		return refuse(codeTypeMismatch, "Cannot increment with non-numeric argument: {%s: %v}", a.field.Key, v)
	case a.operator == "$push":
		if _, modifies := operatorsOf(v); modifies {
			return refuse(codeNotSupported, "the server in memory doesn't know $push with modifiers: %v", v)
		}
	case a.operator != "$currentDate" || v == true:
	case !is || len(kind) != 1 || !slices.Contains([]string{"date", "timestamp"}, text(kind, "$type")):
		return refuse(codeBadValue, "$currentDate takes true, or {$type: 'date'} or {$type: 'timestamp'}, and not: %v", v)
	}
	return nil
}

func (c change) throughOperator(document bson.D, operator string, f bson.E) (bson.D, error) {
	switch operator {
	case "$set":
		return put(document, f.Key, f.Value)
	case "$setOnInsert":
		if !c.inserted {
			return document, nil
		}
		return put(document, f.Key, f.Value)
	case "$unset":
		return without(document, f.Key), nil
	case "$inc":
		return increase(document, f)
	case "$push":
		return pushed(document, f)
	case "$currentDate":
		if kind, _ := f.Value.(bson.D); text(kind, "$type") == "timestamp" {
			return put(document, f.Key, c.at)
		}
		return put(document, f.Key, c.scope["NOW"])
	}
	return nil, refuse(codeFailedToParse, "the server in memory doesn't know the modifier %s", operator)
}

func increase(document bson.D, f bson.E) (bson.D, error) {
	stored := inPlace(document, f.Key)
	if stored == any(missing{}) {
		return put(document, f.Key, f.Value)
	}
	if rankOf(stored) != rankNumber {
		return nil, refuse(codeTypeMismatch, "Cannot apply $inc to a value of non-numeric type, of the field '%s'", f.Key)
	}
	total, err := sum(stored, f.Value, false)
	if err != nil {
		return nil, err
	}
	return put(document, f.Key, total)
}

// pushed adds an element to an array.
func pushed(document bson.D, f bson.E) (bson.D, error) {
	switch stored := inPlace(document, f.Key).(type) {
	case missing:
		return put(document, f.Key, bson.A{f.Value})
	case bson.A:
		return put(document, f.Key, append(slices.Clone(stored), f.Value))
	default:
		return nil, refuse(codeBadValue, "The field '%s' must be an array but is of type %s", f.Key, typeOf(stored))
	}
}

// throughStages updates by an aggregation pipeline.
func (c change) throughStages(document bson.D, stages bson.A) (bson.D, error) {
	for _, s := range stages {
		stage, _ := s.(bson.D)
		if len(stage) != 1 {
			return nil, refuse(codeBadStage, "A pipeline stage specification object must contain exactly one field.")
		}
		var err error
		if document, err = c.throughStage(document, stage[0]); err != nil {
			return nil, err
		}
	}
	return document, nil
}

func (c change) throughStage(document bson.D, stage bson.E) (after bson.D, err error) {
	after = document
	switch stage.Key {
	case "$set", "$addFields":
		fields, is := stage.Value.(bson.D)
		if !is {
			return nil, refuse(codeFailedToParse, "the stage %s needs a document", stage.Key)
		}
		for _, f := range fields {
			if err := checkStage(document, f.Key, f.Value); err != nil {
				return nil, err
			}
			value, err := evaluate(f.Value, c.scope.with("ROOT", document))
			if err != nil {
				return nil, err
			}
			if value == any(missing{}) {
				after = without(after, f.Key)
				continue
			}
			if after, err = put(after, f.Key, value); err != nil {
				return nil, err
			}
		}
		return after, nil
	case "$unset":
		names, are := stage.Value.(bson.A)
		if !are {
			names = bson.A{stage.Value}
		}
		for _, name := range names {
			path, is := name.(string)
			if !is || path == "" {
				return nil, refuse(codeFailedToParse, "$unset needs the names of fields")
			}
			if err := checkStage(document, path, nil); err != nil {
				return nil, err
			}
			after = without(after, path)
		}
		return after, nil
	}
	return nil, refuse(codeUnknownStage, "the server in memory doesn't know the stage %s of an update", stage.Key)
}

// checkStage refuses what a stage changes in a way of its own: each element of an array,
// and the fields within a document.
func checkStage(document bson.D, path string, value any) error {
	_, inner := value.(bson.D)
	if _, are := operatorsOf(value); inner && !are || throughArray(document, path) {
		return refuse(codeNotSupported, "the server in memory doesn't know a stage that changes '%s' from within", path)
	}
	return nil
}
