package verbs

import (
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// badRequests are invalid requests, by a part of the error's text.
// Their values are "sesame", which the text never shows.
func badRequests(t *testing.T) map[string]transfer.Request {
	t.Helper()
	with := func(change func(*transfer.Request)) transfer.Request {
		req := bank.Move("new", "a", "b", 1)
		change(&req)
		return req
	}
	legs := func(legs ...transfer.Leg) transfer.Request { return transfer.Request{ID: "new", Legs: legs} }
	leg := func(account string, units int64) transfer.Leg {
		return transfer.Leg{Account: account, Amount: transfer.Units(units)}
	}
	metadata := func(key string, value any) transfer.Request {
		return with(func(r *transfer.Request) { r.Metadata = map[string]any{key: value} })
	}
	all := map[string]transfer.Request{
		"the ID is empty":       with(func(r *transfer.Request) { r.ID = "" }),
		"more than 255":         with(func(r *transfer.Request) { r.ID = strings.Repeat("x", 256) }),
		"the ID \"\\xff\"":      with(func(r *transfer.Request) { r.ID = "\xff" }),
		"From and To name":      with(func(r *transfer.Request) { r.From = "" }),
		"and one of them":       with(func(r *transfer.Request) { r.To = "" }),
		"the amount must be":    with(func(r *transfer.Request) { r.Amount = transfer.Amount{} }),
		"must be positive":      with(func(r *transfer.Request) { r.Amount = transfer.Units(-5) }),
		"nothing moves":         with(func(r *transfer.Request) { r.To = "a" }),
		"not both":              with(func(r *transfer.Request) { r.Legs = legs(leg("a", -1), leg("b", 1)).Legs }),
		"beyond the limit of":   with(func(r *transfer.Request) { r.Amount = transfer.Units(1<<48 + 1) }),
		"a currency has":        with(func(r *transfer.Request) { r.Currency = "EU\x00R" }),
		"64 bytes of UTF-8":     with(func(r *transfer.Request) { r.Currency = strings.Repeat("x", 1<<20) }),
		"without NUL, not":      with(func(r *transfer.Request) { r.Currency = "\xff" }),
		"legs must sum to zero": legs(leg("a", -2), leg("b", 1)),
		"of account \"b\" is":   legs(leg("a", -1), leg("b", 0), leg("c", 1)),
		"account: the ID is":    legs(leg("a", -1), leg("", 1)),
		"units or decimals":     legs(leg("a", -1), transfer.Leg{Account: "b", Amount: bank.Decimal(t, "1.0")}),
		"\"nowhere\" is not":    legs(leg("a", -1), transfer.Leg{Ledger: "nowhere", Account: "b", Amount: transfer.Units(1)}),
		"1001 legs are more":    legs(make([]transfer.Leg, 1001)...),
		"more than 12 digits":   with(func(r *transfer.Request) { r.Amount = fine(t, "0.0000000000001") }),
		"AtMost is for": with(func(r *transfer.Request) {
			r.From, r.To, r.Amount, r.AtMost, r.Legs = "", "", transfer.Amount{}, true, legs(leg("a", -1), leg("b", 1)).Legs
		}),
		"the metadata key \"$x":  metadata("$x", "sesame"),
		"the metadata key \"x.y": metadata("x.y", "sesame"),
		"the metadata key \"\"":  metadata("", "sesame"),
		"has 70":                 metadata("x", strings.Repeat("sesame", 11_700)),
		"64 levels deep":         metadata("x", nestedIn(100, "sesame")),
		"metadata: ":             metadata("x", make(chan int)),
		"not valid UTF-8":        metadata("x", "\xff"),
	}
	for says, effects := range badEffects() {
		all[says] = with(func(r *transfer.Request) { r.Effects = effects })
	}
	return all
}

// badEffects are invalid effects, by a part of the error's text.
func badEffects() map[string][]transfer.Effect {
	of := func(e transfer.Effect) []transfer.Effect {
		e.Documents, e.ID = "orders", "o-1"
		return []transfer.Effect{e}
	}
	requires := func(key string, value any) []transfer.Effect {
		return of(transfer.Effect{Require: bson.D{{Key: key, Value: value}}})
	}
	sets := func(key string, value any) []transfer.Effect {
		return of(transfer.Effect{Set: bson.D{{Key: key, Value: value}}})
	}
	var many []transfer.Effect
	for i := range 101 {
		many = append(many, transfer.Effect{Documents: "orders", ID: fmt.Sprint(i)})
	}
	return map[string][]transfer.Effect{
		"101 effects are more":           many,
		"the documents \"carts\" are":    {{Documents: "carts", ID: "o-1"}},
		"the documents \"\" are not":     {{ID: "o-1"}},
		"the document's ID is missing":   {{Documents: "orders"}},
		"has a field \"$gt\"":            {{Documents: "orders", ID: bson.M{"$gt": "sesame"}}},
		"two effects are on the same":    {{Documents: "orders", ID: 1}, {Documents: "orders", ID: 1.0}},
		"and \"$gt\" is an operator":     requires("status", bson.M{"$gt": "sesame"}),
		"and \"$ne\" is an operator":     requires("status", map[string]any{"$ne": nil}),
		"and \"$in\" is an operator":     requires("status", bson.D{{Key: "$in", Value: bson.A{"sesame"}}}),
		"and \"$exists\" is an operator": requires("status", bson.M{"within": bson.A{bson.M{"$exists": true}}}),
		"and \"$where\" is an operator":  requires("status", bson.D{{Key: "a", Value: 1}, {Key: "$where", Value: "sesame"}}),
		"and \"$ref\" is an operator":    requires("status", bson.D{{Key: "$ref", Value: "sesame"}}),
		"and \"$or\" is an operator":     requires("status", bson.D{{Key: "$ref", Value: "x"}, {Key: "$id", Value: 1}, {Key: "$or", Value: 1}}),
		"requires \"$or\", which is":     requires("$or", bson.A{}),
		"requires \"a.b\", which is":     requires("a.b", "sesame"),
		"requires \"\", which is":        requires("", "sesame"),
		"requires \"_id\", which is":     requires("_id", "sesame"),
		"requires \"pending\", which":    requires("pending", "sesame"),
		"sets \"$inc\", which is":        sets("$inc", "sesame"),
		"sets \"a.b\", which is":         sets("a.b", "sesame"),
		"sets \"fence\", which is":       sets("fence", "sesame"),
		"sets has 65":                    sets("x", strings.Repeat("sesame!!", 8200)),
		"\"x\" twice":                    of(transfer.Effect{Set: bson.D{{Key: "x"}, {Key: "x"}}}),
		"a value of the kind undefined":  sets("x", bson.Undefined{}),
		"the effect on \"o-1\": ":        sets("x", make(chan int)),
	}
}

// nestedIn nests a value in levels documents.
func nestedIn(levels int, value any) any {
	for range levels {
		value = bson.M{"in": value}
	}
	return value
}

// fine returns an amount with more digits than the library writes, as another program
// could have stored it.
func fine(t *testing.T, text string) transfer.Amount {
	t.Helper()
	d, err := bson.ParseDecimal128(text)
	if err != nil {
		t.Fatal(err)
	}
	kind, data, err := bson.MarshalValue(d)
	if err != nil {
		t.Fatal(err)
	}
	var a transfer.Amount
	if err := a.UnmarshalBSONValue(byte(kind), data); err != nil {
		t.Fatal(err)
	}
	return a
}
