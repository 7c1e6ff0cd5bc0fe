package memory

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// matches reports whether a document matches a filter.
func matches(document, filter bson.D, s scope) (bool, error) {
	for _, e := range filter {
		met, err := meets(document, e, s)
		if err != nil || !met {
			return false, err
		}
	}
	return true, nil
}

// meets reports whether a document meets one condition of a filter.
func meets(document bson.D, e bson.E, s scope) (bool, error) {
	switch e.Key {
	case "$and", "$or", "$nor":
		return meetsParts(document, e, s)
	case "$expr":
		value, err := evaluate(e.Value, s.with("ROOT", document))
		return isTrue(value), err
	case "$comment":
		return true, nil
	}
	if strings.HasPrefix(e.Key, "$") {
		return false, refuse(codeBadValue, "the server in memory doesn't know the operator %s", e.Key)
	}
	var values []any
	visit(document, e.Key, func(v any) { values = append(values, v) })
	operators, is := operatorsOf(e.Value)
	if !is {
		if err := checkWanted(e.Value); err != nil {
			return false, err
		}
		return anyOf(values, func(v any) bool { return equalTo(v, e.Value) }), nil
	}
	return meetsAll(values, operators, s)
}

// meetsParts judges a list of filters.
func meetsParts(document bson.D, e bson.E, s scope) (bool, error) {
	parts, is := e.Value.(bson.A)
	if !is || len(parts) == 0 {
		return false, refuse(codeBadValue, "%s must be a nonempty array", e.Key)
	}
	for _, part := range parts {
		filter, is := part.(bson.D)
		if !is {
			return false, refuse(codeBadValue, "%s argument's entries must be objects", e.Key)
		}
		met, err := matches(document, filter, s)
		if err != nil {
			return false, err
		}
		if met != (e.Key == "$and") {
			return e.Key == "$or", nil
		}
	}
	return e.Key != "$or", nil
}

// operatorsOf returns a condition's operators, if that is what it has.
func operatorsOf(condition any) (bson.D, bool) {
	d, is := condition.(bson.D)
	return d, is && len(d) > 0 && strings.HasPrefix(d[0].Key, "$")
}

// meetsAll reports whether the values of a field meet all operators.
func meetsAll(values []any, operators bson.D, s scope) (bool, error) {
	for _, o := range operators {
		met, err := meetsOne(values, o, s)
		if err != nil || !met {
			return false, err
		}
	}
	return true, nil
}

func meetsOne(values []any, o bson.E, s scope) (bool, error) {
	if typeOf(o.Value) == "undefined" {
		return false, refuse(codeBadValue, "cannot compare to undefined")
	}
	switch o.Key {
	case "$eq":
		return anyOf(values, func(v any) bool { return equalTo(v, o.Value) }), nil
	case "$ne":
		return !anyOf(values, func(v any) bool { return equalTo(v, o.Value) }), nil
	case "$in", "$nin":
		wanted, is := o.Value.(bson.A)
		if !is {
			return false, refuse(codeBadValue, "%s needs an array", o.Key)
		}
		if err := checkWanted(wanted...); err != nil {
			return false, err
		}
		found := anyOf(values, func(v any) bool {
			return anyOf(wanted, func(w any) bool { return equalTo(v, w) })
		})
		return found == (o.Key == "$in"), nil
	case "$gt", "$gte", "$lt", "$lte":
		return anyOf(values, func(v any) bool {
			return withElements(v, func(v any) bool { return ordered(v, o) })
		}), nil
	case "$exists":
		there := anyOf(values, func(v any) bool { return v != any(missing{}) })
		return there == isTrue(o.Value), nil
	case "$not":
		inner, is := operatorsOf(o.Value)
		if !is {
			return false, refuse(codeBadValue, "$not needs a document of operators")
		}
		met, err := meetsAll(values, inner, s)
		return !met, err
	case "$type":
		return meetsType(values, o.Value)
	case "$elemMatch":
		return meetsElement(values, o.Value, s)
	case "$size":
		return anyOf(values, func(v any) bool {
			elements, is := plain(v).(bson.A)
			return is && equal(int64(len(elements)), o.Value)
		}), nil
	}
	return false, refuse(codeBadValue, "the server in memory doesn't know the operator %s", o.Key)
}

// checkWanted refuses a regular expression, which is no value to be equal to, but a
// pattern.
func checkWanted(wanted ...any) error {
	if anyOf(wanted, func(w any) bool { return rankOf(w) == rankRegex }) {
		return refuse(codeNotSupported, "the server in memory doesn't know a filter by a regular expression ($regex)")
	}
	return nil
}

func anyOf(values []any, is func(any) bool) bool {
	for _, v := range values {
		if is(v) {
			return true
		}
	}
	return false
}

// withElements reports whether a value, or one of its elements, is something.
func withElements(v any, is func(any) bool) bool {
	if is(plain(v)) {
		return true
	}
	elements, isArray := v.(bson.A)
	return isArray && anyOf(elements, is)
}

// equalTo reports whether a value, or an element of it, is the wanted one. A missing one
// is equal to null.
func equalTo(v, wanted any) bool {
	if rankOf(wanted) == rankNull {
		return withElements(v, func(v any) bool { return rankOf(v) == rankNull })
	}
	return withElements(v, func(v any) bool { return equal(v, wanted) })
}

// ordered compares with a value of the same type.
func ordered(v any, o bson.E) bool {
	if rankOf(v) != rankOf(o.Value) {
		return false
	}
	if _, kind := exact(v); rankOf(v) == rankNumber && kind == notANumber {
		return false
	}
	return holds(o.Key, compare(v, o.Value))
}

// meetsType reports whether a value or an element of it has one of the named types.
func meetsType(values []any, wanted any) (bool, error) {
	names, is := wanted.(bson.A)
	if !is {
		names = bson.A{wanted}
	}
	for _, name := range names {
		text, _ := name.(string)
		if !slices.Contains(typeNames(), text) {
			return false, refuse(codeBadValue, "$type needs the names of types, and not: %v", name)
		}
		if anyOf(values, func(v any) bool {
			return withElements(v, func(v any) bool { return isOfType(v, text) })
		}) {
			return true, nil
		}
	}
	return false, nil
}

// typeNames returns the names of the types that are known here.
func typeNames() []string {
	return []string{
		"minKey", "maxKey", "undefined", "null", "number", "int", "long", "double", "decimal", "string", "object", "array",
		"binData", "objectId", "bool", "date", "timestamp", "regex",
	}
}

func isOfType(v any, name string) bool {
	if v == any(missing{}) {
		return false
	}
	return typeOf(v) == name || name == "number" && rankOf(v) == rankNumber
}

// meetsElement reports whether an array has an element that meets a filter, or operators.
func meetsElement(values []any, condition any, s scope) (bool, error) {
	operators, are := operatorsOf(condition)
	filter, is := condition.(bson.D)
	if !is {
		return false, refuse(codeBadValue, "$elemMatch needs an Object")
	}
	are = are && !slices.Contains([]string{"$and", "$or", "$nor"}, operators[0].Key)
	for _, v := range values {
		elements, _ := plain(v).(bson.A)
		for _, inner := range elements {
			met, err := false, error(nil)
			if array, is := inner.(bson.A); is {
				inner = element{array}
			}
			if document, is := inner.(bson.D); are {
				met, err = meetsAll([]any{inner}, operators, s)
			} else if is {
				met, err = matches(document, filter, s)
			}
			if err != nil || met {
				return met, err
			}
		}
	}
	return false, nil
}
