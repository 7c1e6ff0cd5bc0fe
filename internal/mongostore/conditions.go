package mongostore

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// fenceIs requires a fence. None is required as null, which matches a missing field, too.
func fenceIs(m *message, field string, fence protocol.Fence) {
	m.begin(field)
	if fence == "" {
		m.null("$eq")
		m.noArray()
	} else {
		m.equals(bson.RawValue{Type: bson.Type(fence[0]), Value: []byte(fence[1:])})
	}
	m.end()
}

// currencyIs requires a currency; none may be missing, null or empty.
func currencyIs(m *message, currency string) {
	m.beginArray("$in")
	if currency == "" {
		m.null("0")
		m.text("1", "")
	} else {
		m.text("0", currency)
	}
	m.end()
}

// balanceTypes requires that a balance is an exact number of a kind.
func balanceTypes(m *message, kind money.Kind) {
	m.beginArray("$type")
	if kind == money.Decimal {
		m.text("0", "decimal")
	} else {
		m.text("0", "int")
		m.text("1", "long")
	}
	m.end()
}

// floorIs requires that the stored floor is still the one that a bound was computed with.
func floorIs(m *message, field string, f floor) {
	m.begin(field)
	if f.stored.Type == 0 {
		m.null("$eq")
		m.noArray()
	} else {
		m.equals(f.stored)
	}
	m.end()
}

// exactBalance keeps out a decimal balance with so many digits behind the point that a sum might be rounded. It is the
// operand of $expr.
func exactBalance(field string) (bson.Raw, error) {
	balance := "$" + field
	rounded := bson.D{{Key: "$round", Value: bson.A{balance, money.MaxPlaces}}}
	equal := bson.D{{Key: "$eq", Value: bson.A{balance, rounded}}}
	number := bson.D{{Key: "$isNumber", Value: balance}} // $round fails on anything else
	encoded, err := bson.Marshal(bson.D{{Key: "$cond", Value: bson.A{number, equal, false}}})
	return encoded, err
}
