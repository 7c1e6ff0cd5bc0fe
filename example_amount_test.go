package transfer_test

import (
	"encoding/json"
	"fmt"

	"github.com/mongotransfer/transfer"
)

// A sum begins with the zero value, whichever kind is added.
// Of what can't be added there is an error, never a wrong number.
func ExampleAmount_Add() {
	var total transfer.Amount
	for _, text := range []string{"12.50", "0.75", "-3.25"} {
		price, err := transfer.ParseDecimal(text)
		if err != nil {
			fmt.Println(err)
			return
		}
		if total, err = total.Add(price); err != nil {
			fmt.Println(err)
			return
		}
	}
	n, whole := total.Int64()
	fmt.Println(total, n, whole)
	_, err := total.Add(transfer.Units(1))
	fmt.Println(err)
	// Output:
	// 10.00 10 true
	// whole units and decimals can't be added
}

// Units are a number in JSON, and decimals a string.
// JavaScript rounds a number beyond 2^53, which a balance may be: send that as text.
func ExampleAmount_MarshalJSON() {
	price, err := transfer.ParseDecimal("12.50")
	if err != nil {
		fmt.Println(err)
		return
	}
	balance := transfer.Units(9_007_199_254_740_993)
	text, err := json.Marshal(map[string]any{
		"units": transfer.Units(6_000), "price": price, "balance": balance.String(),
	})
	fmt.Println(string(text), err)
	// Output:
	// {"balance":"9007199254740993","price":"12.50","units":6000} <nil>
}
