package transfer

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// dice draws what is called for, with the methods of storetest's dice and those below.
type dice struct{ storetest.Dice }

func choose[T any](d *dice, values ...T) T { return storetest.Choose(&d.Dice, values...) }

// amount draws an amount that was made by Units, parsed from a text, or read from the
// database.
func (d *dice) amount() Amount {
	stored := d.Number()
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

// newOffline returns a coordinator with the ledgers "" and "eu" whose server is away.
// It fails the test if the coordinator sends a command.
func newOffline(f *testing.F, ids IDCodec) *Coordinator {
	f.Helper()
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		f.Errorf("%s was sent", e.CommandName)
	}}
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:1").SetMonitor(monitor))
	require.NoError(f, err)
	f.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	db := client.Database("bank")
	c, err := NewCoordinator(db, WithAccountIDs(ids), WithLedger("eu", db.Collection("accounts_eu")))
	require.NoError(f, err)
	return c
}

// account draws an account's ID, mostly one of a few, and mostly one that can be an
// ObjectId as well.
func (d *dice) account() string {
	hex := "0123456789abcdefABCDEF%02x"
	switch side := d.Roll(16); {
	case side < 10:
		return fmt.Sprintf(hex, side%4)
	case side < 12:
		return strings.ToUpper(fmt.Sprintf(hex, side%4))
	case side == 12:
		return strings.Repeat("é", 126+d.Roll(4))
	case side == 13:
		return ""
	}
	return d.Text()
}

// currency draws a currency. A few are too long or not text.
func (d *dice) currency() string {
	switch d.Roll(8) {
	case 5, 6:
		return "EUR"
	case 7:
		return choose(d, "", "\xff", "\x00") + strings.Repeat("€", d.Roll(30))
	}
	return ""
}

// request draws a request, in either form.
// Half of the requests with legs get one more leg, which makes the sum zero.
// Some of these get two more in a currency of their own, and some name theirs twice.
func (d *dice) request() Request {
	req := Request{ID: "order", Currency: d.currency()}
	form := d.Roll(8)
	if form <= 1 {
		req.From, req.To, req.Amount = d.account(), d.account(), d.amount()
		return req
	}
	if form == 2 && d.Roll(2) == 1 {
		req.ID, req.From = d.Text(), d.account()
	}
	var total Amount
	for i := range 1 + d.Roll(8) {
		leg := Leg{Ledger: choose(d, "", "", "", "", "", "", "eu", "elsewhere"), Account: d.account(), Amount: d.amount()}
		req.Legs = append(req.Legs, leg)
		if i == 0 {
			total = leg.Amount
		} else if sum, err := total.exact.Add(leg.Amount.exact); err == nil {
			total = Amount{sum}
		}
	}
	if form > 4 {
		req.Legs = append(req.Legs, Leg{Account: d.account(), Amount: total.Neg()})
		d.exchange(&req)
	}
	return req
}

// exchange makes a request with legs an exchange, sometimes.
func (d *dice) exchange(req *Request) {
	if d.Roll(2) == 1 {
		from := Leg{Account: d.account(), Amount: d.amount(), Currency: choose(d, "USD", "EUR", d.currency())}
		to := from
		to.Account, to.Amount = d.account(), from.Amount.Neg()
		req.Legs = append(req.Legs, from, to)
	}
	for i := range req.Legs {
		if req.Legs[i].Currency == "" && d.Roll(4) == 3 {
			req.Legs[i].Currency = req.Currency
		}
	}
}

// payload writes down what a transfer moves, and requires that the legs keep all the
// promises of a plan.
// Two texts are equal exactly if the movements are equal.
func payload(t *testing.T, c *Coordinator, planned document.Transfer) string {
	t.Helper()
	type sum struct {
		kind  money.Kind
		total *big.Rat
	}
	sums := map[string]sum{}
	participants := map[string]bool{}
	lines := make([]string, len(planned.Legs))
	for i, leg := range planned.Legs {
		id, err := document.IDCodec(c.settings.ids).Encode(leg.Account)
		require.NoError(t, err)
		participants[fmt.Sprintf("%q %x", leg.Namespace, id.Value)] = true
		require.Equal(t, c.catalog.Namespace(leg.Ledger), leg.Namespace)
		require.NotZero(t, leg.Amount.Sign())
		currency := planned.CurrencyOf(leg)
		require.True(t, leg.Currency == "" || leg.Currency != planned.Currency, "a currency that is stored twice")
		if _, known := sums[currency]; !known {
			sums[currency] = sum{leg.Amount.Kind(), new(big.Rat)}
		}
		require.Equal(t, sums[currency].kind, leg.Amount.Kind())
		require.True(t, leg.Amount.Within(money.Max(leg.Amount.Kind())), leg.Amount)
		require.LessOrEqual(t, leg.Amount.Places(), money.MaxPlaces)
		amount := exactly(t, Amount{leg.Amount})
		sums[currency].total.Add(sums[currency].total, amount)
		lines[i] = fmt.Sprintf("%q %x %s %d %q", leg.Namespace, id.Value, amount.RatString(), leg.Amount.Kind(), currency)
	}
	for currency, of := range sums {
		require.Zero(t, of.total.Sign(), "the legs in %q sum to %s", currency, of.total)
	}
	require.Len(t, participants, len(planned.Legs), "a participant is named twice")
	require.Greater(t, len(planned.Legs), 1)
	require.LessOrEqual(t, len(planned.Legs), maxLegs)
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func leastDecimal(t *testing.T) Amount {
	t.Helper()
	least, err := ParseDecimal("0.000000000001")
	require.NoError(t, err)
	return least
}

func exactly(t *testing.T, a Amount) *big.Rat {
	t.Helper()
	number, ok := new(big.Rat).SetString(a.String())
	require.True(t, ok, a)
	return number
}

// requireNetted requires that a plan moves for each account the sum of its legs in the
// request.
func requireNetted(t *testing.T, c *Coordinator, req Request, planned document.Transfer) {
	t.Helper()
	want := map[[2]string]*big.Rat{}
	add := func(ledger, account string, amount *big.Rat) {
		key := [2]string{ledger, document.IDCodec(c.settings.ids).Canonical(account)}
		if want[key] == nil {
			want[key] = new(big.Rat)
		}
		want[key].Add(want[key], amount)
	}
	for _, leg := range req.Legs {
		add(leg.Ledger, leg.Account, exactly(t, leg.Amount))
	}
	if req.From != "" {
		add("", req.From, new(big.Rat).Neg(exactly(t, req.Amount)))
		add("", req.To, exactly(t, req.Amount))
	}
	for _, leg := range planned.Legs {
		add(leg.Ledger, leg.Account, new(big.Rat).Neg(exactly(t, Amount{leg.Amount})))
	}
	for key, left := range want {
		require.Zero(t, left.Sign(), "%s of %v is moved by no leg", left, key)
	}
}

// Every request is either refused as invalid before anything is sent, or planned.
// The legs of a plan are netted, sum to zero in each currency, keep the limits and name
// each participant once.
// Two plans have the same digest exactly if they move the same.
func FuzzRequest(f *testing.F) {
	coordinators := []*Coordinator{newOffline(f, StringIDs), newOffline(f, ObjectIDs)}
	f.Add([]byte{}, []byte{}, false)
	for form := range byte(8) {
		for variant := range byte(16) {
			// Three legs of units, or of decimals. The accounts of the first two may be
			// the same.
			units := []byte{0, variant, 0, 160, 0, 2, 0, 40, 6, 1, 0, 120 + variant, 0}
			decimals := []byte{0, variant, 5, variant, 0, 2, 5, variant % 5, 3, 1, 5, 2, 0}
			for _, legs := range [][]byte{units, decimals} {
				one := append([]byte{variant % 8, form, 2}, legs...)
				f.Add(one, append([]byte{variant % 6, 7, 2}, legs...), variant%2 == 0)
				f.Add(one, one, true)
				exchange := slices.Concat(one, []byte{1, 2, 0, 41 + variant, 0, variant % 3, 3, 3, 3, variant})
				f.Add(slices.Concat([]byte{5, 7}, exchange[2:]), exchange, false)
			}
		}
	}
	f.Fuzz(func(t *testing.T, one, another []byte, objectIDs bool) {
		c := coordinators[0]
		if objectIDs {
			c = coordinators[1]
		}
		first, ok := requirePlan(t, c, (&dice{one}).request())
		if !ok {
			return
		}
		second, ok := requirePlan(t, c, (&dice{another}).request())
		if !ok {
			return
		}
		same := payload(t, c, first) == payload(t, c, second)
		require.Equal(t, same, first.Digest.Same(second.Digest), "%+v\n%+v", first, second)
	})
}

// requirePlan requires that a request is planned well, or refused by every method that
// takes requests.
func requirePlan(t *testing.T, c *Coordinator, req Request) (document.Transfer, bool) {
	t.Helper()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	planned, err := c.plan(req)
	_, transferErr := c.Transfer(over, req)
	_, submitErr := c.Submit(over, req)
	if err != nil {
		for _, err := range []error{err, transferErr, submitErr} {
			require.ErrorIs(t, err, ErrInvalidRequest)
		}
		return planned, false
	}
	for _, err := range []error{transferErr, submitErr} {
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, ErrInvalidRequest)
	}
	require.Equal(t, req.ID, planned.ID)
	_, one := planned.OneCurrency()
	require.Equal(t, one, planned.Digest.Sum[0] == plainDigest)
	require.Equal(t, !one, planned.Digest.Sum[0] == exchangeDigest)
	payload(t, c, planned)
	requireNetted(t, c, req, planned)
	requireSameDigest(t, c, req, planned)
	requireOtherDigest(t, planned)
	return planned, true
}

// requireSameDigest requires that the digest depends neither on the order of the legs,
// nor on the digits of an amount, nor on anything outside the payload.
func requireSameDigest(t *testing.T, c *Coordinator, req Request, planned document.Transfer) {
	t.Helper()
	again := Request{ID: req.ID + "2", Currency: req.Currency, Metadata: map[string]any{"a": 1}}
	for _, leg := range planned.Legs {
		amount := Amount{leg.Amount}
		if text := amount.String(); leg.Amount.Kind() == money.Decimal && strings.Contains(text, ".") {
			var err error
			amount, err = ParseDecimal(strings.TrimSuffix(strings.TrimRight(text, "0"), "."))
			require.NoError(t, err)
		}
		again.Legs = append(again.Legs, Leg{
			Ledger: leg.Ledger, Account: leg.Account, Amount: amount, Currency: planned.CurrencyOf(leg),
		})
	}
	slices.Reverse(again.Legs)
	if len(again.ID) > document.MaxIDBytes {
		again.ID = "2"
	}
	plan, err := c.plan(again)
	require.NoError(t, err)
	require.Equal(t, planned.Digest, plan.Digest)

	turned := req
	turned.Legs = slices.Clone(req.Legs)
	slices.Reverse(turned.Legs)
	plan, err = c.plan(turned)
	if slices.ContainsFunc(req.Legs, func(leg Leg) bool { return !leg.Amount.exact.Within(money.Max(leg.Amount.exact.Kind())) }) {
		return // legs beyond the limit that cancel out can be added up in one order and not in another
	}
	require.NoError(t, err)
	require.Equal(t, planned.Digest, plan.Digest)
}

// requireOtherDigest requires that each part of the payload changes the digest.
func requireOtherDigest(t *testing.T, planned document.Transfer) {
	t.Helper()
	for i := range planned.Legs {
		for name, change := range map[string]func(*document.Leg){
			"account": func(leg *document.Leg) { leg.Account += "x" },
			"ledger":  func(leg *document.Leg) { leg.Ledger += "x" },
			"border":  func(leg *document.Leg) { leg.Ledger, leg.Account = leg.Ledger+leg.Account[:1], leg.Account[1:] },
			"sign":    func(leg *document.Leg) { leg.Amount = leg.Amount.Neg() },
			"currency": func(leg *document.Leg) {
				leg.Currency = planned.CurrencyOf(*leg) + "x"
			},
			"kind": func(leg *document.Leg) {
				if leg.Amount = leg.Amount.Decimal(); planned.Legs[i].Amount.Kind() == money.Decimal {
					leg.Amount = money.Units(1)
				}
			},
		} {
			other := planned
			other.Legs = slices.Clone(planned.Legs)
			change(&other.Legs[i])
			require.NotEqual(t, planned.Digest, digest(other), "another %s", name)
		}
	}
	other := planned
	other.Currency = planned.Currency + "x"
	counts := slices.ContainsFunc(planned.Legs, func(leg document.Leg) bool { return leg.Currency == "" })
	require.Equal(t, counts, !planned.Digest.Same(digest(other)), "the currency of the legs that name none")
	other = planned
	other.Legs = planned.Legs[1:]
	require.NotEqual(t, planned.Digest, digest(other))
}

// key draws a key of metadata, mostly one that may be stored.
func (d *dice) key() string {
	if d.Roll(8) < 7 {
		return fmt.Sprintf("key %d", d.Roll(20))
	}
	return choose(d, "", "$set", "a.b", "a\x00b", "\xff", d.Text())
}

// anything draws a Go value. Only some of these can be stored.
func (d *dice) anything(depth int) any {
	type named map[string]any
	type record struct {
		A any `bson:"a,omitempty"`
		B *int
	}
	switch kind := d.Roll(12); {
	case kind < 3:
		return d.Value(depth)
	case kind == 3 && depth > 0:
		return []any{d.anything(depth - 1), d.anything(depth - 1)}
	case kind == 4 && depth > 0:
		return named{d.key(): d.anything(depth - 1), d.key(): d.anything(depth - 1)}
	case kind == 5 && depth > 0:
		return record{A: d.Value(depth - 1)}
	case kind == 6 && depth > 0:
		return map[string]any{d.key(): d.anything(depth - 1)}
	case kind == 7:
		return nested(d.Roll(70))
	case kind == 8:
		return d.amount()
	case kind == 9:
		return strings.Repeat(d.Text(), d.Roll(256)*32)
	}
	return choose[any](d, nil, 5, uint64(math.MaxUint64), uint8(5), d.Text(), []byte{1}, []byte(nil), []any(nil),
		map[string]any(nil), named(nil), (*int)(nil), func() {}, make(chan int), complex(1, 2), time.UnixMilli(5),
		time.Time{}, time.Unix(1<<60, 0), [2]string{"a", "\xff"},
		map[int]string{1: "a"}, map[float64]int{math.NaN(): 1}, map[Amount]int{Units(5): 1}, struct{ a int }{5}, bson.Raw{1, 2, 3},
		bson.RawValue{Type: bson.TypeString, Value: []byte{5}}, bson.RawValue{})
}

// nested returns documents nested to a depth of levels, or a document that holds itself.
func nested(levels int) any {
	if levels == 69 {
		endless := map[string]any{}
		endless["in"] = []any{endless}
		return endless
	}
	var value any = "the innermost"
	for range levels {
		value = map[string]any{"in": value}
	}
	return value
}

// Any metadata is either refused as invalid or stored as a document within the limits.
// The document is always the same, and reads back as what was meant.
func FuzzMetadata(f *testing.F) {
	f.Add([]byte{})
	for kind := range byte(12) {
		for choice := range byte(26) {
			f.Add([]byte{2, 0, 1, kind, choice, 3, 3, 0, 2, 4, choice, kind, 0, 5, 9, kind, choice})
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := &dice{data}
		metadata := map[string]any{}
		for range d.Roll(4) {
			metadata[d.key()] = d.anything(3)
		}
		raw, err := encodeMetadata(metadata)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalidRequest)
			require.Nil(t, raw)
			return
		}
		if len(metadata) == 0 {
			require.Nil(t, raw)
			return
		}
		require.NoError(t, raw.Validate())
		require.LessOrEqual(t, len(raw), maxMetadataBytes)
		require.True(t, utf8.ValidString(raw.String()))
		for range 3 {
			again, err := encodeMetadata(metadata)
			require.NoError(t, err)
			require.Equal(t, raw, again, "the order of a map shows")
		}
		read := decodeMetadata(raw)
		require.Len(t, read, len(metadata))
		for key := range metadata {
			require.Contains(t, read, key)
			require.NotContains(t, key, ".")
		}
		again, err := encodeMetadata(read)
		require.NoError(t, err)
		require.Equal(t, raw, again, "what was read is another thing")
	})
}
