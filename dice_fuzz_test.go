package transfer

import (
	"encoding/binary"
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/money"
)

// dice turns the bytes of a fuzzing engine into choices, so that one changed byte changes one choice. When the bytes are used up, each
// choice is the first.
type dice []byte

func (d *dice) roll(sides int) int {
	if len(*d) == 0 {
		return 0
	}
	side := int((*d)[0]) % sides
	*d = (*d)[1:]
	return side
}

func choose[T any](d *dice, values ...T) T { return values[d.roll(len(values))] }

// take returns the next bytes, fewer if there are no more.
func (d *dice) take(n int) []byte {
	n = min(n, len(*d))
	taken := (*d)[:n]
	*d = (*d)[n:]
	return taken
}

func (d *dice) text() string { return string(d.take(d.roll(12))) }

func (d *dice) bits() uint64 {
	var all [8]byte
	copy(all[:], d.take(8))
	return binary.LittleEndian.Uint64(all[:])
}

// number draws what is stored for a number: of any type, near the limits as often as anywhere.
func (d *dice) number() any {
	switch d.roll(6) {
	case 0:
		return int64(d.roll(256) - 100)
	case 1:
		return int32(d.bits())
	case 2:
		return int64(d.bits())
	case 3:
		edge := choose[int64](d, 1<<48, 1<<62, 1<<62-1<<48, math.MaxInt64, math.MinInt64, 1<<31, 0)
		return choose[int64](d, 1, -1)*edge + int64(d.roll(5)) - 2
	case 4:
		return bson.NewDecimal128(d.bits(), d.bits())
	}
	return decimalOf(choose(d, "100", "-0", "12.50", "0.000000000001", "0.0000000000001", "999999999999999999.999999999999", "1E+18", "1E+21",
		"999999999999999999999.999999999999", "9.999999999999999999999999999999999E+20", "NaN", "-Infinity", "5E-13",
		"60.0000000000000000", "-60", "0E+6000"))
}

// value draws a value of any type.
func (d *dice) value(depth int) any {
	switch kind := d.roll(8); {
	case kind < 3:
		return d.number()
	case kind == 3:
		return d.text()
	case kind == 4 && depth > 0:
		list := make(bson.A, d.roll(4))
		for i := range list {
			list[i] = d.value(depth - 1)
		}
		return list
	case kind == 5 && depth > 0:
		document := make(bson.D, d.roll(4))
		for i := range document {
			document[i] = bson.E{Key: choose(d, "t", "other", "$set", "a.b", "", "0", "ns", "amount"), Value: d.value(depth - 1)}
		}
		return document
	case kind == 6:
		return bson.ObjectID(append(make([]byte, 0, 12), "an object id"...))
	}
	return choose[any](d, bson.Null{}, true, false, 5.5, math.NaN(), math.Inf(-1), 100.0, bson.DateTime(5), bson.DateTime(math.MinInt64),
		bson.MinKey{}, bson.MaxKey{}, bson.Regex{Pattern: "("}, bson.Timestamp{T: 1}, bson.Undefined{}, bson.JavaScript("x"), bson.Symbol("EUR"),
		bson.Binary{Data: []byte{1, 2}}, "EUR", "")
}

func decimalOf(text string) bson.Decimal128 {
	decimal, err := bson.ParseDecimal128(text)
	if err != nil {
		panic(err)
	}
	return decimal
}

// amount draws an amount: one that was made by Units, read from a text, or read from the database.
func (d *dice) amount() Amount {
	stored := d.number()
	kind, data, err := bson.MarshalValue(stored)
	if err != nil {
		return Amount{}
	}
	amount, err := money.FromBSON(bson.RawValue{Type: kind, Value: data})
	if err != nil {
		return Units(60)
	}
	return Amount{amount}
}
