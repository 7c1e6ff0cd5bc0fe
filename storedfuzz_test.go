package transfer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// answerLimit is how long a call on a healthy server may take.
// A longer one counts as hanging.
const answerLimit = 20 * time.Second

// vault is a database whose documents are stored by hand.
type vault struct {
	db    *mongo.Database
	count atomic.Int64 // counts the names
}

func newVault(f *testing.F) *vault {
	f.Helper()
	v := &vault{db: mongotest.Database(f)}
	c, err := NewCoordinator(v.db)
	require.NoError(f, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(f, c.Setup(ctx))
	return v
}

// coordinator returns a coordinator that knows nothing about earlier inputs.
// It stops working at the end of the input, and answers once nothing is left to be done.
func (v *vault) coordinator(t *testing.T, opts ...Option) *Coordinator {
	t.Helper()
	c, err := NewCoordinator(v.db, append([]Option{WithReturnAt(AtSuccess)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Close(now)
	})
	return c
}

// name returns an ID that no document of this database has.
func (v *vault) name(kind string) string { return fmt.Sprintf("%s-%d", kind, v.count.Add(1)) }

// store stores a document until the end of the input, and reports whether the server took
// it.
func (v *vault) store(t *testing.T, collection string, document bson.D) bool {
	t.Helper()
	c := v.db.Collection(collection)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
		defer cancel()
		_, err := c.DeleteOne(ctx, bson.D{document[0]})
		require.NoError(t, err)
	})
	_, err := c.InsertOne(t.Context(), document)
	return err == nil
}

func (v *vault) raw(t *testing.T, collection, id string) bson.Raw {
	t.Helper()
	document, err := v.db.Collection(collection).FindOne(t.Context(), bson.D{{Key: "_id", Value: id}}).Raw()
	require.NoError(t, err)
	return document
}

// storedAccount draws an account's document.
// Each field is sane, missing, a number, or anything.
func (d *dice) storedAccount(id string, kind money.Kind, currency string) bson.D {
	document := bson.D{{Key: "_id", Value: id}}
	balances := []any{int64(1000), int32(1000), int64(1) << 49}
	if kind == money.Decimal {
		balances = []any{storetest.Decimal("1000.00"), storetest.Decimal("1E+3"), storetest.Decimal("2000000000000000000"),
			storetest.Decimal("999999999999999999.9999999999999999")} // some sums with these are rounded
	}
	for _, field := range []struct {
		name string
		sane any
	}{
		{"balance", choose(d, balances...)}, {"pending", bson.D{}}, {"fence", bson.ObjectID{7}}, {"floor", int64(0)},
		{"currency", currency}, {"closed", false},
	} {
		value := field.sane
		switch d.Roll(8) {
		case 4:
			continue
		case 5:
			value = d.Number()
		case 6, 7:
			value = d.Value(2)
		}
		document = append(document, bson.E{Key: field.name, Value: value})
	}
	return document
}

// richAccount returns an account that can pay any amount of a kind, and has room for any.
func richAccount(id string, kind money.Kind, currency string) bson.D {
	document := bson.D{{Key: "_id", Value: id}, {Key: "balance", Value: int64(1) << 50}, {Key: "floor", Value: bson.MinKey{}}}
	if kind == money.Decimal {
		document[1].Value = storetest.Decimal("5000000000000000000.000000000001")
	}
	if currency != "" {
		document = append(document, bson.E{Key: "currency", Value: currency})
	}
	return document
}

// exactBalance reads a stored balance, which must be an amount.
func exactBalance(t *testing.T, document bson.Raw) *big.Rat {
	t.Helper()
	amount, err := money.FromBSON(document.Lookup("balance"))
	require.NoError(t, err, "the balance of %s", document)
	return exactly(t, Amount{amount})
}

// rest returns a document without its fence, without an empty map of markers, and without
// the named fields.
func rest(t *testing.T, document bson.Raw, without ...string) bson.D {
	t.Helper()
	elements, err := document.Elements()
	require.NoError(t, err)
	var kept bson.D
	for _, e := range elements {
		pending, isMap := e.Value().DocumentOK()
		noMarkers := e.Key() == "pending" && isMap && len(pending) == 5
		if e.Key() == "fence" || noMarkers || len(without) > 0 && e.Key() == without[0] {
			continue
		}
		kept = append(kept, bson.E{Key: e.Key(), Value: e.Value()})
	}
	return kept
}

// Whatever is stored in an account, a transfer with it either moves exactly its amount,
// or is refused and leaves the document as it was.
// It always comes to an end, and never leaves a marker, unless the account can't be
// written and an answer was lost.
func FuzzStoredAccount(f *testing.F) {
	v := newVault(f)
	f.Add([]byte{})
	for field := range 6 {
		for kind := range byte(8) {
			for amount := range byte(2) {
				input := []byte{2 * amount, 0, kind % 3, 0, 0, 0, 0, 0, 0}
				input[3+field] = 7
				f.Add(append(input[:4+field], kind, kind+amount, kind, amount, 3, 5))
			}
		}
	}
	for amount := range byte(6) {
		f.Add([]byte{amount, 0, 3, 0, 0, 0, 0, 0, 0, 0}) // first out of the longest decimal
		f.Add([]byte{amount, 0, 3, 0, 0, 0, 0, 0, 0, 1}) // first into it
	}
	tooLong := []byte{2, 0, 0, 5, 4} // the server takes a coefficient of 35 digits for zero
	tooLong = binary.LittleEndian.AppendUint64(tooLong, (6176-20)<<49|0x1ed09bead87c0)
	f.Add(binary.LittleEndian.AppendUint64(tooLong, 0x378d8e6400000000))
	f.Fuzz(func(t *testing.T, data []byte) {
		d := &dice{data}
		amount := choose(d, Units(60), Units(1<<48), Amount{money.Units(60).Decimal()}, Amount{money.Max(money.Decimal)},
			Units(1), leastDecimal(t))
		currency := choose(d, "", "", "EUR")
		odd, rich := v.name("odd"), v.name("rich")
		if !v.store(t, "accounts", d.storedAccount(odd, amount.exact.Kind(), currency)) {
			return
		}
		require.True(t, v.store(t, "accounts", richAccount(rich, amount.exact.Kind(), currency)))
		c := v.coordinator(t)
		ways := [][2]string{{odd, rich}, {rich, odd}}
		if d.Roll(2) == 1 {
			slices.Reverse(ways)
		}
		for _, way := range ways {
			req := Request{ID: v.name("transfer"), From: way[0], To: way[1], Amount: amount, Currency: currency}
			v.requireTrueAnswer(t, c, req, odd)
		}
	})
}

// requireTrueAnswer runs a transfer and requires that the documents agree with its
// outcome.
func (v *vault) requireTrueAnswer(t *testing.T, c *Coordinator, req Request, odd string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerLimit)
	defer cancel()
	before := map[string]bson.Raw{req.From: v.raw(t, "accounts", req.From), req.To: v.raw(t, "accounts", req.To)}
	rec, err := c.Transfer(ctx, req)
	var refused *RefusedError
	switch {
	case !errors.As(err, &refused):
		require.NoError(t, err, "%s", before[odd])
		require.Equal(t, StateSuccess, rec.State)
	case rec.Stuck != nil: // a prepare of something unwritable was sent again on a busy machine
		require.Equal(t, StateRollback, rec.State)
		require.ErrorIs(t, err, ErrUnwritable)
		require.Equal(t, odd, rec.Stuck.Account)
		require.Equal(t, before[odd], v.raw(t, "accounts", odd))
		return
	default:
		require.Equal(t, StateFail, rec.State)
		require.Equal(t, odd, refused.Account)
	}
	t.Logf("%s: %v", before[odd], err)
	moved := exactly(t, req.Amount)
	for id, sign := range map[string]int64{req.From: -1, req.To: 1} {
		after := v.raw(t, "accounts", id)
		if refused != nil {
			require.Equal(t, rest(t, before[id], "balance"), rest(t, after, "balance"), "%v", err)
			if id == odd {
				require.Equal(t, before[id].Lookup("balance"), after.Lookup("balance"))
				continue
			}
			moved = new(big.Rat)
		}
		change := new(big.Rat).Sub(exactBalance(t, after), exactBalance(t, before[id]))
		require.Zero(t, change.Cmp(new(big.Rat).Mul(moved, big.NewRat(sign, 1))), "%s became %s: %v", before[id], after, err)
		require.Equal(t, rest(t, before[id], "balance"), rest(t, after, "balance"))
	}
}

// shortWait limits a call on a transfer that perhaps can't be finished.
const shortWait = 500 * time.Millisecond

// recoverVerb is the throw of the dice for Recover.
const recoverVerb = 5

// leftover is a transfer that another process has left behind, with its accounts.
type leftover struct {
	id       string
	req      Request
	accounts []string
	balances []int64         // before the transfer, all of it
	document bson.D          // the stored transfer
	legs     []document.Leg  // the legs it was meant to have
	marked   map[string]bool // accounts with its marker
	settled  map[string]bool // accounts where its leg has taken effect and the marker is gone
	sound    bool            // the stored document is one that this library could have written
}

// leftover draws a transfer that was left behind in some state, with the markers that may
// exist then, and stores its accounts.
func (v *vault) leftover(t *testing.T, c *Coordinator, d *dice) *leftover {
	t.Helper()
	l := &leftover{
		id: v.name("transfer"), accounts: []string{v.name("a"), v.name("b"), v.name("c")}, balances: []int64{1000, 1000, 1000},
		marked: map[string]bool{}, settled: map[string]bool{}, sound: true,
	}
	l.req = Request{ID: l.id, Legs: []Leg{
		{Account: l.accounts[0], Amount: Units(-60)}, {Account: l.accounts[1], Amount: Units(50)}, {Account: l.accounts[2], Amount: Units(10)},
	}}
	planned, err := c.plan(l.req)
	require.NoError(t, err)
	l.legs = planned.Legs
	state := choose(d, StatePreparing, StateCommitted, StateRollback, StateSuccess, StateFail, StateInitiated)
	for i, leg := range planned.Legs {
		l.storeAccount(t, v, d, state, i, leg)
	}
	now := bson.NewDateTimeFromTime(time.Now().Add(-time.Hour))
	l.document = bson.D{
		{Key: "_id", Value: l.id}, {Key: "state", Value: string(state)}, {Key: "legs", Value: planned.Legs},
		{Key: "digest", Value: planned.Digest}, {Key: "epoch", Value: int64(1)}, {Key: "owner", Value: "another process"},
		{Key: "createdAt", Value: now}, {Key: "lastModified", Value: now}, {Key: "open", Value: true},
	}
	if state.Final() {
		l.document = l.document[:len(l.document)-1]
	}
	if state == StateRollback || state == StateFail {
		l.document = append(l.document, bson.E{Key: "failure", Value: bson.D{{Key: "code", Value: "cancelled"}}})
	}
	return l
}

// storeAccount stores an account as it may be in a state of the transfer.
func (l *leftover) storeAccount(t *testing.T, v *vault, d *dice, state State, i int, leg document.Leg) {
	t.Helper()
	amount, ok := leg.Amount.Value().(int64)
	require.True(t, ok)
	switch state {
	case StatePreparing, StateRollback:
		l.marked[leg.Account] = d.Roll(2) == 0
	case StateCommitted:
		l.marked[leg.Account] = d.Roll(2) == 0
		l.settled[leg.Account] = !l.marked[leg.Account]
	case StateSuccess:
		l.settled[leg.Account] = true
	case StateFail, StateInitiated:
	}
	balance, pending := l.balances[i], bson.D{}
	if l.settled[leg.Account] || l.marked[leg.Account] && amount < 0 {
		balance += amount
	}
	if l.marked[leg.Account] {
		pending = bson.D{{Key: l.id, Value: amount}}
	}
	require.True(t, v.store(t, "accounts", bson.D{
		{Key: "_id", Value: leg.Account}, {Key: "balance", Value: balance}, {Key: "pending", Value: pending},
	}))
}

// damageable returns the fields of a transfer, and some unknown names.
func damageable() []string {
	return []string{"state", "legs", "digest", "epoch", "owner", "createdAt", "lastModified", "open", "failure", "currency", "clean",
		"attempts", "committedAt", "notBefore", "fundsUntil", "postponed", "waiting", "askedNotBefore",
		"metadata", "verified", "State", "Legs", "effects",
		"stuck", "stuckAt", "purgeAt"}
}

// damage changes the stored document: a field, a field of a leg, or the legs as a whole.
func (l *leftover) damage(d *dice) {
	for range d.Roll(4) {
		l.sound = false
		switch kind := d.Roll(8); {
		case kind < 4:
			name := choose(d, damageable()...)
			l.set(name, d.Value(3))
		case kind == 4:
			i := d.Roll(len(l.document)-1) + 1
			l.document = slices.Delete(slices.Clone(l.document), i, i+1)
		default:
			l.damageLeg(d)
		}
	}
}

func (l *leftover) set(name string, value any) {
	i := slices.IndexFunc(l.document, func(e bson.E) bool { return e.Key == name })
	if i < 0 {
		l.document = append(l.document, bson.E{Key: name, Value: value})
		return
	}
	l.document[i].Value = value
}

// damageLeg changes, removes or repeats a leg, or puts it into another currency.
func (l *leftover) damageLeg(d *dice) {
	legs := make([]bson.D, len(l.legs))
	for i, leg := range l.legs {
		legs[i] = bson.D{
			{Key: "ledger", Value: leg.Ledger}, {Key: "ns", Value: leg.Namespace}, {Key: "account", Value: leg.Account},
			{Key: "amount", Value: leg.Amount.Value()},
		}
	}
	i := d.Roll(len(legs))
	switch d.Roll(6) {
	case 5:
		legs[i] = append(legs[i], bson.E{Key: "currency", Value: choose[any](d, "EUR", "", d.Value(1))})
	case 0:
		legs = slices.Delete(legs, i, i+1)
	case 1:
		legs = append(legs, legs[i])
	case 2:
		legs[i][2].Value = choose(d, l.accounts...)
	case 3:
		legs[i][3].Value = d.Number()
	default:
		legs[i][d.Roll(4)].Value = d.Value(1)
	}
	l.set("legs", legs)
}

// Whatever is stored as a transfer, each verb returns an error or the right outcome, in
// time.
// Money moves only as a readable document says: all of its legs or none.
func FuzzStoredTransfer(f *testing.F) {
	v := newVault(f)
	for state := range byte(6) {
		begin := []byte{state / 3, state, 0, 1, 0} // the policy, the state, the markers
		if state == 3 {
			begin = begin[:2] // Success
		}
		f.Add(begin)
		for field := range byte(len(damageable())) {
			f.Add(append(begin[:len(begin):len(begin)], 1, 0, field, field+state, field, 2, state, 0, 5))
		}
		for kind := range byte(6) {
			f.Add(append(begin[:len(begin):len(begin)], 1, 5, state, kind, 0, 7, 2, 5, 4-kind, state))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := &dice{data}
		c := v.coordinator(t, WithStallThreshold(0), WithStallPolicy(choose(d, Resume, RollBack)))
		l := v.leftover(t, c, d)
		l.damage(d)
		if !v.store(t, "transfers", l.document) {
			return
		}
		t.Logf("%v", v.raw(t, "transfers", l.id))
		for range 1 + d.Roll(3) {
			l.call(t, c, d)
		}
		l.call(t, c, &dice{storetest.Dice{recoverVerb}})
		if l.sound {
			l.requireFinal(t, v, c)
		}
		l.check(t, v)
	})
}

// call calls one verb, which must return in time.
func (l *leftover) call(t *testing.T, c *Coordinator, d *dice) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), shortWait)
	defer cancel()
	begun := time.Now()
	var err error
	verb := choose(d, "Transfer", "Get", "List", "Wait", "Cancel", "Recover")
	switch verb {
	case "Transfer":
		_, err = c.Transfer(ctx, l.req)
	case "Get":
		_, err = c.Get(ctx, l.id)
	case "List":
		for _, err = range c.List(ctx, Query{Account: l.accounts[0]}) {
			t.Logf("List: %v", err)
		}
	case "Wait":
		_, err = c.Wait(ctx, l.id)
	case "Cancel":
		_, err = c.Cancel(ctx, l.id, "")
	case "Recover":
		var report RecoveryReport
		report, err = c.Recover(ctx)
		t.Logf("Recover: %+v", report)
	}
	t.Logf("%s: %v", verb, err)
	require.Less(t, time.Since(begun), answerLimit, "%s does not come back", verb)
}

// check requires that no money was made or lost.
// Each account has its balance from before or after its leg, or a marker that explains
// it.
// Without markers all legs have moved or none.
func (l *leftover) check(t *testing.T, v *vault) {
	t.Helper()
	after := v.raw(t, "transfers", l.id)
	state, _ := after.Lookup("state").StringValueOK()
	moved, unmoved := 0, 0
	for i, leg := range l.legs {
		document := v.raw(t, "accounts", leg.Account)
		change := new(big.Rat).Sub(exactBalance(t, document), big.NewRat(l.balances[i], 1))
		pending, err := document.Lookup("pending").Document().Elements()
		require.NoError(t, err)
		amount := exactly(t, Amount{leg.Amount})
		switch {
		case len(pending) == 1 && (leg.Amount.Sign() < 0 || pending[0].Key() == l.id+"%"): // taken out, or paid in and not cleared
			require.Zero(t, change.Cmp(amount), "%s\n%s", document, after)
		case len(pending) == 1 || change.Sign() == 0 && len(pending) == 0:
			require.Zero(t, change.Sign(), "%s\n%s", document, after)
		default:
			require.Empty(t, pending, "%s\n%s", document, after)
			require.Zero(t, change.Cmp(amount), "%s\n%s", document, after)
		}
		if len(pending) > 0 {
			require.False(t, State(state).Final(), "%s\n%s", document, after)
			require.Equal(t, money.Whole, leg.Amount.Kind())
			continue
		}
		if change.Sign() != 0 {
			moved++
		} else {
			unmoved++
		}
	}
	switch State(state) {
	case StateSuccess:
		require.Equal(t, len(l.legs), moved, "%s", after)
	case StateFail:
		require.Equal(t, len(l.legs), unmoved, "%s", after)
	case StateInitiated, StatePreparing, StateCommitted, StateRollback:
	}
}

// requireFinal requires that recovery finishes the transfer, unless it waits for a
// worker.
func (l *leftover) requireFinal(t *testing.T, v *vault, c *Coordinator) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := c.Recover(t.Context())
		state := State(v.raw(t, "transfers", l.id).Lookup("state").StringValue())
		return err == nil && (state.Final() || state == StateInitiated)
	}, answerLimit, 10*time.Millisecond, "recovery leaves a sound transfer unfinished")
}
