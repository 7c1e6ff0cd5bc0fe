package transfertest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/transfertest"
)

// A refusal that was ordered names both currencies.
func TestFailNamesCurrencies(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.openBank()
	f, ctx := w.fake, t.Context()
	for id, c := range map[string]struct {
		err  error
		want transfer.CurrencyError
		text string
	}{
		"plain": {
			transfer.ErrCurrencyMismatch, transfer.CurrencyError{AccountCurrency: "XTS"},
			`the transfer is in none, the account in "XTS"`,
		},
		"chosen": {
			&transfer.CurrencyError{AccountCurrency: "EUR"}, transfer.CurrencyError{AccountCurrency: "EUR"},
			`the transfer is in none, the account in "EUR"`,
		},
	} {
		f.Fail(id, c.err)
		for range 2 {
			_, err := f.Transfer(ctx, move(id, "alice", "bob", 10))
			var currency *transfer.CurrencyError
			require.ErrorAs(t, err, &currency)
			require.Equal(t, c.want, *currency)
			require.ErrorContains(t, err, c.text)
		}
	}
	exchange := move("exchange", "alice", "bob", 10)
	exchange.Currency = "XTS"
	f.Fail("exchange", transfer.ErrCurrencyMismatch)
	_, err := f.Transfer(ctx, exchange)
	require.ErrorContains(t, err, `the transfer is in "XTS", the account in none`)
	requireBalance(t, f, "alice", 100)
}

// A refusal that was ordered says what is not as required of a document.
func TestFailSaysWhatIsUnmet(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.openBank()
	f, ctx := w.fake, t.Context()
	w.putDocument(bson.D{{Key: "_id", Value: "order"}, {Key: "state", Value: "open"}})
	effect := transfer.Effect{Documents: "orders", ID: "order", Set: bson.D{{Key: "state", Value: "paid"}}}
	required := effect
	required.Require = bson.D{{Key: "state", Value: "open"}}
	for id, c := range map[string]struct {
		err    error
		effect transfer.Effect
		want   transfer.RequirementError
		text   string
	}{
		"missing": {transfer.ErrRequirementFailed, effect, transfer.RequirementError{Missing: true}, "it is missing"},
		"other": {
			transfer.ErrRequirementFailed, required, transfer.RequirementError{Field: "state", Want: "open"},
			`its field "state" has another value`,
		},
		"reserved": {
			&transfer.RequirementError{ReservedBy: "t"}, required, transfer.RequirementError{ReservedBy: "t"}, `transfer "t" has reserved it`,
		},
		"got": {
			&transfer.RequirementError{Field: "state", Want: "open", Got: "sent"}, required,
			transfer.RequirementError{Field: "state", Want: "open", Got: "sent"}, `its field "state" has another value`,
		},
	} {
		f.Fail(id, c.err)
		req := move(id, "alice", "bob", 10)
		req.Effects = []transfer.Effect{c.effect}
		_, err := f.Transfer(ctx, req)
		var first, later *transfer.RequirementError
		require.ErrorAs(t, err, &first)
		require.Equal(t, "orders", first.Documents)
		require.Equal(t, "order", first.ID)
		require.Equal(t, c.want, transfer.RequirementError{
			Field: first.Field, Want: first.Want, Got: first.Got, Missing: first.Missing, ReservedBy: first.ReservedBy,
		})
		require.ErrorContains(t, err, c.text)
		_, again := f.Transfer(ctx, req)
		require.ErrorAs(t, again, &later)
		require.Equal(t, "orders", later.Documents)
		require.Equal(t, "order", later.ID)
		require.EqualError(t, again, err.Error())
	}
	requireBalance(t, f, "alice", 100)
}

// A refusal that was ordered leaves an event, as any refusal does, where the handler has
// that kind.
func TestFailLeavesAnEvent(t *testing.T) {
	t.Parallel()
	for _, kinds := range [][]transfer.EventKind{nil, {transfer.EventFailed}, {transfer.EventHeld, transfer.EventSucceeded}} {
		var got []string
		handle := func(_ context.Context, e transfer.Event) error {
			require.Equal(t, transfer.StateFail, e.Record.State)
			require.Equal(t, e.At, e.Record.LastModified)
			got = append(got, e.ID)
			return nil
		}
		f := transfertest.NewFake(t, transfertest.WithOptions(options(nil)...),
			transfertest.WithEvents(transfer.EventHandler{Handle: handle, Kinds: kinds}))
		openBoth(t, f)
		for _, id := range []string{"pay", "room", "later"} {
			f.Fail(id, transfer.ErrAccountFrozen)
		}
		_, err := f.Transfer(t.Context(), move("pay", "alice", "bob", 1))
		require.ErrorIs(t, err, transfer.ErrAccountFrozen)
		f.Advance(0)
		_, err = f.Hold(t.Context(), move("room", "alice", "bob", 1), time.Hour)
		require.ErrorIs(t, err, transfer.ErrAccountFrozen)
		f.Advance(0)
		submitIn(t, f, time.Minute, move("later", "alice", "bob", 1))
		f.Advance(time.Hour)
		requireState(t, f, "later", transfer.StateFail)
		if len(kinds) == 2 {
			require.Empty(t, got)
			continue
		}
		require.Equal(t, []string{"pay:failed", "room:failed", "later:failed"}, got)
	}
}

// An order that no account or document of the transfer could give fails the test, and the
// transfer is done.
func TestFailOfNobody(t *testing.T) {
	t.Parallel()
	effects := transfer.Request{ID: "t", Effects: []transfer.Effect{{Documents: "orders", ID: "order", Set: bson.D{{Key: "x", Value: 1}}}}}
	for name, c := range map[string]struct {
		order error
		req   transfer.Request
		want  string
	}{
		"no account":  {transfer.ErrInsufficientFunds, effects, "has no account"},
		"no document": {transfer.ErrRequirementFailed, move("t", "alice", "bob", 10), "has no document"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &recorder{}
			r.run(func(tb testing.TB) {
				f := transfertest.NewFake(tb, transfertest.WithDocuments("orders"), transfertest.WithOptions(options(nil)...))
				openBoth(t, f)
				_, err := f.Documents("orders").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "order"}})
				require.NoError(t, err)
				f.Fail("t", c.order)
				_, err = f.Transfer(t.Context(), c.req)
				require.NoError(t, err)
			})
			require.Len(t, r.errors, 1)
			require.Contains(t, r.errors[0], `transfertest: Fail("t") can't be carried out: the transfer `+c.want)
		})
	}
}

// A fake has the collection of its transfers itself: Advance and Fail look there.
func TestTransfersAmongOptions(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	other := transfertest.NewFake(t, transfertest.WithDocuments("x")).Documents("x").Database()
	r.run(func(tb testing.TB) {
		transfertest.NewFake(tb, transfertest.WithOptions(transfer.WithTransfers(other.Collection("other"))))
		require.Fail(t, "the test goes on")
	})
	require.Equal(t, []string{"transfertest: transfer.WithTransfers is no option for WithOptions: a fake has its own collections"}, r.errors)
}

// An effect finds its document by a compound _id, whatever the types of its numbers.
func TestEffectOnACompoundID(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.openBank()
	w.putDocument(bson.D{{Key: "_id", Value: bson.D{{Key: "a", Value: int32(1)}}}})
	req := move("t", "alice", "bob", 10)
	req.Effects = []transfer.Effect{{
		Documents: "orders", ID: bson.D{{Key: "a", Value: int64(1)}}, Set: bson.D{{Key: "paid", Value: true}},
	}}
	_, err := w.fake.Transfer(t.Context(), req)
	require.NoError(t, err)
	requireBalance(t, w.fake, "alice", 90)
	requireBalance(t, w.fake, "bob", 110)
}
