package document

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/wire"
)

// CurrencyIs requires a currency; none may be missing, null or empty.
func CurrencyIs(m *wire.Message, currency string) {
	m.BeginArray("$in")
	if currency == "" {
		m.Null("0")
		m.Text("1", "")
	} else {
		m.Text("0", currency)
	}
	m.End()
}

// numberTypes names the types in which exact numbers of a kind are stored.
func numberTypes(kind money.Kind) []string {
	if kind == money.Decimal {
		return []string{"decimal"}
	}
	return []string{"int", "long"}
}

// NumberTypes names the types in which exact numbers of kinds are stored, as the operand
// of $type.
func NumberTypes(kinds ...money.Kind) bson.A {
	var types bson.A
	for _, kind := range kinds {
		for _, name := range numberTypes(kind) {
			types = append(types, name)
		}
	}
	return types
}

// BalanceTypes requires that a balance is an exact number of a kind.
func BalanceTypes(m *wire.Message, kind money.Kind) {
	m.BeginArray("$type")
	for i, name := range numberTypes(kind) {
		m.Text(wire.Index(i), name)
	}
	m.End()
}

// ExactBalance excludes a decimal balance with more digits behind the point than a sum
// keeps exactly. It is the operand of $expr.
func ExactBalance(field string) (bson.Raw, error) {
	balance := "$" + field
	rounded := bson.D{{Key: "$round", Value: bson.A{balance, money.MaxPlaces}}}
	equal := bson.D{{Key: "$eq", Value: bson.A{balance, rounded}}}
	number := bson.D{{Key: "$isNumber", Value: balance}} // $round fails on anything else
	encoded, err := bson.Marshal(bson.D{{Key: "$cond", Value: bson.A{number, equal, false}}})
	return encoded, err
}
