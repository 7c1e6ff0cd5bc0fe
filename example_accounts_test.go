package transfer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/mongotransfer/transfer"
)

// The accounts are walked through in pages of two.
// Another process could go on with the next page.
func ExampleCoordinator_Accounts() {
	ctx := context.Background()
	coord, end := exampleBank(ctx) // alice has 100, bob has nothing
	defer end()
	for _, id := range []string{"carol", "dave", "erin"} {
		if _, err := coord.OpenAccount(ctx, transfer.Account{ID: id, Balance: transfer.Units(5)}); err != nil {
			fmt.Println(err)
			return
		}
	}

	query := transfer.AccountQuery{Limit: 2}
	for page := 1; ; page++ {
		count := 0
		for account, err := range coord.Accounts(ctx, query) {
			if err != nil {
				fmt.Println(err)
				return
			}
			fmt.Printf("page %d: %-5s %3s\n", page, account.ID, account.Balance)
			query.Beyond = account.ID
			count++
		}
		if count < query.Limit {
			return
		}
	}
	// Output:
	// page 1: alice 100
	// page 1: bob     0
	// page 2: carol   5
	// page 2: dave    5
	// page 3: erin    5
}

// An account is frozen, and unfrozen with a higher floor.
func ExampleCoordinator_UpdateAccount() {
	ctx := context.Background()
	coord, end := exampleBank(ctx) // alice has 100, bob has nothing
	defer end()

	yes, no, floor := true, false, transfer.Units(50)
	account, err := coord.UpdateAccount(ctx, "alice", transfer.AccountChange{
		Frozen: &yes, Metadata: map[string]any{"case": "2026-114"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(account.ID, "is frozen:", account.Frozen, account.Metadata["case"])

	pay := func(id string) {
		_, err := coord.Transfer(ctx, transfer.Request{ID: id, From: "alice", To: "bob", Amount: transfer.Units(60)})
		switch {
		case errors.Is(err, transfer.ErrAccountFrozen):
			fmt.Println(id, "is refused: the account is frozen")
		case errors.Is(err, transfer.ErrInsufficientFunds):
			fmt.Println(id, "is refused: 50 have to stay")
		default:
			fmt.Println(id, err)
		}
	}
	pay("rent-1")
	if _, err = coord.UpdateAccount(ctx, "alice", transfer.AccountChange{Frozen: &no, Floor: &floor}); err != nil {
		fmt.Println(err)
		return
	}
	pay("rent-2")
	// Output:
	// alice is frozen: true 2026-114
	// rent-1 is refused: the account is frozen
	// rent-2 is refused: 50 have to stay
}
