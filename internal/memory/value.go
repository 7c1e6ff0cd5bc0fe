package memory

import (
	"bytes"
	"cmp"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// missing is the value of a field that is not there.
type missing struct{}

// nothing is less than null: an empty array where it is sorted by, and what is missing in
// an expression.
type nothing struct{}

// The order of the types, as the server sorts them.
const (
	rankMinKey = iota + 1
	rankNothing
	rankNull
	rankNumber
	rankText
	rankDocument
	rankArray
	rankBinary
	rankObjectID
	rankFlag
	rankDate
	rankTimestamp
	rankRegex
	rankOther
	rankMaxKey
)

// rank returns the place of a value's type in the order, and the name by which $type
// knows it.
func rank(v any) (place int, name string) {
	if place, name = rankOfSimple(v); place != 0 {
		return place, name
	}
	switch v.(type) {
	case bson.D:
		return rankDocument, "object"
	case bson.A:
		return rankArray, "array"
	case bson.Binary:
		return rankBinary, "binData"
	case bson.ObjectID:
		return rankObjectID, "objectId"
	case bson.DateTime:
		return rankDate, "date"
	case bson.Timestamp:
		return rankTimestamp, "timestamp"
	case bson.Regex:
		return rankRegex, "regex"
	case bson.MinKey:
		return rankMinKey, "minKey"
	case bson.MaxKey:
		return rankMaxKey, "maxKey"
	}
	return rankOther, "other"
}

// rankOfSimple is rank for numbers, texts, booleans, and for what is none.
func rankOfSimple(v any) (place int, name string) {
	switch v.(type) {
	case nothing:
		return rankNothing, "nothing"
	case missing:
		return rankNull, "missing"
	case bson.Undefined:
		return rankNull, "undefined"
	case nil, bson.Null:
		return rankNull, "null"
	case int32:
		return rankNumber, "int"
	case int64:
		return rankNumber, "long"
	case float64:
		return rankNumber, "double"
	case bson.Decimal128:
		return rankNumber, "decimal"
	case string:
		return rankText, "string"
	case bool:
		return rankFlag, "bool"
	}
	return 0, ""
}

func rankOf(v any) int {
	place, _ := rank(v)
	return place
}

func typeOf(v any) string {
	_, name := rank(v)
	return name
}

// compare compares two values in the order in which the server sorts them.
func compare(a, b any) int {
	place := rankOf(a)
	if order := cmp.Compare(place, rankOf(b)); order != 0 {
		return order
	}
	switch place {
	case rankNumber:
		return compareNumbers(a, b)
	case rankText:
		return strings.Compare(a.(string), b.(string))
	case rankDocument:
		return slices.CompareFunc(a.(bson.D), b.(bson.D), compareFields)
	case rankArray:
		return slices.CompareFunc(a.(bson.A), b.(bson.A), compare)
	case rankBinary:
		return compareBinaries(a.(bson.Binary), b.(bson.Binary))
	case rankObjectID:
		x, y := a.(bson.ObjectID), b.(bson.ObjectID)
		return bytes.Compare(x[:], y[:])
	case rankFlag:
		return cmp.Compare(number(a.(bool)), number(b.(bool)))
	case rankDate:
		return cmp.Compare(a.(bson.DateTime), b.(bson.DateTime))
	case rankTimestamp:
		return a.(bson.Timestamp).Compare(b.(bson.Timestamp))
	case rankRegex, rankOther:
		return bytes.Compare(encoded(a), encoded(b))
	}
	return 0
}

func compareFields(a, b bson.E) int {
	return cmp.Or(cmp.Compare(rankOf(a.Value), rankOf(b.Value)), strings.Compare(a.Key, b.Key), compare(a.Value, b.Value))
}

func compareBinaries(a, b bson.Binary) int {
	return cmp.Or(cmp.Compare(len(a.Data), len(b.Data)), cmp.Compare(a.Subtype, b.Subtype), bytes.Compare(a.Data, b.Data))
}

func number(flag bool) int {
	if flag {
		return 1
	}
	return 0
}

// compareNumbers compares by value, across types. What is no number is less than all
// others.
func compareNumbers(a, b any) int {
	x, xIs := a.(int64)
	y, yIs := b.(int64)
	if xIs && yIs {
		return cmp.Compare(x, y)
	}
	p, pKind := exact(a)
	q, qKind := exact(b)
	if pKind != 0 || qKind != 0 {
		return cmp.Compare(pKind, qKind)
	}
	return p.Cmp(q)
}

// The kinds of what has no exact value, in order. The exact numbers have the kind 0.
const (
	notANumber       = -2
	negativeInfinity = -1
	positiveInfinity = 1
)

// exact returns a number's value, or the kind of one that has none.
func exact(v any) (value *big.Rat, kind int) {
	switch v := v.(type) {
	case int32:
		return new(big.Rat).SetInt64(int64(v)), 0
	case int64:
		return new(big.Rat).SetInt64(v), 0
	case float64:
		switch {
		case math.IsNaN(v):
			return nil, notANumber
		case math.IsInf(v, 0):
			return nil, int(math.Copysign(1, v))
		}
		return new(big.Rat).SetFloat64(v), 0
	case bson.Decimal128:
		if v.IsNaN() {
			return nil, notANumber
		}
		if sign := v.IsInf(); sign != 0 {
			return nil, sign
		}
		digits, exponent, err := v.BigInt()
		if err != nil {
			return nil, notANumber
		}
		value := new(big.Rat).SetInt(digits)
		power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(exponent, -exponent))), nil)
		if exponent < 0 {
			return value.Quo(value, new(big.Rat).SetInt(power)), 0
		}
		return value.Mul(value, new(big.Rat).SetInt(power)), 0
	}
	return nil, notANumber
}

// equal reports whether two values are the same to the server: numbers count by value.
func equal(a, b any) bool { return compare(a, b) == 0 }

// encoded returns the bytes of a value.
func encoded(v any) []byte {
	_, data, err := bson.MarshalValue(v)
	if err != nil {
		return nil
	}
	return data
}

// key returns a text by which values that are equal are found, as far as _ids go: numbers
// count by value, at any depth.
func key(v any) string {
	switch v := v.(type) {
	case bson.D:
		text := "{"
		for _, e := range v {
			text += strconv.Quote(e.Key) + ":" + key(e.Value) + ","
		}
		return text + "}"
	case bson.A:
		text := "["
		for _, element := range v {
			text += key(element) + ","
		}
		return text + "]"
	}
	if rankOf(v) == rankNumber {
		value, kind := exact(v)
		if kind != 0 {
			return "number kind " + strconv.Itoa(kind)
		}
		return "number " + value.RatString()
	}
	return typeOf(v) + " " + strconv.Quote(string(encoded(v)))
}

// isTrue reports whether an expression's value counts as true.
func isTrue(v any) bool {
	switch v := v.(type) {
	case nil, missing, bson.Null, bson.Undefined:
		return false
	case bool:
		return v
	}
	return rankOf(v) != rankNumber || !equal(v, int64(0))
}

// field returns the value of a document's field.
func field(document bson.D, name string) any {
	for _, e := range document {
		if e.Key == name {
			return e.Value
		}
	}
	return missing{}
}

// text, flag and whole return an option of a command, or its zero value.
func text(document bson.D, name string) string {
	value, _ := field(document, name).(string)
	return value
}

func flag(document bson.D, name string) bool { return isTrue(field(document, name)) }

func whole(document bson.D, name string) int64 {
	switch n := field(document, name).(type) {
	case int32:
		return int64(n)
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return 0
}

func nested(document bson.D, name string) bson.D {
	value, _ := field(document, name).(bson.D)
	return value
}

func list(document bson.D, name string) bson.A {
	value, _ := field(document, name).(bson.A)
	return value
}
