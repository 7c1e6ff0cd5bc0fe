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
	return bson.D{{Key: "$let", Value: bson.D{
		{Key: "vars", Value: bson.D{{Key: "markers", Value: markers}}},
		{Key: "in", Value: expression("$cond", conditions(fields, shape), changed(fields, shape), "$$ROOT")},
	}}}
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
		expression("$eq", orElse(fields.Currency, ""), parameter(Currency)),
		expression("$or",
			expression("$not", parameter(Debits)),
			expression("$eq", orElse(fields.Floor, nil), parameter(Floor)),
		),
	)...)
}

// changed is the account with its new balance and markers. All other fields, and their
// order, are as they were. A balance that does not change keeps its type.
func changed(fields document.Fields, shape Shape) bson.D {
	balance := "$" + fields.Balance
	var markers any = "$" + fields.Pending
	if shape.Removes {
		markers = bson.D{{Key: "$arrayToObject", Value: bson.D{{Key: "$filter", Value: bson.D{
			{Key: "input", Value: "$$markers"},
			{Key: "cond", Value: expression("$not", expression("$in", "$$this.k", parameter(Removed)))},
		}}}}}
	}
	if shape.Prepares {
		markers = expression("$mergeObjects", markers, parameter(Set))
	}
	return expression("$mergeObjects", "$$ROOT", bson.D{
		{Key: fields.Balance, Value: expression("$cond",
			expression("$eq", parameter(Net), 0), balance, expression("$add", balance, parameter(Net)))},
		{Key: fields.Pending, Value: markers},
	})
}
