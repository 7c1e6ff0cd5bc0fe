package memory

import "go.mongodb.org/mongo-driver/v2/bson"

// applyToLists returns what an operator on lists or documents makes of its operands.
func applyToLists(operator string, operands bson.A) (any, error) {
	switch operator {
	case "$mergeObjects":
		return merged(operands)
	case "$isArray":
		return rankOf(last(operands)) == rankArray, nil
	case "$concatArrays":
		return joined(operands)
	case "$allElementsTrue":
		return allTrue(operands)
	}
	return nil, refuse(codeUnknownExpression, "the server in memory doesn't know the expression %s", operator)
}

// applyFilter returns the elements of a list that meet a condition.
func applyFilter(operand any, s scope) (any, error) {
	kept := bson.A{}
	is, err := overElements("$filter", operand, "cond", s, func(element, condition any) {
		if isTrue(condition) {
			kept = append(kept, element)
		}
	})
	if err != nil || !is {
		return nil, err
	}
	return kept, nil
}

// applyMap returns what an expression makes of each element of a list.
func applyMap(operand any, s scope) (any, error) {
	made := bson.A{}
	is, err := overElements("$map", operand, "in", s, func(_, value any) { made = append(made, present(value)) })
	if err != nil || !is {
		return nil, err
	}
	return made, nil
}

// overElements evaluates an expression, which is one of the operands, for each element of
// the input. It reports false where the input is null.
func overElements(operator string, operand any, expression string, s scope, see func(element, value any)) (bool, error) {
	names := []string{"input", expression}
	variable := "this"
	if given, _ := operand.(bson.D); field(given, "as") != any(missing{}) {
		names, variable = append(names, "as"), text(given, "as")
	}
	d, err := operandsOf(operator, operand, names...)
	if err != nil {
		return false, err
	}
	input, err := evaluate(field(d, "input"), s)
	if err != nil || rankOf(input) == rankNull {
		return false, err
	}
	elements, is := input.(bson.A)
	if !is {
		return false, refuse(codeOperands, "input to %s must be an array not %s", operator, typeOf(input))
	}
	for _, element := range elements {
		value, err := evaluate(field(d, expression), s.with(variable, element))
		if err != nil {
			return false, err
		}
		see(element, value)
	}
	return true, nil
}

// allTrue reports whether all elements of a list are true.
func allTrue(operands bson.A) (any, error) {
	elements, is := last(operands).(bson.A)
	if !is || len(operands) != 1 {
		return nil, refuse(codeOperands, "$allElementsTrue's argument must be an array, but is %s", typeOf(last(operands)))
	}
	return !anyOf(elements, func(v any) bool { return !isTrue(v) }), nil
}

// joined returns the elements of all lists, and null where one of them is null.
func joined(lists bson.A) (any, error) {
	all := bson.A{}
	for _, v := range lists {
		elements, is := v.(bson.A)
		switch {
		case is:
			all = append(all, elements...)
		case rankOf(v) == rankNull:
			return nil, nil
		default:
			return nil, refuse(codeOperands, "$concatArrays only supports arrays, not %s", typeOf(v))
		}
	}
	return all, nil
}

// merged returns a document with the fields of all: of two with one name the later one,
// at the place of the first.
func merged(documents bson.A) (any, error) {
	all := bson.D{}
	for _, v := range documents {
		document, is := v.(bson.D)
		if !is && rankOf(v) != rankNull {
			return nil, refuse(codeOperands, "$mergeObjects requires object inputs, but input is of type %s", typeOf(v))
		}
		for _, e := range document {
			at := -1
			for i := range all {
				if all[i].Key == e.Key {
					at = i
				}
			}
			if at < 0 {
				all = append(all, e)
				continue
			}
			all[at].Value = e.Value
		}
	}
	return all, nil
}

// pairs returns a document's fields as a list of keys and values.
func pairs(v any) (any, error) {
	document, is := v.(bson.D)
	if !is {
		return nil, refuse(codeOperands, "$objectToArray requires a document input, found: %s", typeOf(v))
	}
	all := bson.A{}
	for _, e := range document {
		all = append(all, bson.D{{Key: "k", Value: e.Key}, {Key: "v", Value: e.Value}})
	}
	return all, nil
}
