package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongotransfer/transfer"
)

// Funds are reserved when a room is booked. They are off what can be spent, and nothing has arrived.
func ExampleCoordinator_Hold() {
	ctx := context.Background()
	coord, end := exampleBank(ctx) // alice has 100, bob has nothing
	defer end()

	rec, err := coord.Hold(ctx, transfer.Request{
		ID: "booking-7", From: "alice", To: "bob", Amount: transfer.Units(60),
	}, 7*24*time.Hour)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(rec.ID, rec.State)

	for _, id := range []string{"alice", "bob"} {
		account, err := coord.GetAccount(ctx, id)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s: available %s, posted %s, incoming %s\n", id, account.Available, account.Posted, account.Incoming)
	}
	// Output:
	// booking-7 Preparing
	// alice: available 40, posted 100, incoming 0
	// bob: available 0, posted 0, incoming 60
}

// A hold is posted, however often it is asked for. Then it is too late to void it.
func ExampleCoordinator_Post() {
	ctx := context.Background()
	coord, end := exampleBank(ctx) // alice has 100, bob has nothing
	defer end()

	booking := transfer.Request{ID: "booking-7", From: "alice", To: "bob", Amount: transfer.Units(60)}
	if _, err := coord.Hold(ctx, booking, 7*24*time.Hour); err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		rec, err := coord.Post(ctx, "booking-7")
		fmt.Println(rec.State, err)
	}
	_, err := coord.Void(ctx, "booking-7")
	fmt.Println("void:", errors.Is(err, transfer.ErrAlreadyCommitted))

	bob, err := coord.GetAccount(ctx, "bob")
	fmt.Println("bob has", bob.Balance, err)
	// Output:
	// Success <nil>
	// Success <nil>
	// void: true
	// bob has 60 <nil>
}

// Less is posted than was held. The rest goes back in the same step.
func ExamplePostAmount() {
	ctx := context.Background()
	coord, end := exampleBank(ctx) // alice has 100, bob has nothing
	defer end()

	booking := transfer.Request{ID: "booking-7", From: "alice", To: "bob", Amount: transfer.Units(60)}
	if _, err := coord.Hold(ctx, booking, 7*24*time.Hour); err != nil {
		fmt.Println(err)
		return
	}
	rec, err := coord.Post(ctx, "booking-7", transfer.PostAmount(transfer.Units(45)))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, leg := range rec.Legs {
		fmt.Println(leg.Account, leg.Amount)
	}
	alice, err := coord.GetAccount(ctx, "alice")
	fmt.Println("alice has", alice.Balance, err)
	// Output:
	// alice -45
	// bob 45
	// alice has 55 <nil>
}

// A hold is voided, and the money goes back. It can't be posted any more.
func ExampleCoordinator_Void() {
	ctx := context.Background()
	coord, end := exampleBank(ctx) // alice has 100, bob has nothing
	defer end()

	booking := transfer.Request{ID: "booking-7", From: "alice", To: "bob", Amount: transfer.Units(60)}
	if _, err := coord.Hold(ctx, booking, 7*24*time.Hour); err != nil {
		fmt.Println(err)
		return
	}
	rec, err := coord.Void(ctx, "booking-7")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(rec.State, rec.Failure.Code)

	_, err = coord.Post(ctx, "booking-7")
	fmt.Println("post:", errors.Is(err, transfer.ErrCancelled))

	alice, err := coord.GetAccount(ctx, "alice")
	fmt.Println("alice has", alice.Balance, err)
	// Output:
	// Fail voided
	// post: true
	// alice has 100 <nil>
}

// Cancel takes back whatever is not committed yet, a hold among others, and stores the reason.
func ExampleCoordinator_Cancel() {
	ctx := context.Background()
	coord, end := exampleBank(ctx) // alice has 100, bob has nothing
	defer end()

	booking := transfer.Request{ID: "booking-7", From: "alice", To: "bob", Amount: transfer.Units(60)}
	if _, err := coord.Hold(ctx, booking, 7*24*time.Hour); err != nil {
		fmt.Println(err)
		return
	}
	rec, err := coord.Cancel(ctx, "booking-7", "the hotel has closed")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s %s: %s\n", rec.State, rec.Failure.Code, rec.Failure.Message)

	alice, err := coord.GetAccount(ctx, "alice")
	fmt.Println("alice has", alice.Balance, err)
	// Output:
	// Fail cancelled: the hotel has closed
	// alice has 100 <nil>
}
