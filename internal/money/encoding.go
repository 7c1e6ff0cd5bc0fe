package money

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// maxStoredExponent bounds the exponent of a number from the database, so that it can be
// written out.
const maxStoredExponent = 64

// decimalDigits is the largest number of digits of a Decimal128.
const decimalDigits = 34

// FromBSON reads an int32, an int64 or a finite Decimal128.
// Anything else, in particular a double, is an error.
func FromBSON(value bson.RawValue) (Amount, error) {
	switch value.Type {
	case bson.TypeInt32:
		if n, ok := value.Int32OK(); ok {
			return Units(int64(n)), nil
		}
	case bson.TypeInt64:
		if n, ok := value.Int64OK(); ok {
			return Units(n), nil
		}
	case bson.TypeDecimal128:
		if d, ok := value.Decimal128OK(); ok {
			return fromDecimal(d)
		}
	default:
		return Amount{}, fmt.Errorf("a value of type %s is no exact amount: store int32, int64 or Decimal128", value.Type)
	}
	return Amount{}, fmt.Errorf("a damaged %s", value.Type)
}

func fromDecimal(d bson.Decimal128) (Amount, error) {
	if n, usual := (Amount{kind: Decimal, decimal: d}).number(); usual && !n.isZero() {
		if amount, fits := n.decimal(); fits {
			return amount, nil
		}
	}
	coefficient, exponent, err := d.BigInt()
	if err != nil {
		return Amount{}, errors.New("NaN and Infinity are no amounts")
	}
	if len(new(big.Int).Abs(coefficient).String()) > decimalDigits {
		// The bits have room for a little more than 34 digits, and the server treats such
		// a number as zero.
		// Read as a number, it would make an account look rich that the server refuses to
		// debit, and a transfer would try again forever.
		return Amount{}, fmt.Errorf("a decimal has at most %d digits", decimalDigits)
	}
	if coefficient.Sign() == 0 {
		// Zero is zero, whatever its exponent.
		exponent = max(-MaxPlaces, min(0, exponent))
	}
	if exponent > maxStoredExponent || exponent < -maxStoredExponent {
		return Amount{}, errors.New("the decimal is out of range")
	}
	return exact(coefficient, exponent)
}

// Value returns the number as it is stored.
func (a Amount) Value() any {
	if a.kind == Whole {
		return a.units
	}
	return a.decimal
}

// Whole returns the number of units, and whether the amount is a number of units.
func (a Amount) Whole() (int64, bool) { return a.units, a.kind == Whole }

// Decimal128 returns the number as it is stored, if it is not a number of units.
func (a Amount) Decimal128() bson.Decimal128 { return a.decimal }

// MarshalBSONValue implements bson.ValueMarshaler.
// It returns an int64 or a Decimal128.
func (a Amount) MarshalBSONValue() (byte, []byte, error) {
	t, data, err := bson.MarshalValue(a.Value())
	return byte(t), data, err
}

// UnmarshalBSONValue implements bson.ValueUnmarshaler for the values that FromBSON reads.
func (a *Amount) UnmarshalBSONValue(t byte, data []byte) error {
	read, err := FromBSON(bson.RawValue{Type: bson.Type(t), Value: data})
	if err != nil {
		return err
	}
	*a = read
	return nil
}

// MarshalText writes units as digits, and decimals always with a point, so that the kinds
// stay distinct.
func (a Amount) MarshalText() ([]byte, error) {
	text := a.String()
	if a.kind == Decimal && !strings.Contains(text, ".") {
		text += ".0"
	}
	return []byte(text), nil
}

// UnmarshalText reads digits as units and a number with a point as a decimal.
func (a *Amount) UnmarshalText(text []byte) error {
	parse := parseUnits
	if strings.Contains(string(text), ".") {
		parse = Parse
	}
	read, err := parse(string(text))
	if err != nil {
		return err
	}
	*a = read
	return nil
}

// MarshalJSON writes units as a number and decimals as a string.
func (a Amount) MarshalJSON() ([]byte, error) {
	if a.kind == Whole {
		return strconv.AppendInt(nil, a.units, 10), nil
	}
	return json.Marshal(a.String())
}

// UnmarshalJSON reads a whole number as units and a string as a decimal.
func (a *Amount) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	read, err := parseJSON(data)
	if err != nil {
		return err
	}
	*a = read
	return nil
}

func parseJSON(data []byte) (Amount, error) {
	if len(data) == 0 || data[0] != '"' {
		return parseUnits(string(data))
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return Amount{}, errors.New("a decimal is written as a string, like \"12.50\"")
	}
	return Parse(text)
}

func parseUnits(text string) (Amount, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return Amount{}, errors.New("no whole number of units (a decimal is written as a string, like \"12.50\")")
	}
	return Units(n), nil
}
