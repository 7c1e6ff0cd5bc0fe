package pipeline

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
)

// expression is an operator and its operands.
func expression(operator string, operands ...any) bson.D {
	return bson.D{{Key: operator, Value: bson.A(operands)}}
}

func parameter(name string) string { return "$$p." + name }

// orElse is a field's value, or another one where it is missing or null.
func orElse(field string, value any) bson.D { return expression("$ifNull", "$"+field, value) }

// typeIn requires the type of a field.
func typeIn(field string, types any) bson.D {
	return expression("$in", bson.D{{Key: "$type", Value: "$" + field}}, types)
}

// body is the account as it is after the statement. It has the markers as a list of keys
// and values, which is empty if there is no map: $objectToArray would fail on anything
// else, and end the statement for all accounts.
func body(fields document.Fields, shape Shape) bson.D {
	pending := "$" + fields.Pending
	isMap := expression("$eq", bson.D{{Key: "$type", Value: pending}}, "object")
	markers := expression("$cond", isMap, bson.D{{Key: "$objectToArray", Value: pending}}, bson.A{})
	return let(bson.D{{Key: "markers", Value: markers}},
		expression("$cond", conditions(fields, shape), account(fields, shape), "$$ROOT"))
}

// let is an expression in which variables have values.
func let(variables bson.D, in any) bson.D {
	return bson.D{{Key: "$let", Value: bson.D{{Key: "vars", Value: variables}, {Key: "in", Value: in}}}}
}

// account is the account with its changed fields. All other fields, and their order, are
// as they were.
//
// An account in which a name stands twice would lose one of these fields. There are
// servers that abort, as they compare it with the one before. So it is left as it is: its
// size is not what the changed fields make it.
func account(fields document.Fields, shape Shape) bson.D {
	old := bson.D{{Key: fields.Balance, Value: "$" + fields.Balance}, {Key: fields.Pending, Value: "$" + fields.Pending}}
	size := func(of any) bson.D { return bson.D{{Key: "$bsonSize", Value: of}} }
	change := let(bson.D{{Key: "account", Value: expression("$mergeObjects", "$$ROOT", "$$change")}},
		expression("$cond", expression("$eq",
			expression("$add", size("$$account"), size(old)),
			expression("$add", size("$$ROOT"), size("$$change")),
		), "$$account", "$$ROOT"))
	return let(bson.D{{Key: "change", Value: changed(fields, shape)}}, change)
}

// conditions are those of the mongostore's statement for one account, or stricter. They
// are evaluated in this order, and none after one that does not hold.
func conditions(fields document.Fields, shape Shape) bson.D {
	balance := "$" + fields.Balance
	all := []any{
		typeIn(fields.Balance, document.NumberTypes(shape.Kind)),
		expression("$gte", balance, parameter(Low)),
		expression("$lte", balance, parameter(High)),
	}
	if shape.Kind == money.Decimal {
		all = append(all, expression("$eq", balance, expression("$round", balance, money.MaxPlaces)))
	}
	// A map with a key twice would lose one of them. There are servers that abort then,
	// because they compare the map with the one before.
	all = append(all, expression("$eq",
		bson.D{{Key: "$size", Value: "$$markers"}},
		bson.D{{Key: "$size", Value: bson.D{{Key: "$setUnion", Value: "$$markers.k"}}}},
	))
	if shape.Removes { // and so there is a map
		all = append(all, expression("$setIsSubset", parameter(Removed), "$$markers.k"))
	} else { // the first marker makes the map
		all = append(all, typeIn(fields.Pending, bson.A{"object", "missing"}))
	}
	if !shape.Prepares {
		return expression("$and", all...)
	}
	return expression("$and", append(all,
		expression("$eq", expression("$setIntersection", parameter(Absent), "$$markers.k"), bson.A{}),
		expression("$eq", orElse(fields.Fence, nil), parameter(Fence)),
		expression("$eq", orElse(fields.Closed, false), false),
		expression("$eq", orElse(fields.Frozen, false), false),
		expression("$eq", orElse(fields.Currency, ""), parameter(Currency)),
		expression("$or",
			expression("$not", parameter(Debits)),
			expression("$eq", orElse(fields.Floor, nil), parameter(Floor)),
		),
	)...)
}

// changed are the new balance and markers. A balance that does not change keeps its type.
func changed(fields document.Fields, shape Shape) bson.D {
	balance := "$" + fields.Balance
	var markers any = "$" + fields.Pending
	if shape.Removes {
		markers = bson.D{{Key: "$arrayToObject", Value: bson.D{{Key: "$filter", Value: bson.D{
			{Key: "input", Value: "$$markers"},
			{Key: "cond", Value: expression("$not", expression("$in", "$$this.k", parameter(Removed)))},
		}}}}}
	}
	if shape.Sets {
		markers = expression("$mergeObjects", markers, parameter(Set))
	}
	sum := expression("$cond",
		expression("$eq", parameter(Net), 0), balance, expression("$add", balance, parameter(Net)))
	return bson.D{{Key: fields.Balance, Value: sum}, {Key: fields.Pending, Value: markers}}
}
