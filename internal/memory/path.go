package memory

import (
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// visit calls see with every value that a filter's path leads to, and with missing where
// it leads to nothing. A path goes through each document of an array, and takes a number
// for an index as well: an array at the index where it ends is an [element].
func visit(v any, path string, see func(v any)) {
	name, rest, more := strings.Cut(path, ".")
	next := func(v any) {
		if more {
			visit(v, rest, see)
		} else {
			see(v)
		}
	}
	switch v := v.(type) {
	case bson.D:
		next(field(v, name))
	case bson.A:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(v) {
			switch inner := v[i].(type) {
			case bson.A:
				if more {
					next(inner)
				} else {
					see(element{inner})
				}
			case bson.D:
				next(inner)
			default:
				if !more {
					see(inner)
				}
			}
		}
		for _, inner := range v {
			if d, is := inner.(bson.D); is {
				visit(d, path, see)
			}
		}
	default:
		see(missing{})
	}
}

// element is an array in another one, which a filter takes as one value: it doesn't look
// at the elements within.
type element struct{ array bson.A }

// plain returns a value that visit has seen as it is stored.
func plain(v any) any {
	if e, is := v.(element); is {
		return e.array
	}
	return v
}

// reach returns the value that an expression's path leads to. Through an array it leads
// to an array of what its documents have.
func reach(v any, path string) any {
	name, rest, more := strings.Cut(path, ".")
	switch v := v.(type) {
	case bson.D:
		found := field(v, name)
		if !more {
			return found
		}
		return reach(found, rest)
	case bson.A:
		all := bson.A{}
		for _, element := range v {
			if _, is := element.(bson.D); is {
				if found := reach(element, path); found != (any)(missing{}) {
					all = append(all, found)
				}
			}
		}
		return all
	}
	return missing{}
}

// inPlace returns the value that an update by operators changes: a path goes into an
// array by an index alone.
func inPlace(v any, path string) any {
	name, rest, more := strings.Cut(path, ".")
	found := any(missing{})
	switch v := v.(type) {
	case bson.D:
		found = field(v, name)
	case bson.A:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(v) {
			found = v[i]
		}
	}
	if more {
		return inPlace(found, rest)
	}
	return found
}

// put returns a document with a value at a path. Documents on the way are made where
// nothing is.
func put(document bson.D, path string, value any) (bson.D, error) {
	name, rest, more := strings.Cut(path, ".")
	changed := append(bson.D(nil), document...)
	for i := range changed {
		if changed[i].Key != name {
			continue
		}
		if more {
			var err error
			if value, err = putInto(changed[i].Value, rest, value); err != nil {
				return nil, err
			}
		}
		changed[i].Value = value
		return changed, nil
	}
	if more {
		var err error
		if value, err = put(nil, rest, value); err != nil {
			return nil, err
		}
	}
	return append(changed, bson.E{Key: name, Value: value}), nil
}

func putInto(at any, path string, value any) (any, error) {
	switch at := at.(type) {
	case bson.D:
		return put(at, path, value)
	case bson.A:
		name, rest, more := strings.Cut(path, ".")
		i, err := strconv.Atoi(name)
		if err == nil && i >= len(at) {
			return nil, refuse(codeNotSupported, "the server in memory doesn't know an update beyond the end of an array: '%s'", name)
		}
		if err != nil || i < 0 {
			return nil, refuse(codePathNotViable, "Cannot create field '%s' in an array", name)
		}
		changed := append(bson.A(nil), at...)
		if more {
			if value, err = putInto(at[i], rest, value); err != nil {
				return nil, err
			}
		}
		changed[i] = value
		return changed, nil
	}
	return nil, refuse(codePathNotViable, "Cannot create field '%s' in an element of type %s", path, typeOf(at))
}

// throughArray reports whether a path leads through an array: a stage of a pipeline then
// changes each element, which is not known here.
func throughArray(document bson.D, path string) bool {
	name, rest, more := strings.Cut(path, ".")
	switch v := field(document, name).(type) {
	case bson.A:
		return more
	case bson.D:
		return more && throughArray(v, rest)
	}
	return false
}

// without returns a document without what is at a path.
func without(document bson.D, path string) bson.D {
	name, rest, more := strings.Cut(path, ".")
	changed := bson.D{}
	for _, e := range document {
		if e.Key == name {
			if !more {
				continue
			}
			e.Value = withoutIn(e.Value, rest)
		}
		changed = append(changed, e)
	}
	return changed
}

// withoutIn is without in a field's value. What is removed from an array leaves null.
func withoutIn(at any, path string) any {
	switch at := at.(type) {
	case bson.D:
		return without(at, path)
	case bson.A:
		name, rest, more := strings.Cut(path, ".")
		i, err := strconv.Atoi(name)
		if err != nil || i < 0 || i >= len(at) {
			return at
		}
		changed := append(bson.A(nil), at...)
		changed[i] = nil
		if more {
			changed[i] = withoutIn(at[i], rest)
		}
		return changed
	}
	return at
}
