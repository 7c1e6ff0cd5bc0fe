package mongostore_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// formCase is an account and an update of it.
type formCase struct {
	id     string
	update *mongostore.MergedUpdate
	calls  requests
	before bson.Raw
	// plain says that the account is one as the library and its users write them: then
	// both forms do the same.
	plain bool
	// tooLarge says that the server refuses to write it.
	tooLarge bool
	odd      string   // what is not plain, or at its edge
	found    []string // rows of the traces that are not those which the calls need
}

// foundRow is the row of the calls of a kind that find another trace than they need.
func foundRow(kind protocol.Kind, key string) string {
	switch {
	case key == "":
		return fmt.Sprintf("a %s without a trace", kind)
	case strings.HasSuffix(key, "%"):
		return fmt.Sprintf("a %s beside a done mark", kind)
	}
	return fmt.Sprintf("a %s beside a marker", kind)
}

// anyOf draws a value of any type. The values that are wanted in its place stand also
// in arrays and documents.
func (l lottery) anyOf(wanted ...any) any {
	among := []any{nil, bson.Null{}}
	if !l.odds(4) {
		among = []any{
			bson.Null{}, bson.Undefined{}, true, false, int32(0), int32(1), int64(0), int64(60), 0.0, 60.0, math.Copysign(0, -1),
			math.NaN(), math.Inf(1), math.Inf(-1), 1e300, decimal("0"), decimal("-0"), decimal("0E+6000"), decimal("0E-6176"), decimal("NaN"),
			decimal("Infinity"), decimal("-Infinity"), decimal("1E+3"), decimal("1E+6000"), decimal("1E-6176"), decimal("60.0000000000001"),
			decimal("60.000000000000000000"), bson.NewDecimal128(0x6C10000000000000, 1), bson.NewDecimal128(0x3041FFFFFFFFFFFF, 1<<63),
			"", "60", "EUR", bson.Symbol("EUR"), bson.Symbol(""), bson.A{}, bson.A{nil}, bson.A{bson.A{}}, bson.D{}, bson.D{{Key: "a", Value: 1}},
			bson.MinKey{}, bson.MaxKey{}, bson.DateTime(60), bson.Timestamp{}, bson.Timestamp{T: 1, I: 1}, bson.Binary{Data: []byte{1}},
			bson.Binary{Subtype: 2, Data: []byte{1}}, bson.Regex{Pattern: "E", Options: "i"}, bson.ObjectID{}, storetest.Fence0(),
			bson.JavaScript("1"), bson.CodeWithScope{Code: "1", Scope: bson.D{}}, bson.DBPointer{DB: "a.b"}, bson.D{{Key: "$gt", Value: ""}},
			bson.D{{Key: "a.b", Value: 1}, {Key: "", Value: 2}, {Key: "$c", Value: 3}},
		}
	}
	for _, value := range wanted {
		value = orNull(value)
		among = append(among, value, bson.A{value}, bson.A{bson.A{value}}, bson.A{value, value}, bson.D{{Key: "a", Value: value}})
	}
	return pick(l, among...)
}

// kinds returns the amounts of legs of one kind: ordinary ones, and the largest.
func (l lottery) legAmount(kind money.Kind) money.Amount {
	amount := pick(l, money.Units(60), money.Units(1), money.Units(7), money.Max(money.Whole))
	if kind == money.Decimal {
		amount = pick(l, dec("60"), dec("0.000000000001"), dec("0.10"), dec("60.50"), money.Max(money.Decimal))
	}
	if l.odds(2) {
		return amount.Neg()
	}
	return amount
}

// markerIDs returns IDs of transfers, most of them awkward, in an order that is drawn.
func (l lottery) markerIDs() []string {
	ids := slices.Sorted(maps.Keys(storetest.AwkwardIDs()))
	l.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids
}

// drawForm draws an update of an account, and the account.
func (l lottery) drawForm(s *storetest.Rooms, id string) *formCase {
	c := &formCase{id: id, plain: true}
	kind := pick(l, money.Whole, money.Decimal)
	currency := pick(l, "", "", "EUR", "Grüße")
	fence := pick[any](l, nil, storetest.Fence0(), storetest.Fence0(), bson.Timestamp{T: 9, I: 1})
	floor := pick[any](l, nil, nil, bson.MinKey{}, int64(0), int32(-100), int64(-100))
	if kind == money.Decimal {
		floor = pick[any](l, nil, nil, bson.MinKey{}, decimal("0"), decimal("-7.50"), int64(-100))
	}
	prepares, clears := l.IntN(4), l.IntN(4)
	if prepares+clears == 0 {
		prepares = 1
	}
	ids := l.markerIDs()
	for i := range prepares + clears {
		a := formAttempt(s, ids[i], id, currency, l.legAmount(kind))
		*a.Participant(0).Floor() = floorOf(floor)
		c.calls = append(c.calls, &mongostore.Call{Attempt: a, Op: l.drawOperation(a, i < prepares, fence)})
	}
	l.Shuffle(len(c.calls), func(i, j int) { c.calls[i], c.calls[j] = c.calls[j], c.calls[i] })
	c.update = s.Merge(c.calls)[0]
	stored := map[string]any{"fence": fence, "floor": floor, "currency": currency}
	if debits := slices.ContainsFunc(c.calls, takes); !debits && l.odds(2) {
		stored["floor"] = pick[any](l, nil, bson.MinKey{}, int64(5), decimal("5")) // it has changed since, and nothing rests on it
	}
	c.draw(l, stored)
	return c
}

// takes reports whether a call takes money.
func takes(call *mongostore.Call) bool {
	return call.Op.Kind == protocol.Prepare && call.Attempt.Participant(0).Leg().Amount.Sign() < 0
}

// formAttempt returns an attempt with one leg.
func formAttempt(s *storetest.Rooms, transfer, account, currency string, amount money.Amount) *mongostore.Attempt {
	leg := document.Leg{Namespace: s.Namespace(""), Account: account, Amount: amount}
	t := document.Transfer{ID: transfer, Currency: currency}
	if currency != "" && account[len(account)-1]%2 == 0 { // the leg of an exchange
		t.Currency, leg.Currency = "XAU", currency
	}
	t.Legs = []document.Leg{leg}
	a, err := s.NewAttempt(t, "owner")
	if err != nil {
		panic(err)
	}
	return a
}

func floorOf(stored any) document.Floor {
	if stored == nil {
		return document.Floor{}
	}
	return document.FloorOf(encode(bson.D{{Key: "floor", Value: stored}}).Lookup("floor"))
}

// drawOperation draws a prepare, or a pay, settle, clear or undo. Some settles are of a
// part of a hold.
func (l lottery) drawOperation(a *mongostore.Attempt, prepare bool, fence any) protocol.Operation {
	if prepare {
		if fence == nil {
			return storetest.PrepareWith(0, "")
		}
		return storetest.PrepareWith(0, document.FenceOf(encode(bson.D{{Key: "fence", Value: fence}}).Lookup("fence")))
	}
	kind := pick(l, protocol.Pay, protocol.Settle, protocol.Clear, protocol.Undo)
	if kind == protocol.Settle && l.odds(4) {
		part := money.Units(1)
		if a.Participant(0).Leg().Amount.Kind() == money.Decimal {
			part = dec("0.000000000001")
		}
		a.Transfer.Posted = &part
	}
	return storetest.At(kind, 0)
}

// draw draws the account. In two out of three, one of its fields is not as it should be.
func (c *formCase) draw(l lottery, given map[string]any) {
	odd := ""
	if !l.odds(3) {
		odd = pick(l, "balance", "balance", "pending", "pending", "fence", "floor", "currency", "closed", "frozen", "twice")
	}
	fields := bson.D{}
	add := func(name string, value any) {
		if value != nil {
			fields = append(fields, bson.E{Key: name, Value: value})
		}
	}
	for _, name := range []string{"fence", "floor", "currency", "closed", "frozen"} {
		value := given[name]
		switch {
		case odd == name:
			c.plain = false
			value = l.anyOf(value)
		case name == "closed", name == "frozen":
			value = pick[any](l, nil, nil, nil, nil, nil, false, true)
		case name == "currency" && value == "" && l.odds(2):
			value = nil
		}
		add(name, value)
	}
	balance, within := l.edge(c.update.Bounds())
	c.plain = c.plain && (within || c.update.Shape().Prepares)
	if odd == "balance" {
		c.plain = false
		balance = l.anyOf(balance)
	}
	add("balance", balance)
	add("pending", c.drawPending(l, odd == "pending"))
	fields = append(fields, c.drawOthers(l)...)
	l.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	if odd == "twice" {
		c.plain = false
		fields = repeat(l, fields)
	}
	c.odd = odd
	c.before = encode(append(bson.D{{Key: "_id", Value: c.id}}, fields...))
}

// edge draws a balance within bounds, or at their edges, or beyond.
func (l lottery) edge(bounds document.Bounds) (balance any, within bool) {
	zero := money.Zero(bounds.Low.Kind())
	at := pick(l, bounds.Low, bounds.High, zero, zero)
	step := money.Units(int64(l.IntN(5) - 2))
	if at.Kind() == money.Decimal {
		step = pick(l, step.Decimal(), dec("0.000000000001"), dec("-0.000000000001"), dec("1.50"))
	}
	if l.odds(3) {
		step = money.Units(1 << 20)
		if at.Kind() == money.Decimal {
			step = dec("1000000.00")
		}
	}
	sum, err := at.Add(step)
	if err != nil {
		sum = at
	}
	within = sum.Cmp(bounds.Low) >= 0 && sum.Cmp(bounds.High) <= 0
	if n, ok := sum.Whole(); ok && n == int64(int32(n)) && l.odds(2) {
		return int32(n), within
	}
	return sum.Value(), within
}

// traceOf draws the trace that a call finds, "" if there is none: the one that it
// removes, or none where it prepares. Sometimes it is another one: it is not known
// whether the call, or a pay, was done before.
func (l lottery) traceOf(call *mongostore.Call) (key string, asExpected bool) {
	id := call.Attempt.Transfer.ID
	marker, done := document.MarkerKey(id), document.DoneKey(id)
	switch call.Op.Kind {
	case protocol.Prepare:
	case protocol.Clear:
		key = done
	default:
		key = marker
	}
	if !l.odds(12) {
		return key, true
	}
	found := pick(l, "", marker, done)
	return found, found == key
}

// drawPending draws the map of traces: those that the calls find, and some of others.
func (c *formCase) drawPending(l lottery, odd bool) any {
	markers := bson.D{}
	for _, call := range c.calls {
		key, asExpected := l.traceOf(call)
		if !asExpected {
			c.found = append(c.found, foundRow(call.Op.Kind, key))
		}
		if key != "" {
			markers = append(markers, bson.E{Key: key, Value: call.Attempt.Participant(0).Leg().Amount})
		}
	}
	for i := range l.IntN(3) {
		other := pick(l, "x", "y y", "%2E", "é") + strings.Repeat("z", i+1)
		other += pick(l, "", "", "%") // a done mark
		markers = append(markers, bson.E{Key: other, Value: pick[any](l, int64(5), decimal("-0.50"))})
	}
	if odd {
		c.plain = false
		own := c.calls[0].Attempt.Transfer.ID
		other := pick(l, "a.b", "$x", "", "0", "x", "$gt", "_id", "\u00e9", "%", "x%%", document.MarkerKey(own), document.DoneKey(own))
		markers = append(markers, bson.E{Key: other, Value: orNull(l.anyOf())})
		if l.odds(2) {
			return l.anyOf(markers)
		}
	}
	l.Shuffle(len(markers), func(i, j int) { markers[i], markers[j] = markers[j], markers[i] })
	if len(markers) == 0 && l.odds(2) {
		return nil
	}
	return markers
}

// drawOthers draws the user's own fields, whose names may look like paths and operators.
func (c *formCase) drawOthers(l lottery) bson.D {
	var others bson.D
	key := document.MarkerKey(c.calls[0].Attempt.Transfer.ID)
	for range l.IntN(4) {
		name := pick(l, "note", "note", "a.b", "$x", "$set", "", "0", "balance.x", "pending.x", "pending."+key, ".", "$", "..", "$$ROOT", "$id",
			"a\u0301", "%")
		list := bson.A{bson.D{{Key: "$ref", Value: 1}}, bson.Timestamp{}}
		value := pick[any](l, "kept", l.anyOf(), l.anyOf(),
			bson.D{{Key: "x.y", Value: 1}, {Key: "$z", Value: bson.MinKey{}}, {Key: "", Value: list}},
			bson.D{{Key: "twice", Value: 1}, {Key: "twice", Value: 2}})
		if !slices.ContainsFunc(others, func(e bson.E) bool { return e.Key == name }) {
			others = append(others, bson.E{Key: name, Value: orNull(value)})
		}
	}
	return others
}

func orNull(value any) any {
	if value == nil {
		return bson.Null{}
	}
	return value
}

// repeat lets a name stand twice: that of a field, or of a marker.
func repeat(l lottery, fields bson.D) bson.D {
	at := l.IntN(len(fields))
	again := bson.E{Key: fields[at].Key, Value: pick(l, fields[at].Value, orNull(l.anyOf(fields[at].Value)))}
	for i, field := range fields {
		markers, is := field.Value.(bson.D)
		if is && field.Key == "pending" && len(markers) > 0 && l.odds(2) {
			fields[i].Value = repeat(l, markers)
			return fields
		}
	}
	return slices.Insert(fields, l.IntN(len(fields)+1), again)
}
