package transfer

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
)

// newOffline returns a coordinator with the ledgers "" and "eu" whose server is away, and fails the test if it sends a command.
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

// account draws an account's ID, mostly one of a few, and mostly one that can be an ObjectId as well.
func (d *dice) account() string {
	hex := "0123456789abcdefABCDEF%02x"
	switch side := d.roll(16); {
	case side < 10:
		return fmt.Sprintf(hex, side%4)
	case side < 12:
		return strings.ToUpper(fmt.Sprintf(hex, side%4))
	case side == 12:
		return strings.Repeat("é", 126+d.roll(4))
	case side == 13:
		return ""
	}
	return d.text()
}

// currency draws a currency, a few of which are too long or no text.
func (d *dice) currency() string {
	switch d.roll(8) {
	case 5, 6:
		return "EUR"
	case 7:
		return choose(d, "", "\xff", "\x00") + strings.Repeat("€", d.roll(30))
	}
	return ""
}

// request draws a request, in either form. Half of those with legs get one more, which makes the sum zero.
func (d *dice) request() Request {
	req := Request{ID: "order", Currency: d.currency()}
	form := d.roll(8)
	if form <= 1 {
		req.From, req.To, req.Amount = d.account(), d.account(), d.amount()
		return req
	}
	if form == 2 && d.roll(2) == 1 {
		req.ID, req.From = d.text(), d.account()
	}
	var total Amount
	for i := range 1 + d.roll(8) {
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
	}
	return req
}

// payload writes down what a transfer moves, such that two texts are equal exactly if the movements are, and requires that the
// legs keep all the promises of a plan.
func payload(t *testing.T, c *Coordinator, planned document.Transfer) string {
	t.Helper()
	sum := new(big.Rat)
	participants := map[string]bool{}
	lines := make([]string, len(planned.Legs))
	for i, leg := range planned.Legs {
		id, err := document.IDCodec(c.settings.ids).Encode(leg.Account)
		require.NoError(t, err)
		participants[fmt.Sprintf("%q %x", leg.Namespace, id.Value)] = true
		require.Equal(t, c.catalog.Namespace(leg.Ledger), leg.Namespace)
		require.NotZero(t, leg.Amount.Sign())
		require.Equal(t, planned.Legs[0].Amount.Kind(), leg.Amount.Kind())
		require.True(t, leg.Amount.Within(money.Max(leg.Amount.Kind())), leg.Amount)
		require.LessOrEqual(t, leg.Amount.Places(), money.MaxPlaces)
		amount := exactly(t, Amount{leg.Amount})
		sum.Add(sum, amount)
		lines[i] = fmt.Sprintf("%q %x %s", leg.Namespace, id.Value, amount.RatString())
	}
	require.Zero(t, sum.Sign(), "the legs sum to %s", sum)
	require.Len(t, participants, len(planned.Legs), "a participant is named twice")
	require.Greater(t, len(planned.Legs), 1)
	require.LessOrEqual(t, len(planned.Legs), maxLegs)
	slices.Sort(lines)
	return fmt.Sprintf("%q %d %s", planned.Currency, planned.Legs[0].Amount.Kind(), strings.Join(lines, "\n"))
}

func exactly(t *testing.T, a Amount) *big.Rat {
	t.Helper()
	number, ok := new(big.Rat).SetString(a.String())
	require.True(t, ok, a)
	return number
}

// requireNetted requires that a plan moves for each account what the legs of the request add up to.
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

// Any request is refused as invalid before anything is sent, or planned: its legs are netted, sum to zero, keep the limits and name each
// participant once; and two plans have the same digest exactly if they move the same.
func FuzzRequest(f *testing.F) {
	coordinators := []*Coordinator{newOffline(f, StringIDs), newOffline(f, ObjectIDs)}
	f.Add([]byte{}, []byte{}, false)
	for form := range byte(8) {
		for variant := range byte(16) {
			// Three legs of units, or of decimals, the first and the second of them on accounts that are perhaps the same.
			units := []byte{0, variant, 0, 160, 0, 2, 0, 40, 6, 1, 0, 120 + variant, 0}
			decimals := []byte{0, variant, 5, variant, 0, 2, 5, variant % 5, 3, 1, 5, 2, 0}
			for _, legs := range [][]byte{units, decimals} {
				one := append([]byte{variant % 8, form, 2}, legs...)
				f.Add(one, append([]byte{variant % 6, 7, 2}, legs...), variant%2 == 0)
				f.Add(one, one, true)
			}
		}
	}
	f.Fuzz(func(t *testing.T, one, another []byte, objectIDs bool) {
		c := coordinators[0]
		if objectIDs {
			c = coordinators[1]
		}
		first, ok := requirePlan(t, c, (*dice)(&one).request())
		if !ok {
			return
		}
		second, ok := requirePlan(t, c, (*dice)(&another).request())
		if !ok {
			return
		}
		same := payload(t, c, first) == payload(t, c, second)
		require.Equal(t, same, string(first.Digest) == string(second.Digest), "%+v\n%+v", first, second)
	})
}

// requirePlan requires that a request is planned well, or refused, by all who look at requests.
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
	require.Equal(t, byte(plainDigest), planned.Digest[0])
	payload(t, c, planned)
	requireNetted(t, c, req, planned)
	requireSameDigest(t, c, req, planned)
	requireOtherDigest(t, planned)
	return planned, true
}

// requireSameDigest requires that the order of the legs, the digits of an amount and what is no part of the payload make no difference.
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
		again.Legs = append(again.Legs, Leg{Ledger: leg.Ledger, Account: leg.Account, Amount: amount})
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
		return // legs beyond the limit that cancel out may be added up in one order and not in another
	}
	require.NoError(t, err)
	require.Equal(t, planned.Digest, plan.Digest)
}

// requireOtherDigest requires that each part of the payload makes a difference.
func requireOtherDigest(t *testing.T, planned document.Transfer) {
	t.Helper()
	for i := range planned.Legs {
		for name, change := range map[string]func(*document.Leg){
			"account": func(leg *document.Leg) { leg.Account += "x" },
			"ledger":  func(leg *document.Leg) { leg.Ledger += "x" },
			"border":  func(leg *document.Leg) { leg.Ledger, leg.Account = leg.Ledger+leg.Account[:1], leg.Account[1:] },
			"sign":    func(leg *document.Leg) { leg.Amount = leg.Amount.Neg() },
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
	other.Currency = cmp.Or(planned.Currency+"x", "x")
	require.NotEqual(t, planned.Digest, digest(other))
	other = planned
	other.Legs = planned.Legs[1:]
	require.NotEqual(t, planned.Digest, digest(other))
}
