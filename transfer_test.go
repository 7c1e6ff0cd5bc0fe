package transfer_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A transfer takes from one account what it gives to another, and its record says so.
func TestTransferMovesMoney(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 5)
	rec, err := b.Transfer(t.Context(), transfer.Request{
		ID: "order-17", From: "a", To: "b", Amount: transfer.Units(60), Metadata: map[string]any{"order": "17"},
	})
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
	require.Equal(t, []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-60)}, {Account: "b", Amount: transfer.Units(60)},
	}, rec.Legs)
	require.Equal(t, "17", rec.Metadata["order"])
	require.EqualValues(t, 1, rec.Epoch)
	require.Nil(t, rec.Failure)
	stored, err := b.Get(t.Context(), "order-17")
	require.NoError(t, err)
	bank.RequireSame(t, rec, stored)
	require.Equal(t, map[string]int64{"a": 40, "b": 65}, b.Balances())
	b.CheckBooks(bank.Balances(100, 5))
}

// A document {_id, balance} is a complete account, whatever else it holds.
// After a transfer it has gained only the fields that the library owns.
func TestAnyDocumentWithABalanceIsAnAccount(t *testing.T) {
	t.Parallel()
	b := bank.New(t)
	_, err := b.DB.Collection("accounts").InsertMany(t.Context(), []any{
		bson.D{{Key: "_id", Value: "a"}, {Key: "balance", Value: int32(100)}, {Key: "name", Value: "Ann"}},
		bson.D{{Key: "_id", Value: "b"}, {Key: "balance", Value: int64(0)}},
	})
	require.NoError(t, err)
	_, err = b.Transfer(t.Context(), bank.Move("t", "a", "b", 100))
	require.NoError(t, err)
	var a bson.M
	require.NoError(t, b.DB.Collection("accounts").FindOne(t.Context(), bson.D{{Key: "_id", Value: "a"}}).Decode(&a))
	require.Equal(t, "Ann", a["name"])
	require.NotContains(t, a, "fence", "a clean transfer leaves no fence")
	b.CheckBooks(bank.Balances(100, 0))
}

// Every refusal names its account and its reason, is stored as Fail, and moves nothing.
// A repeated request has the same refusal.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		from    bson.D // replaces account a, which has 100
		want    error
		code    string
		balance string
	}{
		{"missing", nil, transfer.ErrAccountNotFound, "accountNotFound", ""},
		{"closed", bson.D{{Key: "closed", Value: true}}, transfer.ErrAccountClosed, "accountClosed", "100"},
		{"frozen", bson.D{{Key: "frozen", Value: true}}, transfer.ErrAccountFrozen, "accountFrozen", "100"},
		{"frozen, of another currency", bson.D{{Key: "frozen", Value: true}, {Key: "currency", Value: "EUR"}},
			transfer.ErrAccountFrozen, "accountFrozen", "100"},
		{"closed and frozen", bson.D{{Key: "closed", Value: true}, {Key: "frozen", Value: true}},
			transfer.ErrAccountClosed, "accountClosed", "100"},
		{"currency", bson.D{{Key: "currency", Value: "EUR"}}, transfer.ErrCurrencyMismatch, "currencyMismatch", "100"},
		{"double", bson.D{{Key: "balance", Value: 100.0}}, transfer.ErrAmountKind, "amountKind", ""},
		{"text", bson.D{{Key: "balance", Value: "100"}}, transfer.ErrAmountKind, "amountKind", ""},
		{"funds", bson.D{{Key: "balance", Value: 59}}, transfer.ErrInsufficientFunds, "insufficientFunds", "59"},
		{"floor", bson.D{{Key: "floor", Value: 41}}, transfer.ErrInsufficientFunds, "insufficientFunds", "100"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t)
			accounts := b.DB.Collection("accounts")
			if c.from != nil {
				document := bson.M{"_id": "a", "balance": int64(100)}
				for _, field := range c.from {
					document[field.Key] = field.Value
				}
				_, err := accounts.InsertOne(t.Context(), document)
				require.NoError(t, err)
			}
			_, err := b.OpenAccount(t.Context(), transfer.Account{ID: "b"})
			require.NoError(t, err)
			before := b.Raw("accounts")

			rec, err := b.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
			b.RequireRefused(rec, err, c.want, c.code)
			var refused *transfer.RefusedError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, "a", refused.Account)
			require.Equal(t, "t", refused.TransferID)
			if c.balance == "" {
				require.Nil(t, refused.Balance)
			} else {
				require.Equal(t, c.balance, refused.Balance.String())
			}

			again, err := b.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
			b.RequireRefused(again, err, c.want, c.code)
			require.Equal(t, rec, again)
			_, err = b.Submit(t.Context(), bank.Move("t", "a", "b", 60))
			require.ErrorIs(t, err, c.want)
			require.Equal(t, before, b.Raw("accounts"), "a refused transfer leaves the documents as they were")
			require.Zero(t, b.Unfinished())
		})
	}
}

// A write that the server refuses is a refusal as well, here by the user's validator.
func TestUnwritableAccount(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	atLeast50OrB := bson.M{"$or": bson.A{bson.M{"balance": bson.M{"$gte": 50}}, bson.M{"_id": "b"}}}
	command := bson.D{{Key: "collMod", Value: "accounts"}, {Key: "validator", Value: atLeast50OrB}}
	require.NoError(t, b.DB.RunCommand(t.Context(), command).Err())
	rec, err := b.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	b.RequireRefused(rec, err, transfer.ErrUnwritable, "unwritable")
	_, err = b.Transfer(t.Context(), bank.Move("u", "a", "b", 50))
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(100, 0))
}

// If several refusals apply, the first in the documented order is reported, and for equal
// ones the first participant.
func TestFirstRefusalIsTold(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 10, 10, 10)
	require.NoError(t, transferAll(b, "c", "a"))
	require.NoError(t, b.CloseAccount(t.Context(), "c"))
	leg := func(account string, units int64) transfer.Leg {
		return transfer.Leg{Account: account, Amount: transfer.Units(units)}
	}
	for _, c := range []struct {
		legs    []transfer.Leg
		want    error
		account string
	}{
		{[]transfer.Leg{leg("a", -50), leg("b", -50), leg("z", 100)}, transfer.ErrAccountNotFound, "z"},
		{[]transfer.Leg{leg("a", -50), leg("b", -50), leg("c", 100)}, transfer.ErrAccountClosed, "c"},
		{[]transfer.Leg{leg("y", -50), leg("z", 50)}, transfer.ErrAccountNotFound, "y"},
		{[]transfer.Leg{leg("b", -50), leg("a", -50), leg("w", 100)}, transfer.ErrAccountNotFound, "w"},
	} {
		for _, again := range []string{"cold", "warm"} {
			_, err := b.Transfer(t.Context(), transfer.Request{ID: fmt.Sprint(again, c.legs), Legs: c.legs})
			var refused *transfer.RefusedError
			require.ErrorAs(t, err, &refused)
			require.ErrorIs(t, err, c.want)
			require.Equal(t, c.account, refused.Account)
		}
	}
	b.CheckBooks(bank.Balances(10, 10, 10))
}

// transferAll moves 10 from one account to another.
func transferAll(b *bank.Bank, from, to string) error {
	_, err := b.Transfer(b.T.Context(), bank.Move("all "+from+" "+to, from, to, 10))
	return err
}

// A malformed request is refused with a text that says why, and nothing is stored.
func TestInvalidRequestsStoreNothing(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	one := transfer.Units(1)
	decimal, err := transfer.ParseDecimal("1")
	require.NoError(t, err)
	legs := func(l ...transfer.Leg) transfer.Request { return transfer.Request{ID: "t", Legs: l} }
	for text, req := range map[string]transfer.Request{
		"ID is empty":        {From: "a", To: "b", Amount: one},
		"has 256 bytes":      {ID: strings.Repeat("x", 256), From: "a", To: "b", Amount: one},
		"not valid UTF-8":    {ID: "\xff", From: "a", To: "b", Amount: one},
		"one of them is":     {ID: "t", From: "a", Amount: one},
		"nothing is to be":   {ID: "t"},
		"must be positive":   {ID: "t", From: "a", To: "b"},
		"the amount must be": {ID: "t", From: "a", To: "b", Amount: one.Neg()},
		"same":               bank.Move("t", "a", "a", 1),
		"not both":           {ID: "t", From: "a", To: "b", Amount: one, Legs: []transfer.Leg{{Account: "a", Amount: one}}},
		"must sum to zero":   legs(transfer.Leg{Account: "a", Amount: one}),
		"cancel out":         legs(transfer.Leg{Account: "a", Amount: one}, transfer.Leg{Account: "a", Amount: one.Neg()}),
		"is zero":            legs(transfer.Leg{Account: "a"}, transfer.Leg{Account: "b"}),
		"whole units or":     legs(transfer.Leg{Account: "a", Amount: one.Neg()}, transfer.Leg{Account: "b", Amount: decimal}),
		`ledger "euro"`:      legs(transfer.Leg{Ledger: "euro", Account: "a", Amount: one}, transfer.Leg{Account: "b", Amount: one.Neg()}),
		"beyond the limit":   bank.Move("t", "a", "b", 1<<48+1),
		"a currency has":     {ID: "t", From: "a", To: "b", Amount: one, Currency: strings.Repeat("x", 65)},
		"metadata key":       {ID: "t", From: "a", To: "b", Amount: one, Metadata: map[string]any{"a.b": 1}},
		"metadata has":       {ID: "t", From: "a", To: "b", Amount: one, Metadata: map[string]any{"a": strings.Repeat("x", 64<<10)}},
		"not valid":          {ID: "t", From: "a", To: "b", Amount: one, Metadata: map[string]any{"a": []any{"\xff"}}},
		"levels deep":        {ID: "t", From: "a", To: "b", Amount: one, Metadata: map[string]any{"a": nestedLists(64)}},
		"metadata: ":         {ID: "t", From: "a", To: "b", Amount: one, Metadata: map[string]any{"a": func() {}}},
		"1001 legs are more": {ID: "t", Legs: make([]transfer.Leg, 1001)},
	} {
		_, err := b.Transfer(t.Context(), req)
		require.ErrorIs(t, err, transfer.ErrInvalidRequest, text)
		require.ErrorContains(t, err, text)
		_, err = b.Submit(t.Context(), req)
		require.ErrorIs(t, err, transfer.ErrInvalidRequest, text)
	}
	require.Empty(t, b.Raw("transfers"))
	b.CheckBooks(bank.Balances(100, 0))
}

// nestedLists returns lists nested to a depth of levels.
func nestedLists(levels int) any {
	list := []any{}
	for range levels - 1 {
		list = []any{list}
	}
	return list
}

// Each limit itself is allowed.
func TestLimitsAreAllowed(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1<<62, 1<<62-1<<48)
	_, err := b.Transfer(t.Context(), bank.Move(strings.Repeat("x", 255), "a", "b", 1<<48))
	require.NoError(t, err)
	rec, err := b.Transfer(t.Context(), bank.Move("one more", "a", "b", 1))
	b.RequireRefused(rec, err, transfer.ErrOverflow, "overflow")
	var refused *transfer.RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "b", refused.Account)
	require.Equal(t, "4611686018427387904", refused.Balance.String())
	deep := bank.Move("deep", "b", "a", 1)
	deep.Metadata = map[string]any{"a": nestedLists(63)}
	_, err = b.Transfer(t.Context(), deep)
	require.NoError(t, err)

	legs := []transfer.Leg{{Account: "a", Amount: transfer.Units(-999)}}
	for i := range 999 {
		id := fmt.Sprintf("many-%d", i)
		legs = append(legs, transfer.Leg{Account: id, Amount: transfer.Units(1)})
		_, err := b.DB.Collection("accounts").InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}, {Key: "balance", Value: int64(0)}})
		require.NoError(t, err)
	}
	rec, err = b.Transfer(t.Context(), transfer.Request{ID: "thousand legs", Legs: legs})
	require.NoError(t, err)
	require.Len(t, rec.Legs, 1000)
	want := bank.Balances(1<<62, 1<<62-1<<48)
	for _, leg := range legs[1:] {
		want[leg.Account] = 0
	}
	b.CheckBooks(want)
}

// The legs of one account are netted, fees included.
// An account whose legs net to zero is not touched.
func TestLegsAreNetted(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0, 0, 7)
	units := transfer.Units
	rec, err := b.Transfer(t.Context(), transfer.Request{ID: "sale", Legs: []transfer.Leg{
		{Account: "a", Amount: units(-50)}, {Account: "b", Amount: units(50)}, // the price
		{Account: "a", Amount: units(-2)}, {Account: "c", Amount: units(2)}, // the buyer's fee
		{Account: "b", Amount: units(-1)}, {Account: "c", Amount: units(1)}, // the seller's
		{Account: "d", Amount: units(-7)}, {Account: "d", Amount: units(7)},
	}})
	require.NoError(t, err)
	require.Equal(t, []transfer.Leg{
		{Account: "a", Amount: units(-52)}, {Account: "b", Amount: units(49)}, {Account: "c", Amount: units(3)},
	}, rec.Legs)
	require.Equal(t, map[string]int64{"a": 48, "b": 49, "c": 3, "d": 7}, b.Balances())

	_, err = b.Transfer(t.Context(), transfer.Request{ID: "sale", Legs: []transfer.Leg{
		{Account: "c", Amount: units(3)}, {Account: "b", Amount: units(49)}, {Account: "a", Amount: units(-52)},
	}})
	require.NoError(t, err, "the same movements in another order are the same payload")
	b.CheckBooks(bank.Balances(100, 0, 0, 7))
}

// An ID stands for one payload.
func TestIDConflict(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0, 0)
	first, err := b.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.NoError(t, err)
	for _, other := range []transfer.Request{
		bank.Move("t", "a", "b", 61),
		bank.Move("t", "a", "c", 60),
		bank.Move("t", "b", "a", 60),
		{ID: "t", From: "a", To: "b", Amount: transfer.Units(60), Currency: "EUR"},
	} {
		rec, err := b.Transfer(t.Context(), other)
		require.ErrorIs(t, err, transfer.ErrIDConflict)
		bank.RequireSame(t, first, rec)
		_, err = b.Submit(t.Context(), other)
		require.ErrorIs(t, err, transfer.ErrIDConflict)
	}
	waiting, err := b.Submit(t.Context(), bank.Move("waiting", "a", "b", 1))
	require.NoError(t, err)
	rec, err := b.Transfer(t.Context(), bank.Move("waiting", "a", "b", 2))
	require.ErrorIs(t, err, transfer.ErrIDConflict)
	require.Equal(t, waiting, rec, "it was not run by one who asks for something else")
	_, err = b.Cancel(t.Context(), "waiting", "")
	require.NoError(t, err)

	same := bank.Move("t", "a", "b", 60)
	same.Metadata = map[string]any{"note": "metadata is not part of the payload"}
	rec, err = b.Transfer(t.Context(), same)
	require.NoError(t, err)
	bank.RequireSame(t, first, rec)
	b.CheckBooks(bank.Balances(100, 0, 0))
}

// If the context ended before anything was written, its error is returned alone, and
// nothing is stored.
func TestEndedContextStoresNothing(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Transfer(ctx, bank.Move("t", "a", "b", 60))
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, transfer.ErrInDoubt)
	_, err = b.Submit(ctx, bank.Move("t", "a", "b", 60))
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, b.Raw("transfers"))
	b.CheckBooks(bank.Balances(100, 0))
}

// A claimed transfer goes on after its caller's context ends, until Close, which waits
// for it.
func TestTransferGoesOnInTheBackground(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	monitor := &event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
		if e.CommandName == "insert" {
			cancel()
		}
	}}
	c := b.NewCoordinator(b.Through(options.Client().SetMonitor(monitor)))
	_, err := c.Transfer(ctx, bank.Move("t", "a", "b", 60))
	require.ErrorIs(t, err, transfer.ErrInDoubt)
	require.ErrorIs(t, err, context.Canceled, "it wraps the cause")
	require.NoError(t, c.Close(t.Context()))
	rec, err := b.Get(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
	_, err = c.Transfer(t.Context(), bank.Move("t2", "a", "b", 1))
	require.ErrorIs(t, err, transfer.ErrClosed)
	b.CheckBooks(bank.Balances(100, 0))
}

// With WithReturnAt(AtCommit) a call returns with the decision, and the rest is
// done in the background.
func TestReturnAtCommitted(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	c := b.NewCoordinator(b.DB, transfer.WithReturnAt(transfer.AtCommit))
	rec, err := c.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.NoError(t, err)
	require.Equal(t, transfer.StateCommitted, rec.State)
	_, err = c.Transfer(t.Context(), bank.Move("refused", "a", "b", 60))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	require.NoError(t, c.Close(t.Context()))
	b.CheckBooks(bank.Balances(100, 0))
}

func TestMain(m *testing.M) { os.Exit(mongotest.Main(m)) }

// A reversal waits for an original of whose commit the caller was told, though it is
// stored as Preparing when it is read, and succeeds before that is judged.
func TestReversalOfWhatIsAnswered(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	s := bank.NewSluice()
	c := b.NewCoordinator(b.Through(s.Options()), transfer.WithReturnAt(transfer.AtCommit))
	_, err := c.Transfer(t.Context(), bank.Move("warm", "a", "b", 1))
	require.NoError(t, err)
	_, err = c.Wait(t.Context(), "warm")
	require.NoError(t, err)
	s.HoldBack(bank.Decision)
	_, err = c.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.NoError(t, err)
	var reads atomic.Int64
	s.OnRead(func() {
		if reads.Add(1) != 2 { // the first may be old, the second one shows Preparing
			return
		}
		s.Open()
		for c.UnderWay("t") {
			runtime.Gosched()
		}
	})
	rec, err := c.Reverse(t.Context(), transfer.Reversal{ID: "r", Of: "t", All: true})
	require.NoError(t, err)
	require.True(t, rec.State.Decided())
	require.Greater(t, reads.Load(), int64(2))
	_, err = b.Wait(t.Context(), "r")
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(100, 0))
}
