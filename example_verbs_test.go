package transfer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// exampleDatabase returns a database for an example, and a function that drops it.
// It panics on errors, since an example has no test to fail.
func exampleDatabase(ctx context.Context) (db *mongo.Database, end func()) {
	client, err := mongo.Connect(options.Client().ApplyURI(mongotest.URI()))
	if err != nil {
		panic(err)
	}
	db = client.Database("example_" + bson.NewObjectID().Hex())
	return db, func() {
		_ = db.Drop(ctx)
		_ = client.Disconnect(ctx)
	}
}

// exampleAccounts opens two accounts for an example: alice has 100, bob has nothing.
func exampleAccounts(ctx context.Context, coord *transfer.Coordinator) {
	if err := coord.Setup(ctx); err != nil {
		panic(err)
	}
	for _, account := range []transfer.Account{{ID: "alice", Balance: transfer.Units(100)}, {ID: "bob"}} {
		if _, err := coord.OpenAccount(ctx, account); err != nil {
			panic(err)
		}
	}
}

// exampleBank returns a coordinator over a database for an example, in which alice has
// 100 and bob has nothing.
func exampleBank(ctx context.Context, opts ...transfer.Option) (coord *transfer.Coordinator, end func()) {
	db, drop := exampleDatabase(ctx)
	coord, err := transfer.NewCoordinator(db, opts...)
	if err != nil {
		panic(err)
	}
	exampleAccounts(ctx, coord)
	return coord, func() {
		_ = coord.Close(ctx)
		drop()
	}
}

// Funds are reserved when a room is booked.
// They can't be spent any more, and nothing has arrived yet.
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

// A hold is posted once, however often Post is called. After that it can't be voided.
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
		fmt.Println("posted:", rec.State.Decided(), err)
	}
	_, err := coord.Void(ctx, "booking-7")
	fmt.Println("void:", errors.Is(err, transfer.ErrAlreadyCommitted))

	bob, err := coord.GetAccount(ctx, "bob")
	fmt.Println("bob has", bob.Balance, err)
	// Output:
	// posted: true <nil>
	// posted: true <nil>
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
	fmt.Println("posted", rec.Posted, "of", rec.Legs[1].Amount) // the second leg is bob's
	alice, err := coord.GetAccount(ctx, "alice")
	fmt.Println("alice has", alice.Balance, err)
	// Output:
	// posted 45 of 60
	// alice has 55 <nil>
}

// An order is paid for in parts, as they are shipped, and the shop pays a fee on each.
// The hold is posted once, to an account of the order's own, and each part is a transfer
// from there. What is not shipped goes back.
func ExampleCoordinator_Post_inParts() {
	ctx := context.Background()
	coord, end := exampleBank(ctx) // alice has 100, bob has nothing
	defer end()
	for _, id := range []string{"order-17", "fees"} {
		if _, err := coord.OpenAccount(ctx, transfer.Account{ID: id}); err != nil {
			fmt.Println(err)
			return
		}
	}

	order := transfer.Request{ID: "order-17", From: "alice", To: "order-17", Amount: transfer.Units(60)}
	if _, err := coord.Hold(ctx, order, 7*24*time.Hour); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := coord.Post(ctx, "order-17"); err != nil { // the first part is shipped
		fmt.Println(err)
		return
	}
	for _, part := range []transfer.Request{
		{ID: "order-17/1", Legs: legs("order-17", -40, "bob", 38, "fees", 2)},
		{ID: "order-17/2", Legs: legs("order-17", -15, "bob", 14, "fees", 1)},
		{ID: "order-17/rest", From: "order-17", To: "alice", Amount: transfer.Units(5)},
	} {
		if _, err := coord.Transfer(ctx, part); err != nil {
			fmt.Println(err)
			return
		}
	}
	for _, id := range []string{"alice", "bob", "fees", "order-17"} {
		account, err := coord.GetAccount(ctx, id)
		fmt.Println(id, account.Balance, err)
	}
	// Output:
	// alice 45 <nil>
	// bob 52 <nil>
	// fees 3 <nil>
	// order-17 0 <nil>
}

// legs returns three movements.
func legs(a string, x int64, b string, y int64, c string, z int64) []transfer.Leg {
	return []transfer.Leg{
		{Account: a, Amount: transfer.Units(x)}, {Account: b, Amount: transfer.Units(y)}, {Account: c, Amount: transfer.Units(z)},
	}
}

// A guest stays for longer, and the hold lasts for longer. A day later it could be posted
// as before.
func ExampleCoordinator_Extend() {
	ctx := context.Background()
	coord, end := exampleBank(ctx) // alice has 100, bob has nothing
	defer end()

	booking := transfer.Request{ID: "booking-7", From: "alice", To: "bob", Amount: transfer.Units(60)}
	held, err := coord.Hold(ctx, booking, 24*time.Hour)
	if err != nil {
		fmt.Println(err)
		return
	}
	rec, err := coord.Extend(ctx, "booking-7", 7*24*time.Hour)
	fmt.Println("held:", rec.Held, err)
	fmt.Println("six days longer:", rec.ExpiresAt.Sub(held.ExpiresAt) >= 6*24*time.Hour)

	_, err = coord.Extend(ctx, "booking-7", time.Hour)
	fmt.Println("for an hour only:", errors.Is(err, transfer.ErrInvalidRequest))

	if _, err := coord.Post(ctx, "booking-7"); err != nil {
		fmt.Println(err)
		return
	}
	_, err = coord.Extend(ctx, "booking-7", 14*24*time.Hour)
	fmt.Println("posted:", errors.Is(err, transfer.ErrAlreadyCommitted))
	// Output:
	// held: true <nil>
	// six days longer: true
	// for an hour only: true
	// posted: true
}

// A hold is voided, and the money goes back. After that it can't be posted.
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

// Cancel takes back a transfer that is not committed yet, here a hold, and stores the
// reason.
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

// A payment of 60 is refunded in parts. More than what is left is refused, and leaves the
// ID free. What is left is taken back at last.
func ExampleCoordinator_Reverse() {
	ctx := context.Background()
	coord, end := exampleBank(ctx) // alice has 100, bob has nothing
	defer end()

	payment := transfer.Request{ID: "payment-1", From: "alice", To: "bob", Amount: transfer.Units(60)}
	if _, err := coord.Transfer(ctx, payment); err != nil {
		fmt.Println(err)
		return
	}
	for _, refund := range []transfer.Reversal{
		{ID: "refund-1", Of: "payment-1", Amount: transfer.Units(25)},
		{ID: "refund-2", Of: "payment-1", Amount: transfer.Units(40)},
		{ID: "refund-2", Of: "payment-1", All: true},
		{ID: "refund-3", Of: "payment-1", All: true},
	} {
		rec, err := coord.Reverse(ctx, refund)
		switch {
		case err == nil:
			fmt.Println(rec.ID, "moved", rec.Legs[0].Amount, "to", rec.Legs[0].Account)
		case errors.Is(err, transfer.ErrInsufficientFunds): // the money is spent: try again later, under another ID
			fmt.Println(rec.ID, rec.State)
		case errors.Is(err, transfer.ErrReversalExceeds): // rec is the payment's record
			fmt.Println(refund.ID, "is too much:", rec.Reversed, "of 60 are reversed")
		case errors.Is(err, transfer.ErrAlreadyReversed):
			fmt.Println(refund.ID, "is too late:", rec.ReversedBy, "took the last of it")
		default:
			fmt.Println(err)
		}
	}
	alice, err := coord.GetAccount(ctx, "alice")
	fmt.Println("alice has", alice.Balance, err)
	// Output:
	// refund-1 moved 25 to alice
	// refund-2 is too much: 25 of 60 are reversed
	// refund-2 moved 35 to alice
	// refund-3 is too late: refund-2 took the last of it
	// alice has 100 <nil>
}

// inBank runs a story over a database of its own, in which alice has 10,000 and bob has
// nothing.
func inBank(story func(context.Context, *mongo.Database, *transfer.Coordinator) error, opts ...transfer.Option) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client, err := mongo.Connect(options.Client().ApplyURI(mongotest.URI()))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(ctx) }()
	db := client.Database("example_" + bson.NewObjectID().Hex())
	defer func() { _ = db.Drop(ctx) }()
	coord, err := transfer.NewCoordinator(db, opts...)
	if err != nil {
		return err
	}
	defer func() { _ = coord.Close(ctx) }()
	if err := coord.Setup(ctx); err != nil {
		return err
	}
	for _, a := range []transfer.Account{{ID: "alice", Balance: transfer.Units(10_000)}, {ID: "bob"}} {
		if _, err := coord.OpenAccount(ctx, a); err != nil {
			return err
		}
	}
	return story(ctx, db, coord)
}

// A scheduled payment waits for its time by the server's clock. A worker of this or
// another process then runs it.
func ExampleCoordinator_Submit() {
	err := inBank(func(ctx context.Context, _ *mongo.Database, coord *transfer.Coordinator) error {
		working, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- coord.Run(working) }()
		for id, wait := range map[string]time.Duration{"soon": 200 * time.Millisecond, "tomorrow": 24 * time.Hour} {
			_, err := coord.Submit(ctx, transfer.Request{
				ID: id, From: "alice", To: "bob", Amount: transfer.Units(100), NotBefore: time.Now().Add(wait),
			})
			if err != nil {
				return err
			}
		}
		rec, err := coord.Wait(ctx, "soon")
		if err != nil {
			return err
		}
		fmt.Println(rec.ID, rec.State)
		rec, err = coord.Get(ctx, "tomorrow")
		if err != nil {
			return err
		}
		fmt.Println(rec.ID, rec.State)
		rec, err = coord.Cancel(ctx, "tomorrow", "paid in cash")
		if err != nil {
			return err
		}
		fmt.Println(rec.ID, rec.State, rec.Failure.Message)
		stop()
		return <-ended
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// soon Success
	// tomorrow Initiated
	// tomorrow Fail paid in cash
}

// The transfer moves the money that is there, up to the amount, and the record says how
// much it was. Where there is nothing to move, the transfer is refused.
func ExampleRequest_atMost() {
	ctx := context.Background()
	coord, end := exampleBank(ctx) // alice has 100, bob has nothing
	defer end()

	for _, id := range []string{"sweep-1", "sweep-2"} {
		rec, err := coord.Transfer(ctx, transfer.Request{
			ID: id, From: "alice", To: "bob", Amount: transfer.Units(250), AtMost: true,
		})
		switch {
		case err == nil:
			fmt.Println(rec.ID, "moved", rec.Legs[1].Amount) // the second leg is bob's
		case errors.Is(err, transfer.ErrInsufficientFunds):
			fmt.Println(rec.ID, rec.State, rec.Failure.Message)
		default:
			fmt.Println(err)
		}
	}
	// Output:
	// sweep-1 moved 100
	// sweep-2 Fail insufficient funds
}

// An order becomes paid when its payment commits. The second payment is refused, because
// the order is no longer unpaid.
func ExampleEffect() {
	ctx := context.Background()
	db, drop := exampleDatabase(ctx)
	defer drop()

	orders := db.Collection("orders") // it may be in another database or cluster
	if _, err := orders.InsertOne(ctx, bson.D{{Key: "_id", Value: "order-17"}, {Key: "status", Value: "unpaid"}}); err != nil {
		fmt.Println(err)
		return
	}
	coord, err := transfer.NewCoordinator(db, transfer.WithDocuments("orders", orders))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = coord.Close(ctx) }()
	exampleAccounts(ctx, coord) // alice has 100, bob has nothing

	for _, id := range []string{"payment-1", "payment-2"} {
		rec, err := coord.Transfer(ctx, transfer.Request{
			ID: id, From: "alice", To: "bob", Amount: transfer.Units(40),
			Effects: []transfer.Effect{{
				Documents: "orders", ID: "order-17",
				Require: bson.D{{Key: "status", Value: "unpaid"}},
				Set:     bson.D{{Key: "status", Value: "paid"}, {Key: "paidBy", Value: id}},
			}},
		})
		var unmet *transfer.RequirementError
		switch {
		case err == nil:
			fmt.Println(rec.ID, "moved:", rec.State.Decided())
		case errors.As(err, &unmet):
			fmt.Printf("%s %s, nothing moved: %s of %v is %v\n", rec.ID, rec.State, unmet.Field, unmet.ID, unmet.Got)
		default:
			fmt.Println(err)
		}
	}
	var order struct{ Status string }
	err = orders.FindOne(ctx, bson.D{{Key: "_id", Value: "order-17"}}).Decode(&order)
	fmt.Println("order-17 is", order.Status, err)
	// Output:
	// payment-1 moved: true
	// payment-2 Fail, nothing moved: status of order-17 is paid
	// order-17 is paid <nil>
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

// inTheMiddle makes a transfer look as if its process had died after it was committed,
// and deletes an account, which it returns.
// The transfer must have reached StateSuccess: a coordinator that is still at work on it
// would finish it again.
func inTheMiddle(ctx context.Context, db *mongo.Database, id, account string) (bson.Raw, error) {
	open := bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: "Committed"}, {Key: "open", Value: true}}}}
	over := bson.D{{Key: "_id", Value: id}, {Key: "state", Value: "Success"}}
	if err := db.Collection("transfers").FindOneAndUpdate(ctx, over, open).Err(); err != nil {
		return nil, fmt.Errorf("a transfer %s in Success: %w", id, err)
	}
	due := bson.D{
		{Key: "$set", Value: bson.D{{Key: "pending." + id, Value: int64(6_000)}}}, {Key: "$inc", Value: bson.D{{Key: "balance", Value: -6_000}}},
	}
	if _, err := db.Collection("accounts").UpdateByID(ctx, account, due); err != nil {
		return nil, err
	}
	return db.Collection("accounts").FindOneAndDelete(ctx, bson.D{{Key: "_id", Value: account}}).Raw()
}
