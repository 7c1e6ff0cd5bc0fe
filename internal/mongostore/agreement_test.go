package mongostore_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
	"github.com/mongotransfer/transfer/internal/wire"
)

const (
	agreementSeed  = 20240229
	agreementCases = 5000
)

// lottery draws documents and legs that lie close to the conditions of a prepare.
type lottery struct{ *rand.Rand }

func pick[T any](l lottery, values ...T) T { return values[l.IntN(len(values))] }

// odds reports true in one of n draws.
func (l lottery) odds(n int) bool { return l.IntN(n) == 0 }

// amount draws the amount of a leg.
func (l lottery) amount() money.Amount {
	return pick(l, money.Units(-60), money.Units(60), money.Units(-1), money.Units(1), money.Max(money.Whole), money.Max(money.Whole).Neg(),
		dec("-60"), dec("60"), dec("-0.000000000001"), dec("0.10"), money.Max(money.Decimal), money.Max(money.Decimal).Neg())
}

// floor draws a stored floor, nil if there is no floor.
func (l lottery) floor() any {
	if l.odds(2) {
		return pick[any](l, nil, bson.Null{}, int64(0), bson.MinKey{}, int32(-100), int64(50), decimal("0"), decimal("-7.5"))
	}
	return pick[any](l, 0.0, -5.5, "0", true, bson.A{}, bson.A{int64(0)}, bson.A{bson.MinKey{}}, bson.MaxKey{}, bson.M{}, bson.DateTime(0),
		int64(math.MaxInt64), int64(math.MinInt64), int64(1)<<62, -int64(1)<<62, decimal("NaN"), decimal("Infinity"), decimal("-Infinity"),
		decimal("0E+6000"), decimal("1E-6000"), decimal("1.000000000000000000000000000000001"), decimal("1E+21"), math.NaN(), bson.ObjectID{})
}

// balance draws a stored balance, usually one at the edge of what the leg needs.
func (l lottery) balance(p *mongostore.Participant) any {
	if l.odds(4) {
		return pick[any](l, nil, bson.Null{}, 100.0, "100", true, bson.A{}, bson.A{int64(100)}, bson.A{int64(-1), int64(1 << 60)}, bson.M{},
			bson.MinKey{}, bson.MaxKey{}, bson.DateTime(100), bson.Timestamp{T: 1}, math.NaN(), math.Inf(1), decimal("NaN"), decimal("Infinity"),
			decimal("-Infinity"), decimal("1E+6000"), decimal("0E+6000"), decimal("-0"), bson.Regex{Pattern: "1"}, bson.A{decimal("5")},
			int64(math.MaxInt64), int64(math.MinInt64), int32(math.MaxInt32), decimal("1E+21"), decimal("9.999999999999999999999999999999999E+20"),
			decimal("0E-6000"), decimal("5E-13"), decimal("100.0000000000001"), decimal("100.0000000000000000"), decimal("1E+20"),
			decimal("-1E-6176"))
	}
	bounds := p.Bounds()
	edge := pick(l, bounds.Low, bounds.High, money.Units(100), dec("100"), dec("100.5"))
	step := money.Units(int64(l.IntN(3) - 1))
	if edge.Kind() == money.Decimal {
		step = pick(l, step.Decimal(), dec("0.000000000001"), dec("-0.000000000001"))
	}
	sum, err := edge.Add(step)
	if err != nil {
		return edge.Value()
	}
	if n, ok := sum.Value().(int64); ok && n == int64(int32(n)) && l.odds(3) {
		return int32(n)
	}
	return sum.Value()
}

func (l lottery) fence() any {
	return pick[any](l, nil, bson.Null{}, storetest.Fence0(), bson.ObjectID{7}, "a", int32(5), int64(6), 7.5, bson.M{"a": 1},
		bson.D{{Key: "$gt", Value: ""}},
		bson.Regex{Pattern: "a"}, bson.A{nil}, bson.A{"a"}, bson.A{}, bson.MinKey{}, bson.MaxKey{}, true, bson.DateTime(5),
		math.NaN(), bson.Binary{Data: []byte{1}})
}

// document draws an account for a party.
func (l lottery) document(id, key string, p *mongostore.Participant) bson.D {
	document := bson.D{{Key: "_id", Value: id}}
	add := func(name string, value any) {
		if value != nil {
			document = append(document, bson.E{Key: name, Value: value})
		}
	}
	floor := l.floor()
	if floor != nil {
		*p.Floor() = storetest.StandardFields().View(encode(bson.D{{Key: "floor", Value: floor}})).Floor()
	}
	add("floor", floor)
	add("balance", l.balance(p))
	add("fence", l.fence())
	if l.odds(8) {
		add("closed", pick[any](l, true, true, false, bson.Null{}, 1, "true", bson.A{true}, bson.A{false}, bson.A{}, bson.M{}))
	}
	if l.odds(16) {
		add("frozen", pick[any](l, true, true, false, bson.Null{}, 1, "true", bson.A{true}, bson.A{false}, bson.A{}, bson.M{}))
	}
	if l.odds(6) {
		add("currency", pick[any](l, "", "EUR", "EUR", "eur", bson.Null{}, 978, bson.A{"EUR"}, bson.A{""}, bson.A{nil}, bson.A{},
			bson.Symbol("EUR"), bson.M{}))
	}
	if l.odds(3) {
		add("pending", pick[any](l, bson.M{}, bson.M{key: nil}, bson.Null{},
			bson.A{}, bson.A{bson.M{key: int64(1)}}, bson.A{bson.M{"other": 1}}, bson.A{int64(1)}, "text", int64(5), bson.M{key: int64(1)}))
	}
	return document
}

func encode(document any) bson.Raw {
	raw, err := bson.Marshal(document)
	if err != nil {
		panic(err)
	}
	return raw
}

// agreementCase is a document, an attempt at preparing it, and the fence that was read.
type agreementCase struct {
	id     string
	work   *mongostore.Attempt
	before bson.Raw
	facts  protocol.Facts
	fence  protocol.Fence // that the prepare names
}

// The facts of a look agree with the filter of a prepare.
// The prepare matches exactly if the look shows no reason to refuse, no marker, and the
// expected fence.
// Otherwise an execution would prepare and look for ever, or accept what it should
// refuse.
func TestFactsAndFilterAgree(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	l := lottery{rand.New(rand.NewPCG(agreementSeed, 0))}
	cases := make([]*agreementCase, agreementCases)
	documents := make([]bson.D, agreementCases)
	for i := range cases {
		id := fmt.Sprintf("case %d", i)
		c := &agreementCase{id: id, work: b.Attempt(pick(l, id, "7", "a.b", "$x"), b.LegIn("", id, l.amount()))}
		c.work.Transfer.Currency = pick(l, "", "", "", "EUR")
		if l.odds(16) {
			c.work.Transfer.Currency, c.work.Participant(0).Leg().Currency = pick(l, "", "USD"), "EUR"
		}
		documents[i] = l.document(id, document.MarkerKey(c.work.Transfer.ID), c.work.Participant(0))
		*c.work.Participant(0).Floor() = document.Floor{}
		cases[i] = c
	}
	_, err := b.DB.Collection("accounts").InsertMany(t.Context(), documents)
	require.NoError(t, err)

	stored := b.everything("accounts")
	statements := make([]*mongostore.MergedUpdate, len(cases))
	for i, c := range cases {
		c.before = stored[c.id]
		p := c.work.Participant(0)
		c.facts = b.Store.FactsOf(c.work, p, c.before)
		c.fence = c.facts.Fence
		if l.odds(6) {
			c.fence = pick(l, "", protocol.Fence(append([]byte{byte(bson.TypeObjectID)}, make([]byte, 12)...)))
		}
		statements[i] = b.Store.NewMergedUpdate(&mongostore.Call{Attempt: c.work, Op: storetest.PrepareWith(0, c.fence)})
	}
	results := wire.UpdateAll(t.Context(), b.Store.Ledgers[""].Commands, statements).Verdicts
	b.checkAgreement(cases, results)
}

// everything returns all documents of a collection by ID.
func (b *bank) everything(collection string) map[string]bson.Raw {
	b.T.Helper()
	cursor, err := b.DB.Collection(collection).Find(b.T.Context(), bson.M{})
	require.NoError(b.T, err)
	var all []bson.Raw
	require.NoError(b.T, cursor.All(b.T.Context(), &all))
	byID := map[string]bson.Raw{}
	for _, document := range all {
		byID[document.Lookup("_id").StringValue()] = document
	}
	return byID
}

func (b *bank) checkAgreement(cases []*agreementCase, results []wire.Verdict) {
	b.T.Helper()
	after := b.everything("accounts")
	fit, changed, refused := 0, 0, 0
	for i, c := range cases {
		facts := c.facts
		if facts.Trace == protocol.Illegible { // the server finds no trace there, and refuses to set one
			facts.Trace = protocol.NoTrace
		}
		expected := facts == protocol.Facts{
			Found: true, Fence: c.fence, Open: true, Unfrozen: true, Currency: true, Kind: true,
			BelowMarkerLimit: true, Funds: true, WithinLimits: true,
		}
		// The server only reports the total of matches. A matched document has changed,
		// or its change was refused.
		matched := results[i].Result == protocol.Failed || string(after[c.id]) != string(c.before)
		if expected {
			fit++
		}
		if results[i].Result == protocol.Failed {
			refused++
		} else if matched {
			changed++
		}
		if matched != expected || results[i].Result == protocol.Unknown {
			b.T.Errorf("seed %d, %s: %s\nleg %+v, currency %q, fence %q\nfacts %+v, matched %t (%v)", agreementSeed, c.id, c.before,
				*c.work.Participant(0).Leg(), c.work.Transfer.Currency, c.fence, c.facts, matched, results[i].Result)
		}
	}
	// A draw that hardly ever matches proves nothing.
	require.Greater(b.T, fit, agreementCases/10)
	require.Greater(b.T, changed, agreementCases/10)
	require.Positive(b.T, refused)
}
