package verbs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// newExchange returns a bank in which alice and the house have an account in euros and
// one in dollars each: alice has 100 euros, and the house 200 dollars.
func newExchange(t *testing.T, opts ...transfer.Option) *bank.Bank {
	t.Helper()
	b := bank.NewBare(t, opts...)
	for id, balance := range exchangeBooks(0, 0) {
		_, err := b.OpenAccount(t.Context(), transfer.Account{
			ID: id, Balance: transfer.Units(balance), Currency: strings.ToUpper(id[:3]),
		})
		require.NoError(t, err)
	}
	return b
}

// exchangeBooks are the balances after alice has sold euros for dollars.
func exchangeBooks(euros, dollars int64) map[string]int64 {
	return map[string]int64{
		"eur-alice": 100 - euros, "eur-house": euros, "usd-house": 200 - dollars, "usd-alice": dollars,
	}
}

// sale asks for the exchange by which alice sells euros for dollars.
func sale(id string, euros, dollars int64) transfer.Request {
	return transfer.Request{ID: id, Currency: "EUR", Legs: []transfer.Leg{
		{Account: "eur-alice", Amount: transfer.Units(-euros)},
		{Account: "eur-house", Amount: transfer.Units(euros)},
		{Account: "usd-house", Amount: transfer.Units(-dollars), Currency: "USD"},
		{Account: "usd-alice", Amount: transfer.Units(dollars), Currency: "USD"},
	}}
}

// named returns a request whose legs all name their currency.
func named(req transfer.Request) transfer.Request {
	legs := make([]transfer.Leg, len(req.Legs))
	for i, leg := range req.Legs {
		if legs[i] = leg; leg.Currency == "" {
			legs[i].Currency = req.Currency
		}
	}
	req.Legs, req.Currency = legs, ""
	return req
}

// requireBooks requires balances, which are what the transfers that succeeded make of the
// first ones.
func requireBooks(b *bank.Bank, want map[string]int64) {
	b.T.Helper()
	b.CheckBooks(exchangeBooks(0, 0))
	require.Equal(b.T, want, b.Balances())
}

// requireTotals requires the sums of a bank by currency, and the money in transit.
func requireTotals(b *bank.Bank, want ...string) {
	b.T.Helper()
	report, err := b.AuditWith(b.T.Context(), transfer.AuditOptions{Expected: []transfer.ExpectedTotal{
		{Currency: "EUR", Sum: transfer.Units(100)}, {Currency: "USD", Sum: transfer.Units(200)},
	}})
	require.NoError(b.T, err)
	require.Empty(b.T, report.Findings)
	var got []string
	for _, total := range report.Ledgers {
		got = append(got, fmt.Sprintf("%s %s+%s", total.Currency, total.Total, total.InTransit))
	}
	require.Equal(b.T, want, got)
}

// An exchange moves money in several currencies by one transfer.
// Its record, each account's statement and the audit's sums have the currency of each
// leg.
func TestExchange(t *testing.T) {
	t.Parallel()
	b := newExchange(t)
	opened := time.Now()
	rec, err := b.Transfer(t.Context(), sale("sale", 60, 66))
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
	require.Equal(t, "EUR", rec.Currency)
	require.Equal(t, named(sale("", 60, 66)).Legs, rec.Legs, "each leg has its currency, named or not")
	again, err := b.Get(t.Context(), "sale")
	require.NoError(t, err)
	bank.RequireSame(t, rec, again)
	for account, want := range map[string]string{
		"eur-alice": "sale -60 40", "eur-house": "sale 60 60", "usd-house": "sale -66 134", "usd-alice": "sale 66 66",
	} {
		entries := b.MustStatement(b.MustLedger(""), account, transfer.StatementQuery{})
		require.Equal(t, []string{want}, b.Lines(entries))
		require.Equal(t, rec.Legs, entries[0].Legs)
		b.RequireBalanceAt(account, opened.Add(-time.Hour), exchangeBooks(0, 0)[account])
	}
	requireTotals(b, "EUR 100+0", "USD 200+0")
	requireBooks(b, exchangeBooks(60, 66))
}

// An exchange happens in all of its currencies or in none.
// The refusal names the account that is to blame, and both currencies where they differ,
// in every later outcome too.
func TestExchangeIsAllOrNothing(t *testing.T) {
	t.Parallel()
	b := newExchange(t)
	swapped := sale("", 1, 1)
	swapped.Legs[1].Account, swapped.Legs[3].Account = "usd-alice", "eur-house"
	unnamed := sale("", 1, 1)
	unnamed.Legs[2].Currency, unnamed.Legs[3].Currency = "", ""
	none := named(sale("", 1, 1))
	none.Legs[0].Currency, none.Legs[1].Currency = "", ""
	crossed := sale("", 1, 1)
	crossed.Currency = "USD"
	crossed.Legs[0] = transfer.Leg{Account: "usd-house", Amount: transfer.Units(-1), Currency: "EUR"}
	crossed.Legs[1].Currency = "EUR"
	crossed.Legs[2] = transfer.Leg{Account: "eur-alice", Amount: transfer.Units(-1)}
	missing := sale("", 1, 1)
	missing.Legs[3].Account = "nobody"
	for name, row := range map[string]struct {
		req     transfer.Request
		want    error
		account string
		differs *transfer.CurrencyError
	}{
		"too few euros":   {sale("", 101, 1), transfer.ErrInsufficientFunds, "eur-alice", nil},
		"too few dollars": {sale("", 1, 201), transfer.ErrInsufficientFunds, "usd-house", nil},
		"nobody is paid":  {missing, transfer.ErrAccountNotFound, "nobody", nil},
		"credited to each other": {swapped, transfer.ErrCurrencyMismatch, "usd-alice",
			&transfer.CurrencyError{Currency: "EUR", AccountCurrency: "USD"}},
		"dollars as euros": {unnamed, transfer.ErrCurrencyMismatch, "usd-house",
			&transfer.CurrencyError{Currency: "EUR", AccountCurrency: "USD"}},
		"euros of a dollar account": {crossed, transfer.ErrCurrencyMismatch, "usd-house",
			&transfer.CurrencyError{Currency: "EUR", AccountCurrency: "USD"}},
		"euros without a name": {none, transfer.ErrCurrencyMismatch, "eur-alice",
			&transfer.CurrencyError{AccountCurrency: "EUR"}},
	} {
		row.req.ID = name
		_, first := b.Transfer(t.Context(), row.req)
		_, later := b.Transfer(t.Context(), row.req)
		_, waited := b.Wait(t.Context(), name)
		for _, err := range []error{first, later, waited} {
			var refused *transfer.RefusedError
			require.ErrorIs(t, err, row.want, name)
			require.ErrorAs(t, err, &refused, name)
			require.Equal(t, row.account, refused.Account, name)
			var told *transfer.CurrencyError
			errors.As(err, &told)
			require.Equal(t, row.differs, told, name)
			require.Equal(t, errors.Unwrap(first).Error(), errors.Unwrap(err).Error(), "in the same words")
		}
	}
	requireTotals(b, "EUR 100+0", "USD 200+0")
	requireBooks(b, exchangeBooks(0, 0))
}

// Legs that don't sum to zero in each currency are refused before anything is stored, and
// so are two kinds of amounts in one currency, and two currencies on one account.
// Netting leaves each currency as it is.
func TestExchangesThatMakeNoSense(t *testing.T) {
	t.Parallel()
	b := newExchange(t)
	leg := func(account string, units int64, currency string) transfer.Leg {
		return transfer.Leg{Account: account, Amount: transfer.Units(units), Currency: currency}
	}
	for text, legs := range map[string][]transfer.Leg{
		`those in "USD" don't`: {
			leg("eur-alice", -1, "EUR"), leg("eur-house", 1, "EUR"), leg("usd-house", -2, "USD"), leg("usd-alice", 1, "USD"),
		},
		`those in "EUR" don't`: {leg("eur-alice", -1, "EUR"), leg("usd-alice", 1, "USD")},
		"those in none don't":  {leg("eur-alice", -1, ""), leg("usd-alice", 1, "USD")},
		"of a currency, not both": {
			leg("eur-alice", -1, "EUR"), {Account: "eur-house", Amount: bank.Decimal(t, "1"), Currency: "EUR"},
		},
		`account "usd-alice" are in "USD" and "EUR"`: {
			leg("eur-house", -1, "EUR"), leg("usd-house", -1, "USD"), leg("usd-alice", 1, "USD"), leg("usd-alice", 1, "EUR"),
		},
		`account "usd-alice" are in "USD" and none`: {
			leg("usd-alice", 2, "USD"), leg("usd-alice", -2, ""), leg("usd-house", -2, "USD"), leg("eur-house", 2, ""),
		},
		"64 bytes of UTF-8": {leg("eur-alice", -1, ""), leg("eur-house", 1, "\xff")},
		"nothing moves":     {leg("eur-alice", -1, "EUR"), leg("eur-alice", 1, "EUR")},
	} {
		_, err := b.Transfer(t.Context(), transfer.Request{ID: "t", Legs: legs})
		require.ErrorIs(t, err, transfer.ErrInvalidRequest, text)
		require.ErrorContains(t, err, text)
	}
	_, err := b.Get(t.Context(), "t")
	require.ErrorIs(t, err, transfer.ErrTransferNotFound)

	// What nets to zero leaves a transfer in the other currency alone.
	rec, err := b.Transfer(t.Context(), transfer.Request{ID: "t", Currency: "EUR", Legs: []transfer.Leg{
		leg("eur-alice", -1, ""), leg("usd-house", -2, "USD"), leg("eur-alice", 1, "EUR"), leg("usd-alice", 2, "USD"),
	}})
	require.NoError(t, err)
	require.Equal(t, "USD", rec.Currency)
	require.Len(t, rec.Legs, 2)
	requireBooks(b, exchangeBooks(0, 2))
}

// A currency is the same payload wherever a request names it: with the request, with a
// leg, with both, or as the record has it.
// Another currency is a conflict, which says so.
// A transfer in one currency is stored as it was before legs had any.
func TestCurrencyIsNamedAnywhere(t *testing.T) {
	t.Parallel()
	b := newExchange(t)
	move := func(currency, from, to string) transfer.Request {
		return transfer.Request{ID: "plain", Currency: currency, Legs: []transfer.Leg{
			{Account: "eur-alice", Amount: transfer.Units(-1), Currency: from},
			{Account: "eur-house", Amount: transfer.Units(1), Currency: to},
		}}
	}
	short := bank.Move("plain", "eur-alice", "eur-house", 1)
	short.Currency = "EUR"
	plain, err := b.Transfer(t.Context(), short)
	require.NoError(t, err)
	exchanged, err := b.Transfer(t.Context(), sale("sale", 2, 3))
	require.NoError(t, err)
	var stored struct{ Legs []bson.M }
	require.NoError(t, b.DB.Collection("transfers").FindOne(t.Context(), bson.M{"_id": "plain"}).Decode(&stored))
	for _, leg := range stored.Legs {
		require.NotContains(t, leg, "currency")
	}
	other := named(sale("sale", 2, 3))
	other.Currency = "CHF" // which no leg has
	turned := sale("sale", 2, 3)
	turned.Currency = "USD"
	turned.Legs[0].Currency, turned.Legs[1].Currency, turned.Legs[2].Currency = "EUR", "EUR", ""
	for _, req := range []transfer.Request{
		short, move("EUR", "", ""), move("EUR", "EUR", ""), move("EUR", "EUR", "EUR"), move("", "EUR", "EUR"), move("USD", "EUR", "EUR"),
		{ID: "plain", Legs: plain.Legs}, {ID: "plain", Currency: plain.Currency, Legs: plain.Legs},
		sale("sale", 2, 3), named(sale("sale", 2, 3)), other, turned,
		{ID: "sale", Legs: exchanged.Legs}, {ID: "sale", Currency: exchanged.Currency, Legs: exchanged.Legs},
	} {
		rec, err := b.Transfer(t.Context(), req)
		require.NoError(t, err, "%+v", req)
		require.Equal(t, transfer.StateSuccess, rec.State)
	}
	swiss := sale("sale", 2, 3)
	swiss.Legs[2].Currency, swiss.Legs[3].Currency = "CHF", "CHF"
	crossed := named(sale("sale", 2, 3))
	for i := range crossed.Legs {
		crossed.Legs[i].Currency = exchanged.Legs[(i+2)%4].Currency
	}
	more := named(sale("sale", 2, 4))
	both := named(sale("sale", 2, 4))
	both.Legs[2].Currency, both.Legs[3].Currency = "CHF", "CHF"
	for _, row := range []struct {
		req     transfer.Request
		differs []string
	}{
		{move("", "", ""), []string{"currency"}}, {move("", "USD", "USD"), []string{"currency"}}, {swiss, []string{"currency"}},
		{crossed, []string{"currency"}}, {more, []string{"legs"}}, {both, []string{"legs", "currency"}},
	} {
		_, err := b.Transfer(t.Context(), row.req)
		var conflict *transfer.ConflictError
		require.ErrorAs(t, err, &conflict, "%+v", row.req)
		require.Equal(t, row.differs, conflict.Differs, "%+v", row.req)
	}
	books := exchangeBooks(2, 3)
	books["eur-alice"]--
	books["eur-house"]++
	requireBooks(b, books)
}

// Each currency has its own kind of amounts: points in units are bought with decimals.
func TestExchangeOfTwoKinds(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	for _, a := range []transfer.Account{
		{ID: "money", Balance: bank.Decimal(t, "10.00"), Currency: "EUR"}, {ID: "till", Balance: bank.Decimal(t, "0"), Currency: "EUR"},
		{ID: "points"}, {ID: "issued", NoFloor: true},
	} {
		_, err := b.OpenAccount(t.Context(), a)
		require.NoError(t, err)
	}
	_, err := b.Transfer(t.Context(), transfer.Request{ID: "t", Legs: []transfer.Leg{
		{Account: "money", Amount: bank.Decimal(t, "-2.50"), Currency: "EUR"}, {Account: "issued", Amount: transfer.Units(-250)},
		{Account: "till", Amount: bank.Decimal(t, "2.50"), Currency: "EUR"}, {Account: "points", Amount: transfer.Units(250)},
	}})
	require.NoError(t, err)
	for id, want := range map[string]string{"money": "7.50", "till": "2.50", "points": "250", "issued": "-250"} {
		got, err := b.GetAccount(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, want, got.Posted.String(), id)
	}
	require.Empty(t, b.MustAudit().Findings)
}

// A hold of an exchange reserves what each payer gives, in its currency. It is posted as
// a whole, and voided, or expires, in all currencies.
func TestHeldExchange(t *testing.T) {
	t.Parallel()
	b := newExchange(t)
	for _, id := range []string{"posted", "voided", "expired"} {
		rec, err := b.Hold(t.Context(), sale(id, 10, 20), time.Hour)
		require.NoError(t, err)
		require.Equal(t, transfer.StatePreparing, rec.State)
	}
	requireTotals(b, "EUR 70+30", "USD 140+60")
	_, err := b.Post(t.Context(), "posted", transfer.PostAmount(transfer.Units(10)))
	require.ErrorIs(t, err, transfer.ErrInvalidRequest, "a part in which currency?")
	for range 2 {
		rec, err := b.Post(t.Context(), "posted")
		require.NoError(t, err)
		require.Equal(t, named(sale("", 10, 20)).Legs, rec.Legs)
		_, err = b.Hold(t.Context(), named(sale("posted", 10, 20)), time.Hour)
		require.NoError(t, err)
		_, err = b.Void(t.Context(), "voided")
		require.NoError(t, err)
	}
	b.Expire("expired")
	b.RecoverAll()
	_, err = b.Post(t.Context(), "expired")
	require.ErrorIs(t, err, transfer.ErrExpired)
	requireTotals(b, "EUR 100+0", "USD 200+0")
	requireBooks(b, exchangeBooks(10, 20))
}

// A reversal moves an exchange back, each leg in its currency, or nothing of it.
func TestReversedExchange(t *testing.T) {
	t.Parallel()
	b := newExchange(t)
	for _, id := range []string{"one", "two"} {
		_, err := b.Transfer(t.Context(), sale(id, 10, 20))
		require.NoError(t, err)
	}
	rec, err := b.Reverse(t.Context(), transfer.Reversal{ID: "back", Of: "one", All: true})
	require.NoError(t, err)
	require.Equal(t, named(sale("", -10, -20)).Legs, rec.Legs)
	require.Equal(t, "one", rec.Reverses)
	_, err = b.Transfer(t.Context(), transfer.Request{
		ID: "spent", From: "usd-alice", To: "usd-house", Amount: transfer.Units(1), Currency: "USD",
	})
	require.NoError(t, err)
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "too late", Of: "two", All: true})
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	requireTotals(b, "EUR 100+0", "USD 200+0")
	requireBooks(b, exchangeBooks(10, 19))
}

// partOf asks for a part of the exchange "sale" back.
func partOf(id string, legs ...transfer.Leg) transfer.Reversal {
	return transfer.Reversal{ID: id, Of: "sale", Legs: legs}
}

// in returns a leg that names a currency, or none.
func in(currency, account string, units int64) transfer.Leg {
	return transfer.Leg{Account: account, Amount: transfer.Units(units), Currency: currency}
}

// An exchange is reversed in parts, in any of its currencies: each part sums to zero in
// each of them. What is left is taken back by a reversal of all, whose payload is the
// same whatever was left.
func TestExchangeIsReversedInParts(t *testing.T) {
	t.Parallel()
	b := newExchange(t)
	_, err := b.Transfer(t.Context(), sale("sale", 10, 20))
	require.NoError(t, err)
	rec, err := b.Reverse(t.Context(), partOf("one",
		in("", "usd-alice", -2), in("EUR", "eur-house", -1), in("", "usd-house", 2), in("", "eur-alice", 1)))
	require.NoError(t, err)
	require.Equal(t, []string{"USD", "EUR"}, []string{rec.Legs[0].Currency, rec.Legs[1].Currency})
	_, err = b.Reverse(t.Context(), partOf("two", in("", "usd-alice", -19), in("", "usd-house", 19)))
	require.ErrorIs(t, err, transfer.ErrReversalExceeds)
	require.ErrorContains(t, err, `on account "usd-`)
	original, err := b.Get(t.Context(), "sale")
	require.NoError(t, err)
	require.ElementsMatch(t, []transfer.Leg{
		in("USD", "usd-alice", -2), in("EUR", "eur-house", -1), in("USD", "usd-house", 2), in("EUR", "eur-alice", 1),
	}, original.ReversedLegs)
	rec, err = b.Reverse(t.Context(), partOf("two", in("", "usd-alice", -18), in("", "usd-house", 18)))
	require.NoError(t, err)
	require.Equal(t, "USD", rec.Currency, "of all its legs")
	for range 2 { // all that is left, which is in euros, and then nothing
		rec, err = b.Reverse(t.Context(), transfer.Reversal{ID: "rest", Of: "sale", All: true})
		require.NoError(t, err)
		require.Equal(t, "EUR", rec.Currency)
		require.Len(t, rec.Legs, 2)
		_, err = b.Reverse(t.Context(), partOf("two", in("USD", "usd-house", 18), in("USD", "usd-alice", -18)))
		require.NoError(t, err)
	}
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "more", Of: "sale", All: true})
	require.ErrorIs(t, err, transfer.ErrAlreadyReversed)
	requireTotals(b, "EUR 100+0", "USD 200+0")
	requireBooks(b, exchangeBooks(0, 0))
}

// A part of an exchange names each account in the currency in which the exchange has
// moved it, and sums to zero in each currency.
func TestPartsOfExchangesThatMakeNoSense(t *testing.T) {
	t.Parallel()
	b := newExchange(t)
	_, err := b.Transfer(t.Context(), sale("sale", 10, 20))
	require.NoError(t, err)
	for text, r := range map[string]transfer.Reversal{
		`those in "`:               partOf("r", in("", "usd-alice", -2), in("", "eur-alice", 2)),
		`moved "USD" on account`:   partOf("r", in("EUR", "usd-alice", -2), in("EUR", "usd-house", 2)),
		`did not move account "x"`: partOf("r", in("USD", "x", -2), in("", "usd-house", 2)),
		"so give Legs":             {ID: "r", Of: "sale", Amount: transfer.Units(2)},
	} {
		_, err := b.Reverse(t.Context(), r)
		require.ErrorIs(t, err, transfer.ErrInvalidRequest, text)
		require.ErrorContains(t, err, text)
	}
	requireBooks(b, exchangeBooks(10, 20))
}

// Whatever an exchange was doing when its process died, the audit has the money of each
// currency, and recovery finishes it in all currencies, in one direction.
func TestExchangeIsRecovered(t *testing.T) {
	t.Parallel()
	for at, lost := range map[bank.Step]bank.Fault{
		bank.Prepares: bank.AnswerLost, bank.Decision: bank.Lost, bank.Settles: bank.Lost, bank.Record: bank.Lost,
	} {
		for _, policy := range []transfer.StallPolicy{transfer.Resume, transfer.RollBack} {
			t.Run(fmt.Sprintf("%s, policy %d", at, policy), func(t *testing.T) {
				t.Parallel()
				b := newExchange(t)
				b.StallRequest(sale("sale", 60, 66), at, lost)
				report, err := b.AuditWith(t.Context(), transfer.AuditOptions{Expected: []transfer.ExpectedTotal{
					{Currency: "EUR", Sum: transfer.Units(100)}, {Currency: "USD", Sum: transfer.Units(200)},
				}})
				require.NoError(t, err)
				require.Empty(t, report.Findings)
				b.RecoverAll(transfer.WithStallPolicy(policy))
				rec, err := b.Get(t.Context(), "sale")
				require.NoError(t, err)
				require.Equal(t, named(sale("", 60, 66)).Legs, rec.Legs)
				requireTotals(b, "EUR 100+0", "USD 200+0")
				if rec.State == transfer.StateSuccess {
					requireBooks(b, exchangeBooks(60, 66))
				} else {
					requireBooks(b, exchangeBooks(0, 0))
				}
			})
		}
	}
}

// A stored exchange whose leg was put into another currency is left alone: recovery would
// pay dollars where euros were taken.
func TestExchangeThatWasChanged(t *testing.T) {
	t.Parallel()
	b := newExchange(t)
	b.StallRequest(sale("sale", 60, 66), bank.Decision, bank.Lost)
	b.Change("transfers", "sale", bson.M{"$set": bson.M{"legs.1.currency": "USD", "legs.3.currency": "EUR"}})
	require.Equal(t, []audit.Code{audit.WrongDigest, audit.WrongLegs}, bank.CodesOf(b.MustAudit()))
	report, err := b.NewRecoverer().Recover(t.Context())
	require.NoError(t, err)
	require.Equal(t, transfer.RecoveryReport{Found: 1, Stuck: 1}, report)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = b.Cancel(ctx, "sale", "")
	require.Error(t, err)
	b.Change("transfers", "sale", bson.M{"$unset": bson.M{"legs.1.currency": ""}, "$set": bson.M{"legs.3.currency": "USD"}})
	b.RecoverAll()
	requireTotals(b, "EUR 100+0", "USD 200+0")
	requireBooks(b, exchangeBooks(60, 66))
}

// Many exchanges at once, some of which name a wrong currency, move exactly what those
// that succeed say, and no currency gains or loses a unit.
func TestManyExchangesAtOnce(t *testing.T) {
	t.Parallel()
	b := newExchange(t)
	var requests []transfer.Request
	for i := range 60 {
		req := sale(fmt.Sprint("sale-", i), 1, 2)
		if i%5 == 4 { // euros for a dollar account, and dollars for one in euros
			req.Legs[1].Account, req.Legs[3].Account = req.Legs[3].Account, req.Legs[1].Account
		}
		requests = append(requests, req)
	}
	records, failures := b.TransferMany(t.Context(), requests)
	for i, err := range failures {
		if i%5 == 4 {
			require.ErrorIs(t, err, transfer.ErrCurrencyMismatch)
			require.Equal(t, transfer.StateFail, records[i].State)
			continue
		}
		require.NoError(t, err)
	}
	requireTotals(b, "EUR 100+0", "USD 200+0")
	requireBooks(b, exchangeBooks(48, 96))
}
