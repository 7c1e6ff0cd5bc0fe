package mongostore_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
	"github.com/mongotransfer/transfer/internal/wire"
)

// filterRow is an account and a prepare of it.
type filterRow struct {
	name     string
	account  bson.M       // the differences from a usable account
	amount   money.Amount // default: a debit of 60
	currency string       // of the transfer
	named    string       // of the leg; "": it names none
	fence    any          // the prepare's fence; default: the account's own
	matches  bool
	facts    protocol.Facts // the facts of a look; Found and Fence are filled in
}

func fit() protocol.Facts {
	return protocol.Facts{Open: true, Unfrozen: true, Currency: true, Kind: true, BelowMarkerLimit: true, Funds: true, WithinLimits: true}
}

func without(remove ...func(*protocol.Facts)) protocol.Facts {
	facts := fit()
	for _, one := range remove {
		one(&facts)
	}
	return facts
}

func notOpen(f *protocol.Facts) { f.Open = false }
func frozen(f *protocol.Facts)  { f.Unfrozen = false }
func foreign(f *protocol.Facts) { f.Currency = false }
func odd(f *protocol.Facts)     { f.Kind = false }
func poor(f *protocol.Facts)    { f.Funds = false }
func crowded(f *protocol.Facts) { f.WithinLimits = false }
func marked(f *protocol.Facts)  { f.Trace = protocol.Reserved }
func settled(f *protocol.Facts) { f.Trace = protocol.Done }

func illegible(f *protocol.Facts) { f.Trace = protocol.Illegible }

func nothing(_ *protocol.Facts) {}
func dec(text string) money.Amount {
	amount, err := money.Parse(text)
	if err != nil {
		panic(err)
	}
	return amount
}
func decimal(text string) bson.Decimal128 {
	d, err := bson.ParseDecimal128(text)
	if err != nil {
		panic(err)
	}
	return d
}

func fenceRows() []filterRow {
	other := bson.ObjectID{9}
	return []filterRow{
		{name: "usable", matches: true, facts: fit()},
		{name: "fence is another one", fence: other, facts: fit()},
		{name: "fence expected, none there", account: bson.M{"fence": nil}, fence: other, facts: fit()},
		{name: "no fence expected, one there", fence: "none", facts: fit()},
		{name: "no fence on either side", account: bson.M{"fence": nil}, matches: true, facts: fit()},
		{name: "fence is null, none expected", account: bson.M{"fence": bson.Null{}}, matches: true, facts: fit()},
		{name: "fence is null, one expected", account: bson.M{"fence": bson.Null{}}, fence: other, facts: fit()},
		{name: "fence is a string", account: bson.M{"fence": "a"}, matches: true, facts: fit()},
		{name: "fence is a string, an ObjectId expected", account: bson.M{"fence": other.Hex()}, fence: other, facts: fit()},
		{name: "fence is another string", account: bson.M{"fence": "a"}, fence: "b", facts: fit()},
		{name: "fence is a document like an operator", account: bson.M{"fence": bson.D{{Key: "$gt", Value: ""}}}, matches: true, facts: fit()},
		{name: "fence is a pattern", account: bson.M{"fence": bson.Regex{Pattern: "^a"}}, matches: true, facts: fit()},
		{name: "fence fits the expected pattern", account: bson.M{"fence": "abc"}, fence: bson.Regex{Pattern: "^a"}, facts: fit()},
		{name: "marker there", account: bson.M{"pending": bson.M{"marker there": int64(-60)}}, facts: without(marked)},
		{name: "marker there, of zero", account: bson.M{"pending": bson.M{"marker there, of zero": int64(0)}}, facts: without(marked)},
		{name: "marker there, null", account: bson.M{"pending": bson.M{"marker there, null": bson.Null{}}}, facts: without(marked)},
		{name: "marker of another", account: bson.M{"pending": bson.M{"marker": int64(-60)}}, matches: true, facts: fit()},
		{name: "done mark there", account: bson.M{"pending": bson.M{"done mark there%": int64(-60)}}, facts: without(settled)},
		{name: "done mark of another", account: bson.M{"pending": bson.M{"marker%": int64(-60)}}, matches: true, facts: fit()},
		{name: "pending is a list", account: bson.M{"pending": bson.A{bson.M{"x": int64(1)}}}, facts: without(odd, illegible)},
		{name: "pending missing", account: bson.M{"pending": nil}, matches: true, facts: fit()},
		{name: "closed", account: bson.M{"closed": true}, facts: without(notOpen)},
		{name: "closed: false", account: bson.M{"closed": false}, matches: true, facts: fit()},
		{name: "closed: null", account: bson.M{"closed": bson.Null{}}, matches: true, facts: fit()},
		{name: "closed: a list with true", account: bson.M{"closed": bson.A{true}}, facts: without(notOpen)},
		{name: "closed: 1", account: bson.M{"closed": 1}, matches: true, facts: fit()},
		{name: "frozen", account: bson.M{"frozen": true}, facts: without(frozen)},
		{name: "frozen: a credit", account: bson.M{"frozen": true}, amount: money.Units(60), facts: without(frozen)},
		{name: "frozen: false", account: bson.M{"frozen": false}, matches: true, facts: fit()},
		{name: "frozen: null", account: bson.M{"frozen": bson.Null{}}, matches: true, facts: fit()},
		{name: "frozen: a list with true", account: bson.M{"frozen": bson.A{true}}, facts: without(frozen)},
		{name: "frozen: 1", account: bson.M{"frozen": 1}, matches: true, facts: fit()},
		{name: "frozen and closed", account: bson.M{"frozen": true, "closed": true}, facts: without(frozen, notOpen)},
	}
}

func currencyRows() []filterRow {
	return []filterRow{
		{name: "currency of the account alone", account: bson.M{"currency": "EUR"}, facts: without(foreign)},
		{name: "currency of the transfer alone", currency: "EUR", facts: without(foreign)},
		{name: "another currency", account: bson.M{"currency": "USD"}, currency: "EUR", facts: without(foreign)},
		{name: "currency in another case", account: bson.M{"currency": "eur"}, currency: "EUR", facts: without(foreign)},
		{name: "same currency", account: bson.M{"currency": "EUR"}, currency: "EUR", matches: true, facts: fit()},
		{name: "currency is empty, as none", account: bson.M{"currency": ""}, matches: true, facts: fit()},
		{name: "currency is null, as none", account: bson.M{"currency": bson.Null{}}, matches: true, facts: fit()},
		{name: "currency is null, EUR wanted", account: bson.M{"currency": bson.Null{}}, currency: "EUR", facts: without(foreign)},
		{name: "currency of the leg", account: bson.M{"currency": "USD"}, currency: "EUR", named: "USD", matches: true, facts: fit()},
		{name: "currency of the leg, none of the transfer", account: bson.M{"currency": "USD"}, named: "USD", matches: true, facts: fit()},
		{
			name: "currency of the transfer, not of the leg", account: bson.M{"currency": "EUR"}, currency: "EUR", named: "USD",
			facts: without(foreign),
		},
		{name: "no currency, one of the leg", named: "USD", facts: without(foreign)},
		{name: "currency is a number", account: bson.M{"currency": 978}, facts: without(foreign)},
		{name: "currency is a list with it", account: bson.M{"currency": bson.A{"EUR", "USD"}}, currency: "EUR", facts: without(foreign)},
		{name: "currency is a list with none", account: bson.M{"currency": bson.A{"", nil}}, facts: without(foreign)},
	}
}

func kindRows() []filterRow {
	row := func(name string, balance any, amount money.Amount) filterRow {
		return filterRow{name: name, account: bson.M{"balance": balance}, amount: amount, facts: without(odd)}
	}
	fits := func(r filterRow) filterRow {
		r.matches, r.facts = true, fit()
		return r
	}
	debit, credit := money.Units(-60), money.Units(60)
	return []filterRow{
		fits(row("int32", int32(100), debit)),
		fits(row("decimal", decimal("100.50"), dec("-60.25"))),
		fits(row("decimal with an exponent", decimal("1E+3"), dec("-60.25"))),
		row("double", 100.0, debit),
		row("double, credit", 100.0, credit),
		row("string", "100", debit),
		row("string, credit", "100", credit),
		row("missing", nil, debit),
		row("missing, credit", nil, credit),
		row("null", bson.Null{}, credit),
		row("list", bson.A{int64(100)}, debit),
		row("list, credit", bson.A{int64(100)}, credit),
		row("decimal, units wanted", decimal("100"), debit),
		row("decimal, units credited", decimal("100"), credit),
		row("units, decimal wanted", int64(100), dec("-60")),
		row("units, decimal credited", int64(100), dec("60")),
		row("string, decimal wanted", "100", dec("-60")),
		row("string, decimal credited", "100", dec("60")),
		row("double, decimal wanted", 100.0, dec("-60")),
		row("double, decimal credited", 100.0, dec("60")),
		row("missing, decimal credited", nil, dec("60")),
		row("null, decimal credited", bson.Null{}, dec("60")),
		row("list, decimal credited", bson.A{decimal("100")}, dec("60")),
		row("document, decimal credited", bson.M{"a": decimal("100")}, dec("60")),
		row("NaN", decimal("NaN"), dec("-60")),
		row("NaN credited", decimal("NaN"), dec("60")),
		row("Infinity", decimal("Infinity"), dec("-60")),
		row("Infinity credited", decimal("Infinity"), dec("60")),
		row("-Infinity credited", decimal("-Infinity"), dec("60")),
		row("double NaN", math.NaN(), debit),
		row("date", bson.DateTime(100), credit),
	}
}

func fundsRows() []filterRow {
	least := -int64(1) << 62
	return rowsOf([]edge{
		{"no floor field, to zero", int64(60), nil, money.Units(-60), nothing},
		{"no floor field, below zero by 1", int64(59), nil, money.Units(-60), poor},
		{"floor is null, to zero", int64(60), bson.Null{}, money.Units(-60), nothing},
		{"floor is null, below by 1", int64(59), bson.Null{}, money.Units(-60), poor},
		{"positive floor", int64(70), int64(10), money.Units(-60), nothing},
		{"positive floor, below by 1", int64(69), int64(10), money.Units(-60), poor},
		{"negative floor", int64(-40), int32(-100), money.Units(-60), nothing},
		{"negative floor, below by 1", int64(-41), int32(-100), money.Units(-60), poor},
		{"decimal floor", decimal("60.51"), decimal("0.5"), dec("-60.01"), nothing},
		{"decimal floor, below by the least", decimal("60.509999999999"), decimal("0.5"), dec("-60.01"), poor},
		{"whole floor, decimal balance", decimal("60.01"), int64(-5), dec("-65.01"), nothing},
		{"whole floor, decimal balance, below by the least", decimal("60.009999999999"), int64(-5), dec("-65.01"), poor},
		{"decimal floor, whole balance", int64(100), decimal("0"), money.Units(-60), odd},
		{"floor is a double", int64(100), 0.0, money.Units(-60), odd},
		{"floor is a string", int64(100), "0", money.Units(-60), odd},
		{"floor is NaN", decimal("100"), decimal("NaN"), dec("-60"), odd},
		{"floor is -Infinity", decimal("100"), decimal("-Infinity"), dec("-60"), odd},
		{"floor is a list", int64(100), bson.A{int64(0)}, money.Units(-60), odd},
		{"a credit does not ask for the floor", int64(-100), "0", money.Units(60), nothing},
		{"no floor, to the limit", least + 60, bson.MinKey{}, money.Units(-60), nothing},
		{"no floor, past the limit by 1", least + 59, bson.MinKey{}, money.Units(-60), poor},
		{"no floor, decimal, to the limit", decimal("-999999999999999999998.999999999999"), bson.MinKey{}, dec("-1"), nothing},
		{"no floor, decimal, past it", decimal("-999999999999999999999"), bson.MinKey{}, dec("-1"), poor},
		{"floor below the limit, past the limit", least + 59, int64(math.MinInt64), money.Units(-60), poor},
		{"floor of the largest number", int64(math.MaxInt64), int64(math.MaxInt64), money.Units(-60), poor},
		{"decimal floor of the largest number", decimal("1"), decimal("9999999999999999999999999999999999"), dec("-1"), poor},
		{"floor of too many places", decimal("2000000"), decimal("1E-30"), dec("-1000000"), odd},
		{"more places than allowed", decimal("100.0000000000001"), nil, dec("-1"), odd},
		{"more places than allowed, credit", decimal("100.0000000000001"), nil, dec("1"), odd},
		{"much less than allowed", decimal("1E-30"), nil, dec("1"), odd},
		{"most places", decimal("-1E-12"), nil, dec("1"), nothing},
		{"zeros behind the allowed places", decimal("100.000000000000000"), nil, dec("-1"), nothing},
		{"zero with a large exponent", decimal("0E+6000"), nil, dec("1"), nothing},
		{"zero with a small exponent", decimal("0E-6000"), nil, dec("1"), nothing},
		{"largest units amount", int64(1) << 48, nil, money.Units(-(1 << 48)), nothing},
	})
}

func limitRows() []filterRow {
	most := int64(1) << 62
	return rowsOf([]edge{
		{"room for a credit", most - 60, nil, money.Units(60), nothing},
		{"no room for a credit", most - 59, nil, money.Units(60), crowded},
		{"beyond the limit, credit", int64(math.MaxInt64), nil, money.Units(1), crowded},
		{"below the limit, credit", int64(math.MinInt64), nil, money.Units(1), crowded},
		{"beyond the limit, debit", most + 1, nil, money.Units(-60), nothing},
		{"as far beyond as possible, debit", int64(math.MaxInt64), nil, money.Units(-60), nothing},
		{"at the limit, debit", most, nil, money.Units(-60), nothing},
		{"room for a decimal credit", decimal("999999999999999999998.999999999999"), nil, dec("1"), nothing},
		{"no room for a decimal credit", decimal("999999999999999999999"), nil, dec("1"), crowded},
		{"10^21, credit", decimal("1E+21"), nil, dec("1"), crowded},
		{"10^21, debit", decimal("1E+21"), nil, dec("-1"), nothing},
		{"all digits, debit", decimal("9999999999999999999999.999999999999"), nil, dec("-1"), nothing},
		{"too large for all places, debit", decimal("1E+22"), nil, dec("-1"), crowded},
	})
}

// edge is an account whose balance or floor is at the edge of what an amount needs.
type edge struct {
	name           string
	balance, floor any
	amount         money.Amount
	facts          func(*protocol.Facts)
}

func rowsOf(edges []edge) []filterRow {
	rows := make([]filterRow, len(edges))
	for i, e := range edges {
		rows[i] = filterRow{
			name: e.name, account: bson.M{"balance": e.balance, "floor": e.floor}, amount: e.amount, facts: without(e.facts),
		}
		rows[i].matches = rows[i].facts == fit()
	}
	return rows
}

// A prepare matches exactly the accounts that can take part, and doesn't change the
// others.
// A look shows why.
func TestPrepareMatchesWhatCanTakePart(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for _, rows := range [][]filterRow{fenceRows(), currencyRows(), kindRows(), fundsRows(), limitRows()} {
		for _, row := range rows {
			t.Run(row.name, func(t *testing.T) { b.with(t).sendRow(row) })
		}
	}
}

// with returns the same bank for a subtest.
func (b *bank) with(t *testing.T) *bank {
	sub := *b
	sub.T = t
	return &sub
}

// sendRow sends the prepare of a row and checks the answer, the document and the look.
func (b *bank) sendRow(row filterRow) {
	amount := row.amount
	if amount.Sign() == 0 {
		amount = money.Units(-60)
	}
	b.Put(storetest.Account(row.name, row.account))
	before := b.Raw("accounts", row.name)
	leg := b.LegIn("", row.name, amount)
	leg.Currency = row.named
	a := b.Attempt(row.name, leg)
	a.Transfer.Currency = row.currency
	require.Equal(b.T, protocol.Applied, b.On(a, storetest.Claim(protocol.Insert)).Result)

	op := b.Ready(a)[0]
	row.facts.Found, row.facts.Fence = true, op.Fence
	switch row.fence {
	case nil:
	case "none":
		op.Fence = ""
	default:
		value := wire.RawValue(row.fence)
		op.Fence = protocol.Fence(append([]byte{byte(value.Type)}, value.Value...))
	}
	answer := b.On(a, op)
	if row.matches {
		require.Equal(b.T, protocol.Applied, answer.Result, a.Cause)
		b.checkPrepared(before, row.name, amount)
		look := b.On(a, storetest.At(protocol.Look, 0))
		require.Equal(b.T, protocol.Applied, look.Result)
		assert.NotEqual(b.T, protocol.NoTrace, look.Facts.Trace)
		assert.Equal(b.T, row.facts.Fence, look.Facts.Fence)
		return
	}
	require.Equal(b.T, protocol.NotMatched, answer.Result, a.Cause)
	assert.Equal(b.T, before, b.Raw("accounts", row.name), "a refused prepare has changed something")
	look := b.On(a, storetest.At(protocol.Look, 0))
	require.Equal(b.T, protocol.Applied, look.Result, a.Cause)
	assert.Equal(b.T, row.facts, look.Facts)
}

// checkPrepared requires that the marker was set, a debit was taken off, and nothing else
// has changed.
func (b *bank) checkPrepared(before bson.Raw, id string, amount money.Amount) {
	b.T.Helper()
	want, after := storetest.AsMap(b.T, before), b.Raw("accounts", id)
	pending, _ := want["pending"].(bson.M)
	if pending == nil {
		pending = bson.M{}
	}
	pending[id], want["pending"] = amount.Value(), pending
	if amount.Sign() < 0 {
		sum, err := mustAmount(b.T, before.Lookup("balance")).Add(amount)
		require.NoError(b.T, err)
		assert.Zero(b.T, sum.Cmp(mustAmount(b.T, after.Lookup("balance"))))
		want["balance"] = storetest.AsMap(b.T, after)["balance"]
	}
	b.Has("accounts", want)
}

func mustAmount(t *testing.T, value bson.RawValue) money.Amount {
	t.Helper()
	amount, err := money.FromBSON(value)
	require.NoError(t, err)
	return amount
}

// A missing account is not matched and not created, and a look reports it as missing.
func TestPrepareDoesNotCreateAnAccount(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	a := b.Claimed("order", b.Leg("nobody", 60))
	for _, fence := range []protocol.Fence{"", protocol.Fence(append([]byte{byte(bson.TypeObjectID)}, make([]byte, 12)...))} {
		assert.Equal(t, protocol.NotMatched, b.On(a, storetest.PrepareWith(0, fence)).Result)
	}
	look := b.On(a, storetest.At(protocol.Look, 0))
	assert.Equal(t, protocol.Answer{Result: protocol.Applied}, look)
	assert.Nil(t, b.Raw("accounts", "nobody"))
}

// A floor that was raised after the fence was read holds: the prepare is refused until a
// look has read it.
// A lowered floor costs the same look, and counts from then on.
func TestPrepareRequiresTheFloorThatWasRead(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for i, row := range []struct {
		read, now any
		then      protocol.Result
	}{
		{nil, int64(50), protocol.NotMatched},
		{int64(0), int64(50), protocol.NotMatched},
		{bson.MinKey{}, int64(50), protocol.NotMatched},
		{int64(50), nil, protocol.Applied},
		{int64(50), bson.Null{}, protocol.Applied},
		{int64(50), int64(-50), protocol.Applied},
		{int64(50), bson.MinKey{}, protocol.Applied},
		{nil, bson.MinKey{}, protocol.Applied},
	} {
		id := fmt.Sprintf("account %d", i)
		b.Put(storetest.Account(id, bson.M{"floor": row.read}))
		a := b.Claimed(id, b.Leg(id, -60))
		op := b.Ready(a)[0]
		update := bson.M{"$set": bson.M{"floor": row.now}}
		if row.now == nil {
			update = bson.M{"$unset": bson.M{"floor": ""}}
		}
		b.Change("accounts", id, update)
		before := b.Raw("accounts", id)

		require.Equal(t, protocol.NotMatched, b.On(a, op).Result, "row %d", i)
		require.Equal(t, before, b.Raw("accounts", id))
		look := b.On(a, storetest.At(protocol.Look, 0))
		require.Equal(t, row.then == protocol.Applied, look.Facts.Funds)
		require.Equal(t, op.Fence, look.Facts.Fence)
		require.Equal(t, row.then, b.On(a, op).Result, "row %d", i)
		balance, _ := b.Raw("accounts", id).Lookup("balance").Int64OK()
		if row.then == protocol.Applied {
			assert.EqualValues(t, 40, balance)
		} else {
			assert.EqualValues(t, 100, balance)
		}
	}
}

// Only looks check the limit of transfers in flight. They report a full account, and the
// prepare is not refused.
func TestMarkerLimitIsJudgedByReads(t *testing.T) {
	t.Parallel()
	b := newBank(t, func(c *storetest.Config) { c.MarkerLimit = 2 })
	b.Put(storetest.Account("one", bson.M{"pending": bson.M{"x": int64(1)}}),
		storetest.Account("two", bson.M{"pending": bson.M{"x": int64(1), "y": int64(0)}}))
	a := b.Claimed("order", b.Leg("one", -60), b.Leg("two", 60))
	answers := b.All(a, storetest.At(protocol.ReadFence, 0), storetest.At(protocol.ReadFence, 1))
	for i, free := range []bool{true, false} {
		want := fit()
		want.Found, want.BelowMarkerLimit, want.Fence = true, free, answers[i].Facts.Fence
		assert.Equal(t, want, answers[i].Facts)
		assert.Equal(t, want, b.On(a, storetest.At(protocol.Look, i)).Facts)
		b.Applied(a, storetest.PrepareWith(i, answers[i].Facts.Fence))
	}
}
