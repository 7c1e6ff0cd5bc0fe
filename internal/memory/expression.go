package memory

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// scope has the variables of an expression, ROOT and NOW among them.
type scope map[string]any

// with returns the scope with one more variable.
func (s scope) with(name string, value any) scope {
	inner := maps.Clone(s)
	inner[name] = value
	return inner
}

// evaluate returns the value of an expression.
func evaluate(e any, s scope) (any, error) {
	switch e := e.(type) {
	case string:
		return evaluateText(e, s)
	case bson.A:
		all := make(bson.A, len(e))
		for i := range e {
			value, err := evaluate(e[i], s)
			if err != nil {
				return nil, err
			}
			all[i] = present(value)
		}
		return all, nil
	case bson.D:
		if len(e) == 1 && strings.HasPrefix(e[0].Key, "$") {
			return apply(e[0].Key, e[0].Value, s)
		}
		made := bson.D{}
		for _, part := range e {
			if strings.HasPrefix(part.Key, "$") || strings.Contains(part.Key, ".") {
				return nil, refuse(codeOperands, "'%s' is no field of a document that an expression makes", part.Key)
			}
			value, err := evaluate(part.Value, s)
			if err != nil {
				return nil, err
			}
			if value != any(missing{}) {
				made = append(made, bson.E{Key: part.Key, Value: value})
			}
		}
		return made, nil
	}
	return e, nil
}

// present returns null for a missing value.
func present(v any) any {
	if v == any(missing{}) {
		return nil
	}
	return v
}

// evaluateText returns the value of a field, of a variable, or the text itself.
func evaluateText(text string, s scope) (any, error) {
	if variable, is := strings.CutPrefix(text, "$$"); is {
		name, path, more := strings.Cut(variable, ".")
		value, known := s[name]
		switch {
		case !known:
			return nil, refuse(codeUndefinedVariable, "Use of undefined variable: %s", name)
		case more:
			value = reach(value, path)
		}
		return value, nil
	}
	if path, is := strings.CutPrefix(text, "$"); is {
		return reach(s["ROOT"], path), nil
	}
	return text, nil
}

// apply returns what an operator makes of its operands.
func apply(operator string, operand any, s scope) (any, error) {
	switch operator {
	case "$literal":
		return operand, nil
	case "$and", "$or":
		return applyLogic(operator, operand, s)
	case "$cond":
		return applyCondition(operand, s)
	case "$switch":
		return applySwitch(operand, s)
	case "$filter":
		return applyFilter(operand, s)
	case "$map":
		return applyMap(operand, s)
	case "$convert":
		return applyConvert(operand, s)
	case "$regexMatch":
		return applyPattern(operand, s)
	case "$setField":
		return applySetField(operand, s)
	case "$let":
		return applyLet(operand, s)
	}
	operands, are := operand.(bson.A)
	if !are {
		operands = bson.A{operand}
	}
	values := make(bson.A, len(operands))
	for i := range operands {
		var err error
		if values[i], err = evaluate(operands[i], s); err != nil {
			return nil, err
		}
	}
	return applyTo(operator, values)
}

// distinct returns a value that is no null where it is missing: expressions, unlike
// filters, distinguish the two.
func distinct(v any) any {
	if v == any(missing{}) {
		return nothing{}
	}
	return v
}

// applyTo returns what an operator makes of the values of its operands.
func applyTo(operator string, operands bson.A) (any, error) {
	switch operator {
	case "$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in":
		return applyComparison(operator, operands)
	case "$not":
		return !isTrue(last(operands)), nil
	case "$ifNull":
		return firstPresent(operands), nil
	case "$max":
		return furthest(operands, 1), nil
	case "$min":
		return furthest(operands, -1), nil
	case "$multiply", "$pow":
		return combined(operator, operands)
	case "$add", "$subtract":
		return applySum(operator, operands)
	case "$type":
		return typeOf(last(operands)), nil
	case "$isNumber":
		return rankOf(last(operands)) == rankNumber, nil
	case "$objectToArray":
		return pairs(last(operands))
	case "$round":
		return round(operands)
	}
	return applyToLists(operator, operands)
}

// applyComparison compares two values.
func applyComparison(operator string, operands bson.A) (any, error) {
	if len(operands) != 2 {
		return nil, refuse(codeOperands, "%s needs two operands, and not %d", operator, len(operands))
	}
	a, b := distinct(operands[0]), distinct(operands[1])
	if operator != "$in" {
		return holds(operator, compare(a, b)), nil
	}
	elements, are := b.(bson.A)
	if !are {
		return nil, refuse(codeOperands, "$in requires an array as a second argument, found: %s", typeOf(b))
	}
	return anyOf(elements, func(v any) bool { return equal(v, a) }), nil
}

// firstPresent returns the first value that is not null, or the last one.
func firstPresent(operands bson.A) any {
	for _, v := range operands {
		if rankOf(v) != rankNull {
			return v
		}
	}
	return last(operands)
}

func last(operands bson.A) any {
	if len(operands) == 0 {
		return nil
	}
	return operands[len(operands)-1]
}

func holds(operator string, order int) bool {
	switch operator {
	case "$eq":
		return order == 0
	case "$ne":
		return order != 0
	case "$gt":
		return order > 0
	case "$gte":
		return order >= 0
	case "$lt":
		return order < 0
	default:
		return order <= 0
	}
}

// furthest returns the largest of some values, or the smallest where the direction is -1,
// and null where all are null.
func furthest(operands bson.A, direction int) any {
	var found any
	for _, v := range operands {
		if rankOf(v) != rankNull && (found == nil || compare(v, found) == direction) {
			found = v
		}
	}
	return found
}

func applyLogic(operator string, operand any, s scope) (any, error) {
	operands, are := operand.(bson.A)
	if !are {
		operands = bson.A{operand}
	}
	for _, o := range operands {
		value, err := evaluate(o, s)
		if err != nil {
			return nil, err
		}
		if isTrue(value) == (operator == "$or") {
			return operator == "$or", nil
		}
	}
	return operator == "$and", nil
}

// applyCondition evaluates {$cond: [condition, then, else]}, and no more of the two than
// it needs.
func applyCondition(operand any, s scope) (any, error) {
	operands, _ := operand.(bson.A)
	if len(operands) != 3 {
		return nil, refuse(codeOperands, "$cond needs three operands in a list")
	}
	condition, err := evaluate(operands[0], s)
	if err != nil {
		return nil, err
	}
	if isTrue(condition) {
		return evaluate(operands[1], s)
	}
	return evaluate(operands[2], s)
}

func applySwitch(operand any, s scope) (any, error) {
	d, err := operandsOf("$switch", operand, "branches", "default")
	if err != nil {
		return nil, err
	}
	for _, b := range list(d, "branches") {
		branch, err := operandsOf("a branch of $switch", b, "case", "then")
		if err != nil {
			return nil, err
		}
		condition, err := evaluate(field(branch, "case"), s)
		if err != nil {
			return nil, err
		}
		if isTrue(condition) {
			return evaluate(field(branch, "then"), s)
		}
	}
	return evaluate(field(d, "default"), s)
}

// applyConvert converts to a date: a date, and no number or text, from which a server
// makes one.
func applyConvert(operand any, s scope) (any, error) {
	d, err := operandsOf("$convert", operand, "input", "to", "onError", "onNull")
	if err != nil {
		return nil, err
	}
	if text(d, "to") != "date" {
		return nil, refuse(codeOperands, "$convert to something else than a date")
	}
	value, err := evaluate(field(d, "input"), s)
	switch {
	case err != nil:
		return nil, err
	case rankOf(value) == rankNull:
		return evaluate(field(d, "onNull"), s)
	case slices.Contains([]string{"long", "double", "decimal", "string", "objectId", "timestamp"}, typeOf(value)):
		return nil, refuse(codeNotSupported, "the server in memory doesn't know $convert of %s to a date", typeOf(value))
	case rankOf(value) != rankDate:
		return evaluate(field(d, "onError"), s)
	}
	return value, nil
}

func applyPattern(operand any, s scope) (any, error) {
	d, err := operandsOf("$regexMatch", operand, "input", "regex")
	if err != nil {
		return nil, err
	}
	input, err := evaluate(field(d, "input"), s)
	if err != nil {
		return nil, err
	}
	pattern, is := field(d, "regex").(string)
	compiled, err := regexp.Compile(pattern)
	if err != nil || !is {
		return nil, refuse(codeOperands, "the regex of $regexMatch: %v", field(d, "regex"))
	}
	subject, is := input.(string)
	if !is && rankOf(input) != rankNull {
		return nil, refuse(codeOperands, "$regexMatch needs 'input' to be of type string, and not %s", typeOf(input))
	}
	return is && compiled.MatchString(subject), nil
}

// applyLet evaluates an expression with more variables.
func applyLet(operand any, s scope) (any, error) {
	d, err := operandsOf("$let", operand, "vars", "in")
	if err != nil {
		return nil, err
	}
	inner := s
	for _, variable := range nested(d, "vars") {
		value, err := evaluate(variable.Value, s)
		if err != nil {
			return nil, err
		}
		inner = inner.with(variable.Key, value)
	}
	return evaluate(field(d, "in"), inner)
}

// applySetField returns a document with another value of a field, or without it where the
// value is missing, as $$REMOVE is.
func applySetField(operand any, s scope) (any, error) {
	d, err := operandsOf("$setField", operand, "field", "input", "value")
	if err != nil {
		return nil, err
	}
	input, err := evaluate(field(d, "input"), s)
	if err != nil {
		return nil, err
	}
	document, is := input.(bson.D)
	value, err := evaluate(field(d, "value"), s)
	switch name := text(d, "field"); {
	case err != nil:
		return nil, err
	case !is:
		return nil, refuse(codeOperands, "$setField of %s", typeOf(input))
	case value == any(missing{}):
		return without(document, name), nil
	default:
		return put(document, name, value)
	}
}

// applySum adds or subtracts numbers, and milliseconds to and from dates.
func applySum(operator string, operands bson.A) (any, error) {
	if len(operands) == 0 {
		return int32(0), nil
	}
	sum := operands[0]
	for _, v := range operands[1:] {
		if rankOf(sum) == rankNull || rankOf(v) == rankNull {
			return nil, nil
		}
		var err error
		if sum, err = addOrSubtract(operator, sum, v); err != nil {
			return nil, err
		}
	}
	return sum, nil
}

func addOrSubtract(operator string, a, b any) (any, error) {
	if at, is := a.(bson.DateTime); is {
		by, whole := exact(b)
		if whole != 0 || !by.IsInt() {
			return nil, refuse(codeOperands, "%s of a date and %s", operator, typeOf(b))
		}
		millis := time.Duration(by.Num().Int64()) * time.Millisecond
		if operator == "$subtract" {
			millis = -millis
		}
		return bson.NewDateTimeFromTime(at.Time().Add(millis)), nil
	}
	if operator == "$subtract" {
		return sum(a, b, true)
	}
	return sum(a, b, false)
}
