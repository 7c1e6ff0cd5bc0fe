package verbs

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// requires returns a payment of an order with requirements of the test's own.
func requires(id, order string, fields bson.D) transfer.Request {
	req := bank.Payment(id, order, 10)
	req.Effects[0].Require = fields
	return req
}

// A refused requirement names its document and says how it differs: missing, another
// value, or reserved by which transfer.
// Values are in the error's fields, but neither in its text nor in what is stored.
// Later outcomes name the document in the same words.
func TestRequirementError(t *testing.T) {
	t.Parallel()
	const reserver = "1.$%held"
	b := bank.NewShop(t, 1000, 0)
	b.Insert("orders", append(bank.Order("o-3"), bson.E{Key: "total", Value: int64(7)}, bson.E{Key: "secret", Value: "s3cret"},
		bson.E{Key: "tags", Value: bson.A{"x", "y"}}, bson.E{Key: "odd", Value: nil}))
	_, err := b.Hold(t.Context(), bank.Payment(reserver, "o-2", 10), time.Hour)
	require.NoError(t, err)
	for name, row := range map[string]struct {
		order string
		asks  bson.D
		want  transfer.RequirementError
	}{
		"missing":  {"none", bson.D{{Key: "status", Value: "unpaid"}}, transfer.RequirementError{ID: "none", Missing: true}},
		"reserved": {"o-2", bson.D{{Key: "status", Value: "unpaid"}}, transfer.RequirementError{ID: "o-2", ReservedBy: reserver}},
		"another text": {"o-3", bson.D{{Key: "secret", Value: "s4cret"}},
			transfer.RequirementError{ID: "o-3", Field: "secret", Want: "s4cret", Got: "s3cret"}},
		"the second field": {"o-3", bson.D{{Key: "total", Value: 7.0}, {Key: "odd", Value: nil}, {Key: "tags", Value: "y"},
			{Key: "status", Value: "paid"}},
			transfer.RequirementError{ID: "o-3", Field: "status", Want: "paid", Got: "unpaid"}},
		"another number": {"o-3", bson.D{{Key: "total", Value: int64(8)}},
			transfer.RequirementError{ID: "o-3", Field: "total", Want: int64(8), Got: int64(7)}},
		"a missing field": {"o-3", bson.D{{Key: "nothing", Value: "x"}}, transfer.RequirementError{ID: "o-3", Field: "nothing", Want: "x"}},
		"a field that is to be missing": {"o-3", bson.D{{Key: "secret", Value: nil}},
			transfer.RequirementError{ID: "o-3", Field: "secret", Got: "s3cret"}},
	} {
		rec, err := b.Transfer(t.Context(), requires(name, row.order, row.asks))
		b.RequireRefused(rec, err, transfer.ErrRequirementFailed, "requirementFailed")
		row.want.Documents = "orders"
		var told transfer.RequirementError
		requireAs(t, err, &told)
		require.Equal(t, row.want, told, name)
		for _, secret := range []string{"s3cret", "s4cret", "unpaid", "paid"} {
			require.NotContains(t, err.Error(), secret, name)
			require.NotContains(t, rec.Failure.Message, secret, name)
		}
		_, later := b.Wait(t.Context(), name)
		requireAs(t, later, &told)
		require.Equal(t, [2]any{row.want.Documents, row.want.ID}, [2]any{told.Documents, told.ID}, name)
		require.Equal(t, errors.Unwrap(err).Error(), errors.Unwrap(later).Error(), "it is told in the same words")
		if row.want.Field != "" {
			require.ErrorContains(t, later, `"`+row.want.Field+`"`)
		}
	}
	numbered := requires("numbered", "", bson.D{{Key: "status", Value: "unpaid"}})
	numbered.Effects[0].ID = int64(7)
	for range 2 {
		_, err = b.Transfer(t.Context(), numbered)
		var told transfer.RequirementError
		requireAs(t, err, &told)
		require.Equal(t, int64(7), told.ID, "the _id as it was asked for, in every answer")
	}
	_, err = b.Void(t.Context(), reserver)
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(1000, 0))
}

// requireAs requires a RequirementError and copies its exported fields.
func requireAs(t *testing.T, err error, into *transfer.RequirementError) {
	t.Helper()
	var e *transfer.RequirementError
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, transfer.ErrRequirementFailed)
	*into = transfer.RequirementError{
		Documents: e.Documents, ID: e.ID, Field: e.Field, Want: e.Want, Got: e.Got, Missing: e.Missing, ReservedBy: e.ReservedBy,
	}
}

// A reversal whose original was removed before it was reserved is refused, and the error
// says so, also later.
func TestRequirementOfAReversal(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	_, err := b.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.NoError(t, err)
	reversal := transfer.Reversal{ID: "r", Of: "t", All: true}
	dyingReversal(b, bank.Prepares, reversal)
	b.Remove("transfers", "t")
	b.RecoverAll()
	rec, err := b.Reverse(t.Context(), reversal)
	var told *transfer.RequirementError
	require.ErrorAs(t, err, &told)
	require.Equal(t, "transfers", told.Documents)
	require.Equal(t, "t", told.ID)
	require.ErrorContains(t, err, "it is missing")
	require.Equal(t, transfer.Failed, transfer.OutcomeOf(err))
	require.Equal(t, transfer.StateFail, rec.State)
	b.CheckBooks(bank.Balances(40, 60))
}

// If an ID is reused with another payload, every verb that stores reports which parts
// differ, without values.
func TestConflictError(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t, 1000, 1000)
	legs := func(id string, amounts ...int64) transfer.Request {
		req := transfer.Request{ID: id}
		for i, amount := range amounts {
			req.Legs = append(req.Legs, transfer.Leg{Account: bank.AccountName(i), Amount: transfer.Units(amount)})
		}
		return req
	}
	most := func(id string, units int64) transfer.Request {
		req := bank.Move(id, "a", "b", units)
		req.AtMost = true
		return req
	}
	in := func(req transfer.Request, currency string) transfer.Request { req.Currency = currency; return req }
	for _, req := range []transfer.Request{bank.Move("t", "a", "b", 60), bank.Payment("p", "o-1", 60), most("m", 60)} {
		_, err := b.Transfer(t.Context(), req)
		require.NoError(t, err)
	}
	b.MustHold("h", 60, time.Hour)
	require.NoError(t, bank.ErrorOf(b.Reverse(t.Context(), transfer.Reversal{ID: "r", Of: "t", All: true})))
	for name, row := range map[string]struct {
		req  transfer.Request
		hold bool
		want []string
	}{
		"another amount":       {bank.Move("t", "a", "b", 61), false, []string{"legs"}},
		"the other way":        {bank.Move("t", "b", "a", 60), false, []string{"legs"}},
		"another currency":     {in(bank.Move("t", "a", "b", 60), "EUR"), false, []string{"currency"}},
		"both":                 {in(bank.Move("t", "a", "b", 1), "EUR"), false, []string{"legs", "currency"}},
		"at most":              {most("t", 60), false, []string{"atMost"}},
		"at most another":      {most("m", 61), false, []string{"atMost"}},
		"not at most any more": {bank.Move("m", "a", "b", 60), false, []string{"atMost"}},
		"another order":        {bank.Payment("p", "o-2", 60), false, []string{"effects"}},
		"no effect":            {bank.Move("p", "a", "b", 60), false, []string{"effects"}},
		"a hold of a transfer": {bank.Move("t", "a", "b", 60), true, []string{"hold"}},
		"a transfer of a hold": {bank.Move("h", "a", "b", 60), false, []string{"hold"}},
		"a reversal's ID":      {legs("r", 60, -60), false, []string{"one reverses"}},
	} {
		before := b.Raw("transfers")
		ask := map[bool]func() (transfer.Record, error){
			false: func() (transfer.Record, error) { return b.Transfer(t.Context(), row.req) },
			true:  func() (transfer.Record, error) { return b.Hold(t.Context(), row.req, time.Hour) },
		}[row.hold]
		rec, err := ask()
		requireConflict(t, err, row.want, name)
		require.Equal(t, row.req.ID, rec.ID, "the first one's record")
		if !row.hold {
			_, err = b.Submit(t.Context(), row.req)
			requireConflict(t, err, row.want, name)
		}
		require.Equal(t, before, b.Raw("transfers"), name)
	}
	require.NoError(t, bank.ErrorOf(b.Post(t.Context(), "h", transfer.PostAmount(transfer.Units(10)))))
	requireConflict(t, bank.ErrorOf(b.Post(t.Context(), "h", transfer.PostAmount(transfer.Units(11)))), []string{"posted"}, "posted otherwise")
	for id, want := range map[string][]string{"t": {"legs", "one reverses"}, "r": {"reverses"}} {
		_, err := b.Reverse(t.Context(), transfer.Reversal{ID: id, Of: "p", All: true})
		requireConflict(t, err, want, "a reversal of another one by "+id)
	}
}

func requireConflict(t *testing.T, err error, want []string, story string) {
	t.Helper()
	var conflict *transfer.ConflictError
	require.ErrorAs(t, err, &conflict, story)
	differs := make([]string, len(want))
	for i, part := range want {
		differs[i] = strings.TrimPrefix(part, "one ")
	}
	require.Equal(t, differs, conflict.Differs, story)
	require.ErrorIs(t, err, transfer.ErrIDConflict, story)
	require.Equal(t, transfer.Unchanged, transfer.OutcomeOf(err), story)
	said := map[string]string{
		"legs": "other accounts or amounts", "atMost": "another AtMost", "currency": "another currency", "effects": "other effects",
		"hold": "one is a hold and the other is not", "reverses": "another original", "one reverses": "one is a reversal and the other is not",
		"posted": "it was posted with another amount",
		"part":   "one takes back all that is left and the other does not",
	}
	parts := make([]string, len(want))
	for i, part := range want {
		parts[i] = said[part]
	}
	require.ErrorContains(t, err, "(see its record): "+strings.Join(parts, ", "), story)
	for _, value := range []string{"60", "61", "11", "EUR", "o-2"} {
		require.NotContains(t, err.Error(), value, story)
	}
}

// A refusal for a currency names the requested one and the account's, in every later
// outcome too.
func TestCurrencyError(t *testing.T) {
	t.Parallel()
	b := bank.New(t)
	for id, currency := range map[string]string{"eur": "EUR", "usd": `U"SD`, "none": ""} {
		_, err := b.OpenAccount(t.Context(), transfer.Account{ID: id, Balance: transfer.Units(100), Currency: currency})
		require.NoError(t, err)
	}
	b.Insert("accounts", bson.D{{Key: "_id", Value: "odd"}, {Key: "balance", Value: int64(100)}, {Key: "currency", Value: int64(7)}})
	for name, row := range map[string]struct {
		to   string
		want transfer.CurrencyError
		text string
	}{
		"another": {"usd", transfer.CurrencyError{Currency: "EUR", AccountCurrency: `U"SD`},
			`the transfer is in "EUR", the account in "U\"SD"`},
		"none": {"none", transfer.CurrencyError{Currency: "EUR"}, `the account in none`},
		"not a text": {"odd", transfer.CurrencyError{Currency: "EUR", AccountCurrency: "no string (64-bit integer)"},
			`the account in "no string (64-bit integer)"`},
		"none is asked": {"usd", transfer.CurrencyError{AccountCurrency: `U"SD`}, `the transfer is in none`},
	} {
		req := bank.Move(name, "eur", row.to, 1)
		if req.Currency = row.want.Currency; req.Currency == "" {
			req.From = "none"
		}
		_, first := b.Transfer(t.Context(), req)
		_, later := b.Transfer(t.Context(), req)
		_, waited := b.Wait(t.Context(), name)
		for _, err := range []error{first, later, waited} {
			var told *transfer.CurrencyError
			require.ErrorAs(t, err, &told, name)
			require.Equal(t, row.want, *told, name)
			require.ErrorIs(t, err, transfer.ErrCurrencyMismatch)
			require.ErrorContains(t, err, row.text)
			require.Equal(t, errors.Unwrap(first).Error(), errors.Unwrap(err).Error(), "in the same words")
		}
	}
	_, err := b.Transfer(t.Context(), bank.Move("both", "usd", "eur", 1))
	require.ErrorContains(t, err, `the account in "U\"SD"; "eur" is refused as well (`)
	b.CheckBooks(map[string]int64{"eur": 100, "usd": 100, "none": 100, "odd": 100})
}

// If the server refuses to write to an account, its reason is reported: the code, and the
// name of a unique index of the user's, in every later outcome too.
func TestUnwritableTellsTheReason(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		spoil func(b *bank.Bank)
		texts []string
	}{
		"a validator": {func(b *bank.Bank) { bank.Forbidden("b")(b) }, []string{"121"}},
		"a unique index": {func(b *bank.Bank) {
			index := mongo.IndexModel{
				Keys: bson.D{{Key: "pending.t", Value: 1}}, Options: options.Index().SetUnique(true).SetSparse(true).SetName("mine"),
			}
			_, err := b.DB.Collection("accounts").Indexes().CreateOne(t.Context(), index)
			require.NoError(t, err)
			b.Insert("accounts", bson.D{{Key: "_id", Value: "x"}, {Key: "pending", Value: bson.D{{Key: "t", Value: int64(60)}}}})
		}, []string{"11000", "mine"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			row.spoil(b)
			rec, first := b.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
			b.RequireRefused(rec, first, transfer.ErrUnwritable, "unwritable")
			_, later := b.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
			for _, text := range row.texts {
				require.ErrorContains(t, first, text)
			}
			require.ErrorIs(t, later, transfer.ErrUnwritable)
			require.Equal(t, errors.Unwrap(first).Error(), errors.Unwrap(later).Error(), "in the same words")
			var refused *transfer.RefusedError
			require.ErrorAs(t, later, &refused)
			require.Equal(t, "b", refused.Account)
			b.Remove("accounts", "x")
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// An account that the server refuses to store, or to change, is as it was: to ask again
// does not help before the server's rule is changed.
func TestUnwritableAccounts(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0, 7)
	index := mongo.IndexModel{Keys: bson.D{{Key: "email", Value: 1}}, Options: options.Index().SetUnique(true).SetName("mine")}
	open := func() error { return bank.ErrorOf(b.OpenAccount(t.Context(), transfer.Account{ID: "fees"})) }
	refused := func(err error, reason string) {
		t.Helper()
		require.ErrorIs(t, err, transfer.ErrUnwritable)
		require.Equal(t, transfer.Unchanged, transfer.OutcomeOf(err))
		require.ErrorContains(t, err, reason)
	}

	accounts := b.DB.Collection("accounts")
	for _, id := range []string{"a", "b"} {
		_, err := accounts.UpdateByID(t.Context(), id, bson.D{{Key: "$set", Value: bson.D{{Key: "email", Value: id}}}})
		require.NoError(t, err)
	}
	_, err := accounts.Indexes().CreateOne(t.Context(), index)
	require.NoError(t, err)
	refused(open(), `taken already in the index "mine" on email`)
	require.NoError(t, accounts.Indexes().DropOne(t.Context(), "mine"))

	allow := bank.Forbidden("fees")(b)
	refused(open(), "validator")
	allow()
	require.NoError(t, b.CloseAccount(t.Context(), "b"))
	allow = bank.Forbidden("b")(b)
	refused(b.ReopenAccount(t.Context(), "b"), "121")
	refused(bank.ErrorOf(b.UpdateAccount(t.Context(), "b", freezing())), "121")
	allow()
	b.CheckBooks(bank.Balances(100, 0, 7))
	require.NoError(t, open())
}
