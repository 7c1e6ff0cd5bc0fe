package conformance

import (
	"math/big"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/money"
)

// coin says which amounts the model's whole numbers stand for.
type coin struct {
	name   string
	kind   money.Kind
	amount func(n int64) money.Amount
	most   int64 // the largest stored balance; 0: more than the model can count
}

// coins returns the kinds of money.
// Among the decimals, cents have digits after the point, and with myriads the model's
// numbers reach the limits of what is stored.
func coins() []coin {
	return []coin{
		{name: "units", kind: money.Whole, amount: money.Units, most: 1 << 62},
		{name: "cents", kind: money.Decimal, amount: func(n int64) money.Amount { return decimal(n, -2) }},
		{name: "myriads", kind: money.Decimal, amount: func(n int64) money.Amount { return decimal(n, 4) }, most: 1e17 - 1},
	}
}

// String names the coin in what rapid reports.
func (c coin) String() string { return c.name }

// limit returns the largest balance for the World.
// If the model can't count that far, it is one that is never reached.
func (c coin) limit() int64 {
	if c.most == 0 {
		return 1 << 62
	}
	return c.most
}

// decimal returns n · 10^exponent.
func decimal(n int64, exponent int) money.Amount {
	number, _ := bson.ParseDecimal128FromBigInt(big.NewInt(n), exponent) // any int64 fits
	amount, err := money.FromBSON(raw(number))
	if err != nil {
		panic(err)
	}
	return amount
}

// raw encodes a value.
func raw(value any) bson.RawValue {
	return encode(bson.D{{Key: "", Value: value}}).Lookup("")
}

func encode(document any) bson.Raw {
	encoded, err := bson.Marshal(document)
	if err != nil {
		panic(err)
	}
	return encoded
}

// dress says how an account's balance and markers are stored.
// In all but the first two the account is of an odd kind.
type dress uint8

const (
	plain      dress = iota
	small            // an int32
	asDouble         // not an exact number
	asText           // which nothing can be added to
	otherKind        // a decimal among units, units among decimals
	inList           // where a condition might look for it
	tooFine          // more digits behind the point than are added exactly
	markerList       // the markers' map is a list
	wrapped          // the markers' map is in a list
)

// stored returns a balance as it is stored.
func (c coin) stored(n int64, d dress) any {
	amount := c.amount(n)
	switch d {
	case plain, markerList, wrapped:
		return amount.Value()
	case small:
		if n == int64(int32(n)) && c.kind == money.Whole {
			return int32(n)
		}
		return amount.Value()
	case asDouble:
		return float64(n)
	case asText:
		return amount.String()
	case otherKind:
		if c.kind == money.Whole {
			return amount.Decimal().Value()
		}
		return n
	case inList:
		return bson.A{amount.Value()}
	case tooFine:
		fine, _ := bson.ParseDecimal128(strconv.FormatInt(n, 10) + ".0000000000001")
		return fine
	}
	return nil
}
