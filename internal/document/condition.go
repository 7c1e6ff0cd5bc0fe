package document

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// FenceIs requires a fence. None is required as null, which matches a missing field, too.
func FenceIs(m *wire.Message, field string, fence protocol.Fence) {
	m.Begin(field)
	if fence == "" {
		m.Null("$eq")
		m.NoArray()
	} else {
		m.Equals(bson.RawValue{Type: bson.Type(fence[0]), Value: []byte(fence[1:])})
	}
	m.End()
}

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

// BalanceTypes requires that a balance is an exact number of a kind.
func BalanceTypes(m *wire.Message, kind money.Kind) {
	m.BeginArray("$type")
	if kind == money.Decimal {
		m.Text("0", "decimal")
	} else {
		m.Text("0", "int")
		m.Text("1", "long")
	}
	m.End()
}

// FloorIs requires that the stored floor is still the one that a bound was computed with.
func FloorIs(m *wire.Message, field string, f Floor) {
	m.Begin(field)
	if f.Stored.Type == 0 {
		m.Null("$eq")
		m.NoArray()
	} else {
		m.Equals(f.Stored)
	}
	m.End()
}

// ExactBalance keeps out a decimal balance with so many digits behind the point that a sum might be rounded. It is the
// operand of $expr.
func ExactBalance(field string) (bson.Raw, error) {
	balance := "$" + field
	rounded := bson.D{{Key: "$round", Value: bson.A{balance, money.MaxPlaces}}}
	equal := bson.D{{Key: "$eq", Value: bson.A{balance, rounded}}}
	number := bson.D{{Key: "$isNumber", Value: balance}} // $round fails on anything else
	encoded, err := bson.Marshal(bson.D{{Key: "$cond", Value: bson.A{number, equal, false}}})
	return encoded, err
}
