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
		if n := whole(c.body, option); n != 0 {
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
	var documents []bson.D
	at, _ := c.readTime()
	if collection := c.found(); collection != nil {
		filter := bson.D{}
		if len(stages) > 0 {
			first, _ := stages[0].(bson.D)
			filter = nested(first, "$match")
		}
		var err error
		if documents, err = collection.find(filter, c.scope, at); err != nil {
			return nil, err
		}
	}
	for _, s := range stages {
		stage, _ := s.(bson.D)
		if len(stage) != 1 {
			return nil, refuse(codeBadStage, "A pipeline stage specification object must contain exactly one field.")
		}
		var err error
		if documents, err = c.throughStage(documents, stage[0]); err != nil {
			return nil, err
		}
	}
	return c.firstBatch(documents, c.name), nil
}

func (c command) throughStage(documents []bson.D, stage bson.E) ([]bson.D, error) {
	operand, _ := stage.Value.(bson.D)
	n := int(whole(bson.D{stage}, stage.Key))
	switch stage.Key {
	case "$match":
		return c.matching(documents, operand)
	case "$sort":
		slices.SortStableFunc(documents, func(a, b bson.D) int { return inOrder(a, b, operand) })
		return documents, nil
	case "$skip":
		return documents[min(n, len(documents)):], nil
	case "$limit":
		return documents[:min(n, len(documents))], nil
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
	return nil, refuse(codeUnknownStage, "Unrecognized pipeline stage name: '%s'", stage.Key)
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

// project returns the part of a document that a projection includes, or all that it
// doesn't exclude.
func (c command) project(document, projection bson.D) (bson.D, error) {
	var included, rest bson.D
	original, excludes := document, true
	for _, f := range projection {
		if f.Key == "_id" && !isTrue(f.Value) {
			document = without(document, "_id")
			continue
		}
		excludes = excludes && !isTrue(f.Value)
		rest = append(rest, f)
	}
	if excludes {
		for _, f := range rest {
			document = without(document, f.Key)
		}
		return document, nil
	}
	for _, e := range document {
		value, err := c.included(e, rest)
		if err != nil {
			return nil, err
		}
		if value != any(missing{}) {
			included = append(included, bson.E{Key: e.Key, Value: value})
		}
	}
	return c.computed(included, original, rest)
}

// computed adds what a projection computes.
func (c command) computed(included, document, projection bson.D) (bson.D, error) {
	for _, f := range projection {
		if !computes(f.Value) {
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

// computes reports whether a projection computes a field.
func computes(v any) bool {
	operators, are := operatorsOf(v)
	return are && operators[0].Key != "$elemMatch"
}

// included returns what a projection includes of a field, missing for nothing.
func (c command) included(e bson.E, projection bson.D) (any, error) {
	if e.Key == "_id" {
		return e.Value, nil
	}
	var inner bson.D
	for _, f := range projection {
		name, rest, more := strings.Cut(f.Key, ".")
		operators, are := operatorsOf(f.Value)
		switch {
		case name != e.Key:
		case more:
			inner = append(inner, bson.E{Key: rest, Value: f.Value})
		case are && operators[0].Key == "$elemMatch":
			return c.firstElement(e.Value, operators[0].Value)
		case are: // it is computed
		default:
			return e.Value, nil
		}
	}
	if document, is := e.Value.(bson.D); is && len(inner) > 0 {
		return c.project(document, inner)
	}
	return missing{}, nil
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
