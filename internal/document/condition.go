package document

import (
	"iter"

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

// NothingReserved requires that no transfer has a marker in a map of markers. Done marks
// may be there, and the map may be missing or null. It is the operand of $expr.
func NothingReserved(field string) bson.D {
	operator := func(name string, operands ...any) bson.D { return bson.D{{Key: name, Value: bson.A(operands)}} }
	pending := "$" + field
	isDone := bson.D{{Key: "$regexMatch", Value: bson.D{{Key: "input", Value: "$$this.k"}, {Key: "regex", Value: doneSuffix + "$"}}}}
	reserved := bson.D{{Key: "$filter", Value: bson.D{
		{Key: "input", Value: bson.D{{Key: "$objectToArray", Value: pending}}}, {Key: "cond", Value: operator("$not", isDone)},
	}}}
	isMap := operator("$eq", bson.D{{Key: "$type", Value: pending}}, "object")
	return operator("$cond", isMap,
		operator("$eq", reserved, bson.A{}),
		operator("$eq", operator("$ifNull", pending, nil), nil))
}

// RefuseRounding makes the server refuse to pay decimals in where the sum would have more
// digits than a Decimal128, which the server would round. It refuses by itself what an
// int64 can't hold, and to add to what is no number.
//
// The condition fails instead of being false: an update that does not match says that a
// marker is gone, and so that its money was paid. Where one of the markers is gone,
// nothing is refused.
func (f Fields) RefuseRounding(m *wire.Message, paid money.Amount, markers iter.Seq[string]) {
	if paid.Kind() != money.Decimal || paid.Sign() <= 0 {
		return
	}
	none := money.Zero(money.Decimal)
	balance := "$" + f.Balance
	m.Begin("$expr")
	m.BeginArray("$or")
	m.Begin("0")
	m.BeginArray("$lte")
	m.Text("0", balance)
	m.Amount("1", Floor{}.Bounds(none, paid, none).High)
	m.End()
	m.End()
	m.Begin("1")
	m.BeginArray("$not")
	m.Begin("0")
	m.Text("$isNumber", balance)
	m.End()
	m.End()
	m.End()
	n := 2
	for marker := range markers {
		m.Begin(wire.Index(n))
		m.BeginArray("$eq")
		m.Begin("0")
		m.Text("$type", "$"+f.Pending+"."+marker)
		m.End()
		m.Text("1", "missing")
		m.End()
		m.End()
		n++
	}
	m.Begin(wire.Index(n))
	noRoom(m, balance)
	m.End()
	m.End()
	m.End()
}

// noRoom writes an expression that fails: no operator fails on demand, so a text is
// converted to a number.
func noRoom(m *wire.Message, balance string) {
	m.Begin("$toInt")
	m.BeginArray("$concat")
	m.Text("0", wire.NoRoom)
	m.Begin("1")
	m.Text("$toString", balance)
	m.End()
	m.End()
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
