package pipeline

import (
	"bytes"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Trial is a read by which a server shows, on accounts that are not stored, that it
// evaluates statements of all shapes as it should: each changes the account that fulfils
// all conditions, and no other one.
type Trial struct {
	// Pipeline is that of an aggregate on any collection. It returns one document.
	Pipeline bson.A
	want     bson.Raw
}

// Trial returns the trial for accounts with the given names of fields.
func (b Bodies) Trial(fields document.Fields) (Trial, error) {
	var want, branches bson.D
	for i, shape := range shapes() {
		stored, changed := samplesOf(fields, shape)
		want = append(want, bson.E{Key: wire.Index(i), Value: changed})
		branches = append(branches, bson.E{Key: wire.Index(i), Value: bson.A{
			bson.D{{Key: "$replaceWith", Value: bson.D{{Key: "samples", Value: bson.D{{Key: "$literal", Value: stored}}}}}},
			bson.D{{Key: "$unwind", Value: "$samples"}},
			bson.D{{Key: "$replaceWith", Value: "$samples"}},
			b.stageFor(shape, len(stored)),
		}})
	}
	encoded, err := bson.Marshal(want)
	return Trial{want: encoded, Pipeline: bson.A{
		bson.D{{Key: "$match", Value: bson.D{{Key: "_id", Value: "trial"}}}},
		// A facet is one document, also where there is none before it.
		bson.D{{Key: "$facet", Value: bson.D{{Key: "none", Value: bson.A{bson.D{{Key: "$limit", Value: 1}}}}}}},
		bson.D{{Key: "$facet", Value: branches}},
	}}, err
}

// stageFor returns the stage of the statement for a number of samples.
func (b Bodies) stageFor(shape Shape, count int) bson.Raw {
	parameters := make([]sampleParameters, count)
	for i := range parameters {
		parameters[i] = sampleParameters{id: wire.RawText(wire.Index(i)), shape: shape}
	}
	m := wire.NewMessage(4 << 10)
	Write(m, b[shape], parameters)
	m.End()
	return bson.Raw(m.Data).Lookup("u", "0").Value
}

// Passed reports whether what an aggregate has returned is as it should be.
func (t Trial) Passed(got []bson.Raw) bool { return len(got) == 1 && bytes.Equal(got[0], t.want) }

// sampleParameters are those of every sample: a debit of 60 is prepared, and a credit of
// 10 is settled, as far as the shape has prepares and removes markers.
type sampleParameters struct {
	id    bson.RawValue
	shape Shape
}

// ID returns the sample's _id.
func (s sampleParameters) ID() bson.RawValue { return s.id }

// WriteParameters writes the parameters.
func (s sampleParameters) WriteParameters(m *wire.Message) {
	m.Amount(Low, s.shape.amount(50))
	m.Amount(High, s.shape.amount(1000))
	m.Amount(Net, s.shape.amount(s.shape.net()))
	writeTexts(m, Removed, "old")
	writeTexts(m, Absent, "new")
	m.Begin(Set)
	m.Amount("new", s.shape.amount(-60))
	m.End()
	m.Text(Fence, "f")
	m.Text(Currency, "EUR")
	m.Flag(Debits, true)
	m.Null(Floor)
}

// net is what a sample's balance changes by.
func (s Shape) net() int64 {
	var net int64
	if s.Prepares {
		net -= 60
	}
	if s.Removes {
		net += 10
	}
	return net
}

func (s Shape) amount(units int64) money.Amount {
	if s.Kind == money.Decimal {
		return money.Units(units).Decimal()
	}
	return money.Units(units)
}

func writeTexts(m *wire.Message, name string, texts ...string) {
	m.BeginArray(name)
	for i, text := range texts {
		m.Text(wire.Index(i), text)
	}
	m.End()
}

// samplesOf returns an account that fulfils all conditions of a shape, and for each
// condition one that doesn't fulfil it, as they are before and after the statement.
func samplesOf(fields document.Fields, shape Shape) (before, after bson.A) {
	number := func(units int64) any { return shape.amount(units).Value() }
	other, old := bson.E{Key: "other", Value: 1}, bson.E{Key: "old", Value: number(10)}
	added := bson.E{Key: "new", Value: number(-60)}
	good := bson.D{
		{Key: "_id", Value: wire.Index(0)}, {Key: fields.Balance, Value: number(100)}, {Key: "user's own", Value: bson.A{1, nil}},
		{Key: fields.Pending, Value: bson.D{other, old}}, {Key: fields.Fence, Value: "f"}, {Key: fields.Currency, Value: "EUR"},
	}
	markers := bson.D{other}
	if !shape.Removes {
		markers = append(markers, old)
	}
	if shape.Sets {
		markers = append(markers, added)
	}
	changed := with(good, fields.Balance, number(100+shape.net()))
	before, after = bson.A{good}, bson.A{with(changed, fields.Pending, markers)}
	bad := func(name string, values ...any) {
		for _, value := range values {
			d := with(with(good, name, value), "_id", wire.Index(len(before)))
			before, after = append(before, d), append(after, d)
		}
	}
	bad(fields.Balance, number(49), number(1001), 100.0, "100", nil, bson.A{number(100)})
	bad(fields.Pending, nil, bson.A{bson.D{other, old}}, "old", bson.D{other, old, other})
	if shape.Removes {
		bad(fields.Pending, bson.D{other})
	}
	if shape.Prepares {
		bad(fields.Pending, bson.D{other, old, added})
		bad(fields.Fence, "g", nil, bson.A{"f"})
		bad(fields.Currency, "USD", nil, bson.A{"EUR"})
		bad(fields.Closed, true, bson.A{true})
		bad(fields.Frozen, true, bson.A{true})
		bad(fields.Floor, number(0))
	}
	if shape.Kind == money.Decimal {
		tiny, _ := bson.ParseDecimal128("100.0000000000001")
		bad(fields.Balance, tiny, bson.NewDecimal128(0x7c00000000000000, 0)) // not a number
	}
	return before, after
}

// with returns a document with one field changed, or added.
func with(d bson.D, name string, value any) bson.D {
	changed := append(bson.D{}, d...)
	for i := range changed {
		if changed[i].Key == name {
			changed[i].Value = value
			return changed
		}
	}
	return append(changed, bson.E{Key: name, Value: value})
}
