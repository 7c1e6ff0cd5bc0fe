package verbs

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// newDecimalBank returns a bank with accounts of decimals.
func newDecimalBank(t *testing.T, balances map[string]string) *bank.Bank {
	t.Helper()
	b := bank.New(t)
	for id, balance := range balances {
		_, err := b.OpenAccount(t.Context(), transfer.Account{ID: id, Balance: bank.Decimal(t, balance)})
		require.NoError(t, err)
	}
	return b
}

// requireDecimals requires exact balances, stored as Decimal128, with no marker and no
// unfinished transfer.
func requireDecimals(b *bank.Bank, want map[string]string) {
	b.T.Helper()
	for id, balance := range want {
		account, err := b.GetAccount(b.T.Context(), id)
		require.NoError(b.T, err)
		for _, amount := range []transfer.Amount{account.Balance, account.Available, account.Posted} {
			require.Zero(b.T, amount.Cmp(bank.Decimal(b.T, balance)), "%s has %s", id, amount)
		}
		require.True(b.T, account.Incoming.IsZero())
	}
	for _, document := range b.Raw("accounts") {
		require.IsType(b.T, bson.Decimal128{}, document["balance"])
		require.NotContains(b.T, document, "pending")
	}
	require.Zero(b.T, b.Unfinished())
}

func pay(t *testing.T, id, amount string) transfer.Request {
	return transfer.Request{ID: id, From: "a", To: "b", Amount: bank.Decimal(t, amount)}
}

// Every verb moves decimals exactly, to all 12 places.
// Refused, cancelled and rolled back transfers leave each digit of the balances as it
// was.
func TestDecimalsThroughEveryVerb(t *testing.T) {
	t.Parallel()
	const least = "0.000000000001"
	b := newDecimalBank(t, map[string]string{"a": "10", "b": "0.5", "c": "0"})
	rec, err := b.Transfer(t.Context(), pay(t, "transfer", "0.100000000001"))
	require.NoError(t, err)
	require.Equal(t, "0.100000000001", rec.Legs[1].Amount.String())
	_, err = b.Transfer(t.Context(), transfer.Request{ID: "split", Legs: []transfer.Leg{
		{Account: "a", Amount: bank.Decimal(t, "-1")}, {Account: "b", Amount: bank.Decimal(t, "0.333333333333")},
		{Account: "c", Amount: bank.Decimal(t, "0.666666666667")},
	}})
	require.NoError(t, err)
	_, failures := b.TransferMany(t.Context(), []transfer.Request{
		pay(t, "1", least), pay(t, "2", "1.5"), pay(t, "3", "100"), pay(t, "4", "0.10"), pay(t, "5", "0.01"), pay(t, "6", least),
	})
	for i, err := range failures {
		require.Equal(t, i == 2, err != nil, "%v", err)
	}
	require.ErrorIs(t, failures[2], transfer.ErrInsufficientFunds)

	for _, id := range []string{"submitted", "cancelled", "run by transfer"} {
		req := pay(t, id, "0.25")
		if id != "submitted" {
			req.NotBefore = time.Now().Add(time.Hour)
		}
		_, err := b.Submit(t.Context(), req)
		require.NoError(t, err)
	}
	_, err = b.Cancel(t.Context(), "cancelled", "")
	require.NoError(t, err)
	_, err = b.Transfer(t.Context(), pay(t, "run by transfer", "0.250"))
	require.NoError(t, err, "0.250 is 0.25")
	end := bank.InBackground(t, b.Coordinator)
	_, err = b.Wait(t.Context(), "submitted")
	require.NoError(t, err)
	end()
	requireDecimals(b, map[string]string{"a": "6.789999999997", "b": "3.043333333336", "c": "0.666666666667"})
}

// A sweep finishes and undoes decimals exactly.
func TestDecimalsAreRecovered(t *testing.T) {
	t.Parallel()
	b := newDecimalBank(t, map[string]string{"a": "1", "b": "0"})
	for id, at := range map[string]bank.Step{"recorded": bank.Settles, "prepared": bank.Decision, "paid": bank.Clears} {
		b.StallRequest(pay(t, id, "0.200000000007"), at, bank.Lost)
	}
	b.StallHalfOf(pay(t, "half", "0.3"))
	report := b.RecoverAll(transfer.WithStallPolicy(transfer.RollBack))
	require.Equal(t, transfer.RecoveryReport{Found: 4, Succeeded: 3, Failed: 1}, report)
	requireDecimals(b, map[string]string{"a": "0.399999999979", "b": "0.600000000021"})
}

// Decimals have 12 places, amounts below 10^18 and balances below 10^21.
// The last digit below each of these limits moves exactly.
func TestDecimalLimits(t *testing.T) {
	t.Parallel()
	const (
		most  = "999999999999999999.999999999999"
		rich  = "999999999999999999999.999999999999"
		least = "0.000000000001"
	)
	b := newDecimalBank(t, map[string]string{"a": most, "b": "0", "rich": rich, "nearly": "999999999999999999999.999999999998"})
	for _, amount := range []string{"1000000000000000000", "1000000000000000000.000000000001", "-1", "0"} {
		_, err := b.Transfer(t.Context(), pay(t, "beyond", amount))
		require.ErrorIs(t, err, transfer.ErrInvalidRequest, amount)
	}
	for _, text := range []string{"0.0000000000001", "1" + strings.Repeat("0", 22)} {
		_, err := transfer.ParseDecimal(text)
		require.Error(t, err, text)
	}
	_, err := b.OpenAccount(t.Context(), transfer.Account{ID: "too rich", Balance: bank.Decimal(t, "1000000000000000000000")})
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)

	_, err = b.Transfer(t.Context(), pay(t, "most", most))
	require.NoError(t, err)
	_, err = b.Transfer(t.Context(), pay(t, "one more", least))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	give := func(id, to string) error {
		_, err := b.Transfer(t.Context(), transfer.Request{ID: id, From: "b", To: to, Amount: bank.Decimal(t, least)})
		return err
	}
	require.ErrorIs(t, give("full", "rich"), transfer.ErrOverflow)
	require.NoError(t, give("fills", "nearly"))
	require.ErrorIs(t, give("full now", "nearly"), transfer.ErrOverflow)
	_, err = b.Transfer(t.Context(), transfer.Request{ID: "out of it", From: "rich", To: "a", Amount: bank.Decimal(t, least)})
	require.NoError(t, err)
	requireDecimals(b, map[string]string{
		"a": least, "b": "999999999999999999.999999999998", "rich": "999999999999999999999.999999999998", "nearly": rich,
	})
}

// A decimal floor holds to the last digit, below zero too.
// An account without a floor ends at the limit of balances.
func TestDecimalFloors(t *testing.T) {
	t.Parallel()
	b := newDecimalBank(t, map[string]string{"b": "0"})
	for _, a := range []transfer.Account{
		{ID: "a", Balance: bank.Decimal(t, "0"), Floor: bank.Decimal(t, "-0.000000000002")},
		{ID: "world", Balance: bank.Decimal(t, "0"), NoFloor: true},
	} {
		_, err := b.OpenAccount(t.Context(), a)
		require.NoError(t, err)
	}
	_, err := b.Transfer(t.Context(), pay(t, "1", "0.000000000003"))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	_, err = b.Transfer(t.Context(), pay(t, "2", "0.000000000002"))
	require.NoError(t, err)
	_, err = b.Transfer(t.Context(), pay(t, "3", "0.000000000001"))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	_, err = b.Transfer(t.Context(), transfer.Request{
		ID: "4", From: "world", To: "b", Amount: bank.Decimal(t, "999999999999999999.999999999999"),
	})
	require.NoError(t, err)
	requireDecimals(b, map[string]string{
		"a": "-0.000000000002", "b": "1000000000000000000.000000000001", "world": "-999999999999999999.999999999999",
	})
}
