package storetest

import (
	"encoding/binary"
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Dice turns the bytes of a fuzzing engine into choices.
// One changed byte changes one choice. When the bytes are used up, every choice is the
// first.
type Dice []byte

// Roll draws one of so many sides.
func (d *Dice) Roll(sides int) int {
	if len(*d) == 0 {
		return 0
	}
	side := int((*d)[0]) % sides
	*d = (*d)[1:]
	return side
}

// Choose draws one of the values.
func Choose[T any](d *Dice, values ...T) T { return values[d.Roll(len(values))] }

// Take returns the next bytes, fewer if there are no more.
func (d *Dice) Take(n int) []byte {
	n = min(n, len(*d))
	taken := (*d)[:n]
	*d = (*d)[n:]
	return taken
}

// Text draws a short text, which need not be UTF-8.
func (d *Dice) Text() string { return string(d.Take(d.Roll(12))) }

// Bits draws any number.
func (d *Dice) Bits() uint64 {
	var all [8]byte
	copy(all[:], d.Take(8))
	return binary.LittleEndian.Uint64(all[:])
}

// Number draws a stored value in the place of a number.
// It is of any type, and near the limits as often as anywhere.
func (d *Dice) Number() any {
	switch d.Roll(6) {
	case 0:
		return int64(d.Roll(256) - 100)
	case 1:
		return int32(d.Bits())
	case 2:
		return int64(d.Bits())
	case 3:
		edge := Choose[int64](d, 1<<48, 1<<62, 1<<62-1<<48, math.MaxInt64, math.MinInt64, 1<<31, 0)
		return Choose[int64](d, 1, -1)*edge + int64(d.Roll(5)) - 2
	case 4:
		return bson.NewDecimal128(d.Bits(), d.Bits())
	}
	return Decimal(Choose(d, "100", "-0", "12.50", "0.000000000001", "0.0000000000001", "999999999999999999.999999999999", "1E+18", "1E+21",
		"999999999999999999999.999999999999", "9.999999999999999999999999999999999E+20", "NaN", "-Infinity", "5E-13",
		"60.0000000000000000", "-60", "0E+6000"))
}

// Value draws a value of any type.
func (d *Dice) Value(depth int) any {
	switch kind := d.Roll(8); {
	case kind < 3:
		return d.Number()
	case kind == 3:
		return d.Text()
	case kind == 4 && depth > 0:
		list := make(bson.A, d.Roll(4))
		for i := range list {
			list[i] = d.Value(depth - 1)
		}
		return list
	case kind == 5 && depth > 0:
		document := make(bson.D, d.Roll(4))
		for i := range document {
			document[i] = bson.E{Key: Choose(d, "t", "other", "$set", "a.b", "", "0", "ns", "amount"), Value: d.Value(depth - 1)}
		}
		return document
	case kind == 6:
		return bson.ObjectID(append(make([]byte, 0, 12), "an object id"...))
	}
	return Choose[any](d, bson.Null{}, true, false, 5.5, math.NaN(), math.Inf(-1), 100.0, bson.DateTime(5), bson.DateTime(math.MinInt64),
		bson.MinKey{}, bson.MaxKey{}, bson.Regex{Pattern: "("}, bson.Timestamp{T: 1}, bson.Undefined{}, bson.JavaScript("x"), bson.Symbol("EUR"),
		bson.Binary{Data: []byte{1, 2}}, "EUR", "")
}

// Decimal parses a decimal that is one.
func Decimal(text string) bson.Decimal128 {
	decimal, err := bson.ParseDecimal128(text)
	if err != nil {
		panic(err)
	}
	return decimal
}
