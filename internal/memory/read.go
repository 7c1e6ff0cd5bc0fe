package memory

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func (c command) find() (bson.D, error) {
	stages := bson.A{
		bson.D{{Key: "$match", Value: nested(c.body, "filter")}},
	}
	if sort := nested(c.body, "sort"); len(sort) > 0 {
		stages = append(stages, bson.D{{Key: "$sort", Value: sort}})
	}
	for _, option := range []string{"skip", "limit"} {
		if n := field(c.body, option); n != any(missing{}) && !equal(n, int64(0)) {
			stages = append(stages, bson.D{{Key: "$" + option, Value: n}})
		}
	}
	if projection := nested(c.body, "projection"); len(projection) > 0 {
		stages = append(stages, bson.D{{Key: "$project", Value: projection}})
	}
	return c.through(stages)
}

func (c command) aggregate() (bson.D, error) { return c.through(list(c.body, "pipeline")) }

// through reads the collection through the stages of a pipeline.
func (c command) through(stages bson.A) (bson.D, error) {
	at, err := c.readTime()
	if err != nil {
		return nil, err
	}
	filter := bson.D{}
	if len(stages) > 0 {
		first, _ := stages[0].(bson.D)
		if condition, is := field(first, "$match").(bson.D); is && len(first) == 1 {
			filter, stages = condition, stages[1:]
		}
	}
	var documents []bson.D
	if collection := c.found(); collection != nil {
		if documents, err = collection.find(filter, c.scope, at); err != nil {
			return nil, err
		}
	}
	for _, s := range stages {
		stage, _ := s.(bson.D)
		if len(stage) != 1 {
			return nil, refuse(codeBadStage, "A pipeline stage specification object must contain exactly one field.")
		}
		if documents, err = c.throughStage(documents, stage[0]); err != nil {
			return nil, err
		}
	}
	if at != (bson.Timestamp{}) {
		return c.firstBatch(documents, c.name, bson.E{Key: "atClusterTime", Value: at}), nil
	}
	return c.firstBatch(documents, c.name), nil
}

func (c command) throughStage(documents []bson.D, stage bson.E) ([]bson.D, error) {
	operand, is := stage.Value.(bson.D)
	switch stage.Key {
	case "$skip", "$limit":
		return cut(documents, stage)
	case "$match", "$sort", "$group", "$project":
		if !is {
			return nil, refuse(codeBadValue, "the stage %s needs a document", stage.Key)
		}
	}
	switch stage.Key {
	case "$match":
		return c.matching(documents, operand)
	case "$sort":
		return documents, sortBy(documents, operand)
	case "$count":
		name, _ := stage.Value.(string)
		if len(documents) == 0 {
			return nil, nil
		}
		return []bson.D{{{Key: name, Value: int32(len(documents))}}}, nil
	case "$group":
		return c.group(documents, operand)
	case "$project":
		projected := make([]bson.D, len(documents))
		for i, d := range documents {
			var err error
			if projected[i], err = c.project(d, operand); err != nil {
				return nil, err
			}
		}
		return projected, nil
	}
	return nil, refuse(codeUnknownStage, "the server in memory doesn't know the stage %s", stage.Key)
}

// cut leaves the first documents out, or the others.
func cut(documents []bson.D, stage bson.E) ([]bson.D, error) {
	n, kind := exact(stage.Value)
	if kind != 0 || !n.IsInt() || !n.Num().IsInt64() || n.Sign() < 0 || n.Sign() == 0 && stage.Key == "$limit" {
		return nil, refuse(codeBadValue, "%s needs a whole number which is not negative, and not: %v", stage.Key, stage.Value)
	}
	at := int(min(n.Num().Int64(), int64(len(documents))))
	if stage.Key == "$skip" {
		return documents[at:], nil
	}
	return documents[:at], nil
}

func (c command) matching(documents []bson.D, filter bson.D) ([]bson.D, error) {
	var found []bson.D
	for _, d := range documents {
		met, err := matches(d, filter, c.scope)
		if err != nil {
			return nil, err
		}
		if met {
			found = append(found, d)
		}
	}
	return found, nil
}

// sortBy sorts documents by some of their fields.
func sortBy(documents []bson.D, sort bson.D) error {
	for _, by := range sort {
		if !equal(by.Value, int64(1)) && !equal(by.Value, int64(-1)) {
			return refuse(codeBadValue, "the server in memory sorts by '%s' upwards or downwards, and not by: %v", by.Key, by.Value)
		}
	}
	slices.SortStableFunc(documents, func(a, b bson.D) int { return inOrder(a, b, sort) })
	return nil
}

// inOrder compares two documents by the fields of a sort.
func inOrder(a, b, sort bson.D) int {
	for _, by := range sort {
		order := compare(sortValue(a, by), sortValue(b, by))
		if order != 0 {
			return order * direction(by)
		}
	}
	return 0
}

func direction(by bson.E) int {
	if whole(bson.D{by}, by.Key) < 0 {
		return -1
	}
	return 1
}

// sortValue returns the value that a document is sorted by: of several the least one, or
// the largest one if the order is downwards.
func sortValue(document bson.D, by bson.E) any {
	var found any
	begun := false
	take := func(v any) {
		if !begun || compare(v, found)*direction(by) < 0 {
			found, begun = v, true
		}
	}
	visit(document, by.Key, func(v any) {
		v = plain(v)
		if elements, is := v.(bson.A); is {
			if len(elements) == 0 {
				take(nothing{})
			}
			for _, element := range elements {
				take(element)
			}
			return
		}
		take(v)
	})
	return found
}

// checkProjection refuses a projection of other parts than these: some fields, or all but
// some; computed ones; and the first element of an array that matches.
func checkProjection(projection bson.D) error {
	includes, excludes := false, false
	for _, f := range projection {
		_, computed := operatorsOf(f.Value)
		plain := rankOf(f.Value) == rankNumber || rankOf(f.Value) == rankFlag
		switch {
		case strings.ContainsAny(f.Key, ".$"), !computed && !plain:
			return refuse(codeNotSupported, "the server in memory doesn't know a projection of '%s' as: %v", f.Key, f.Value)
		case f.Key == "_id" && plain:
		default:
			includes, excludes = includes || isTrue(f.Value), excludes || !isTrue(f.Value)
		}
	}
	if includes && excludes {
		return refuse(codeMixedProjection, "a projection includes fields, or excludes them, and not both")
	}
	return nil
}

// project returns the part of a document that a projection includes, or all that it
// doesn't exclude.
func (c command) project(document, projection bson.D) (bson.D, error) {
	if err := checkProjection(projection); err != nil {
		return nil, err
	}
	kept := document
	var rest bson.D
	for _, f := range projection {
		switch {
		case !isTrue(f.Value):
			kept = without(kept, f.Key)
		case f.Key != "_id" || len(projection) == 1:
			rest = append(rest, f)
		}
	}
	if len(rest) == 0 {
		return kept, nil
	}
	included := bson.D{} // which is no null, if it stays empty
	for _, e := range kept {
		value, err := c.included(e, rest)
		if err != nil {
			return nil, err
		}
		if value != any(missing{}) {
			included = append(included, bson.E{Key: e.Key, Value: value})
		}
	}
	return c.computed(included, document, rest)
}

// included returns what a projection includes of a field, missing for nothing.
func (c command) included(e bson.E, projection bson.D) (any, error) {
	wanted := field(projection, e.Key)
	switch operators, are := operatorsOf(wanted); {
	case e.Key == "_id", !are && wanted != any(missing{}):
		return e.Value, nil
	case are && operators[0].Key == "$elemMatch":
		return c.firstElement(e.Value, operators[0].Value)
	}
	return missing{}, nil // or it is computed
}

// computed adds what a projection computes.
func (c command) computed(included, document, projection bson.D) (bson.D, error) {
	for _, f := range projection {
		if operators, are := operatorsOf(f.Value); !are || operators[0].Key == "$elemMatch" {
			continue
		}
		value, err := evaluate(f.Value, c.scope.with("ROOT", document))
		if err != nil {
			return nil, err
		}
		if value != any(missing{}) {
			included = append(without(included, f.Key), bson.E{Key: f.Key, Value: value})
		}
	}
	return included, nil
}

// firstElement returns an array of the first element that matches.
func (c command) firstElement(v, condition any) (any, error) {
	elements, _ := v.(bson.A)
	for _, element := range elements {
		met, err := meetsElement([]any{bson.A{element}}, condition, c.scope)
		if err != nil {
			return nil, err
		}
		if met {
			return bson.A{element}, nil
		}
	}
	return missing{}, nil
}
