package transfer

import (
	"fmt"
	"strconv"
	"strings"
)

// CurrencyError names both currencies where a transfer was refused because they differ.
// errors.Is finds ErrCurrencyMismatch through it. Every answer about the transfer carries
// it, later ones, too.
type CurrencyError struct {
	Currency        string // the transfer's, "" for none
	AccountCurrency string // the account's, "" for none
}

// Error names the currencies.
func (e *CurrencyError) Error() string {
	return currencyText(e.Currency) + nameCurrency(e.AccountCurrency)
}

// Unwrap returns ErrCurrencyMismatch.
func (e *CurrencyError) Unwrap() error { return ErrCurrencyMismatch }

// currencyText is what stands before the account's currency.
func currencyText(currency string) string {
	return fmt.Sprintf("%v: the transfer is in %s, the account in ", ErrCurrencyMismatch, nameCurrency(currency))
}

func nameCurrency(currency string) string {
	if currency == "" {
		return "none"
	}
	return fmt.Sprintf("%.80q", currency)
}

// currencyBefore reads the account's currency from what was stored with a refusal; nil
// where it was stored without.
func currencyBefore(currency, stored string) *CurrencyError {
	name, ok := strings.CutPrefix(stored, currencyText(currency))
	if !ok {
		return nil
	}
	account, err := strconv.Unquote(name)
	if err != nil && name != nameCurrency("") {
		return nil
	}
	return &CurrencyError{Currency: currency, AccountCurrency: account}
}
