package transfer

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/words"
)

const maxCurrencyBytes = 64

func checkCurrency(currency string) error {
	if len(currency) > maxCurrencyBytes || !utf8.ValidString(currency) || strings.Contains(currency, "\x00") {
		return invalid("a currency has at most %d bytes of UTF-8 without NUL, not %s",
			maxCurrencyBytes, words.Quote(currency))
	}
	return nil
}

// currencySum is the sum of a request's legs in one currency.
type currencySum struct {
	currency string
	total    money.Amount
}

// currencySums are the sums of a request's legs. Most requests have one currency, whose
// sum needs no memory of its own.
type currencySums struct {
	begun  bool
	first  currencySum
	others []currencySum
}

// add adds the amount of a leg.
func (s *currencySums) add(currency string, amount money.Amount) error {
	if !s.begun {
		s.begun, s.first = true, currencySum{currency, amount}
		return nil
	}
	sum := &s.first
	if currency != s.first.currency {
		place := slices.IndexFunc(s.others, func(other currencySum) bool { return other.currency == currency })
		if place < 0 {
			s.others = append(s.others, currencySum{currency, amount})
			return nil
		}
		sum = &s.others[place]
	}
	if sum.total.Kind() != amount.Kind() {
		return invalid("a transfer moves whole units or decimals of a currency, not both")
	}
	var err error
	if sum.total, err = sum.total.Add(amount); err != nil {
		return invalid("the sum of the legs: %w", err)
	}
	return nil
}

// check refuses legs that don't sum to zero.
// Money of one currency is never made up for by that of another one.
func (s *currencySums) check() error {
	if len(s.others) == 0 {
		if s.first.total.Sign() != 0 {
			return invalid("the legs must sum to zero")
		}
		return nil
	}
	for _, sum := range append([]currencySum{s.first}, s.others...) {
		if sum.total.Sign() != 0 {
			return invalid("the legs must sum to zero in each currency, and those in %s don't", nameCurrency(sum.currency))
		}
	}
	return nil
}

// inCurrency returns a transfer with all legs in one currency.
func inCurrency(t document.Transfer, currency string) document.Transfer {
	t.Currency, t.Legs = currency, slices.Clone(t.Legs)
	for i := range t.Legs {
		t.Legs[i].Currency = ""
	}
	return t
}

// otherCurrencies reports whether two transfers name different currencies: all in all, or
// for an account that both move money on.
func otherCurrencies(a, b document.Transfer) bool {
	a, b = counted(a), counted(b)
	if !maps.Equal(currenciesOf(a), currenciesOf(b)) {
		return true
	}
	type place struct{ ledger, account string }
	of := map[place]string{}
	for _, leg := range a.Legs {
		of[place{leg.Ledger, leg.Account}] = a.CurrencyOf(leg)
	}
	return slices.ContainsFunc(b.Legs, func(leg document.Leg) bool {
		currency, both := of[place{leg.Ledger, leg.Account}]
		return both && currency != b.CurrencyOf(leg)
	})
}

// currenciesOf returns the currencies that a transfer names.
func currenciesOf(t document.Transfer) map[string]bool {
	if currency, one := t.OneCurrency(); one {
		return map[string]bool{currency: true}
	}
	all := map[string]bool{}
	for _, leg := range t.Legs {
		all[t.CurrencyOf(leg)] = true
	}
	return all
}

// currencyAt returns the currency that a transfer names for a participant.
func currencyAt(t document.Transfer, participant int) string {
	if participant < 0 || participant >= len(t.Legs) {
		return t.Currency
	}
	return t.CurrencyOf(t.Legs[participant])
}

// currencyAt returns the currency that the transfer names for the account that has
// refused it.
func (r Record) currencyAt(f *Failure) string {
	for _, leg := range r.Legs {
		if leg.Ledger == f.Ledger && leg.Account == f.Account {
			return leg.Currency
		}
	}
	return r.Currency
}
