package transfer_test

import (
	"context"
	"fmt"

	"github.com/mongotransfer/transfer"
)

// Alice sells euros for dollars.
// Each currency sums to zero by itself: the euros go to the house, and the dollars come
// from it, by one transfer. The quote that the amounts were computed from is stored with
// it.
func ExampleCoordinator_Transfer_exchange() {
	ctx := context.Background()
	db, drop := exampleDatabase(ctx)
	defer drop()
	coord, err := transfer.NewCoordinator(db)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = coord.Close(ctx) }()
	if err := coord.Setup(ctx); err != nil {
		fmt.Println(err)
		return
	}
	for _, account := range []transfer.Account{
		{ID: "alice-eur", Currency: "EUR", Balance: decimal("100.00")},
		{ID: "alice-usd", Currency: "USD", Balance: decimal("0.00")},
		{ID: "house-eur", Currency: "EUR", Balance: decimal("0.00")},
		{ID: "house-usd", Currency: "USD", Balance: decimal("5000.00")},
	} {
		if _, err := coord.OpenAccount(ctx, account); err != nil {
			fmt.Println(err)
			return
		}
	}

	rec, err := coord.Transfer(ctx, transfer.Request{
		ID: "sale-7",
		Legs: []transfer.Leg{
			{Account: "alice-eur", Amount: decimal("-60.00"), Currency: "EUR"},
			{Account: "house-eur", Amount: decimal("60.00"), Currency: "EUR"},
			{Account: "house-usd", Amount: decimal("-65.10"), Currency: "USD"},
			{Account: "alice-usd", Amount: decimal("65.10"), Currency: "USD"},
		},
		Metadata: map[string]any{"quote": "q-1234", "rate": "1.0850"},
	})
	if err != nil {
		fmt.Println(err) // the house may be out of dollars: then no euros moved
		return
	}
	for _, leg := range rec.Legs {
		fmt.Println(leg.Account, leg.Amount, leg.Currency)
	}
	fmt.Println("at", rec.Metadata["rate"])

	dollars, err := coord.GetAccount(ctx, "alice-usd")
	fmt.Println("alice has", dollars.Balance, dollars.Currency, err)
	// Output:
	// alice-eur -60.00 EUR
	// house-eur 60.00 EUR
	// house-usd -65.10 USD
	// alice-usd 65.10 USD
	// at 1.0850
	// alice has 65.10 USD <nil>
}

// decimal returns a decimal amount for an example.
func decimal(text string) transfer.Amount {
	amount, err := transfer.ParseDecimal(text)
	if err != nil {
		panic(err)
	}
	return amount
}
