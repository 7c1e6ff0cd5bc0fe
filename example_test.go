package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// The first day: set up, recover, work, open accounts, move money, and end in good order.
func Example() {
	if err := firstDay(context.Background(), mongotest.URI()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// deposit-1 Success
	// order-17 Success
	// order-17 Success
	// order-18 Fail, nothing moved: insufficient funds
	// alice has 4000
}

func firstDay(ctx context.Context, uri string) (err error) {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	db := client.Database("example_" + bson.NewObjectID().Hex())
	coord, err := transfer.NewCoordinator(db) // collections "accounts" and "transfers"
	if err != nil {
		return err
	}
	working, stopWorking := context.WithCancel(ctx)
	var worker sync.WaitGroup
	defer func() {
		stopWorking()
		worker.Wait()
		closing, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		// Close finishes what the coordinator has begun. What it can't, another process
		// recovers.
		err = errors.Join(err, coord.Close(closing), db.Drop(closing), client.Disconnect(closing))
	}()
	if err := coord.Setup(ctx); err != nil {
		return err
	}
	if _, err := coord.Recover(ctx); err != nil { // finishes what has stalled
		return err
	}
	worker.Go(func() { // and what stalls from now on
		if err := coord.Run(working); err != nil {
			fmt.Println("worker:", err)
		}
	})
	return moveMoney(ctx, coord)
}

func moveMoney(ctx context.Context, coord *transfer.Coordinator) error {
	for _, account := range []transfer.Account{{ID: "world", NoFloor: true}, {ID: "alice"}, {ID: "bob"}} {
		if _, err := coord.OpenAccount(ctx, account); err != nil {
			return err
		}
	}
	deposit := transfer.Request{ID: "deposit-1", From: "world", To: "alice", Amount: transfer.Units(10_000)}
	order := transfer.Request{ID: "order-17", From: "alice", To: "bob", Amount: transfer.Units(6_000)}
	another := transfer.Request{ID: "order-18", From: "alice", To: "bob", Amount: transfer.Units(6_000)}
	for _, req := range []transfer.Request{deposit, order, order, another} {
		rec, err := coord.Transfer(ctx, req)
		switch {
		case err == nil:
			fmt.Println(rec.ID, rec.State)
		case errors.Is(err, transfer.ErrInsufficientFunds):
			fmt.Printf("%s %s, nothing moved: %s\n", rec.ID, rec.State, rec.Failure.Message)
		default: // for ErrInDoubt: ask again with the same ID
			return err
		}
	}
	alice, err := coord.GetAccount(ctx, "alice")
	if err != nil {
		return err
	}
	fmt.Println("alice has", alice.Balance)
	return nil
}

// exampleDatabase returns a database for an example, and a function that drops it. Examples have no test that could fail: this panics.
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

// exampleAccounts opens accounts for an example: alice has 100, bob has nothing.
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

// exampleBank returns a coordinator over a database for an example, in which alice has 100 and bob has nothing.
func exampleBank(ctx context.Context) (coord *transfer.Coordinator, end func()) {
	db, drop := exampleDatabase(ctx)
	coord, err := transfer.NewCoordinator(db)
	if err != nil {
		panic(err)
	}
	exampleAccounts(ctx, coord)
	return coord, func() {
		_ = coord.Close(ctx)
		drop()
	}
}

// What is there is moved, up to the amount: the record says how much that was. Where nothing is there, the transfer is refused.
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
			fmt.Println(rec.ID, rec.State, rec.Legs[1].Amount) // the second leg is bob's
		case errors.Is(err, transfer.ErrInsufficientFunds):
			fmt.Println(rec.ID, rec.State, rec.Failure.Message)
		default:
			fmt.Println(err)
		}
	}
	// Output:
	// sweep-1 Success 100
	// sweep-2 Fail insufficient funds
}

// An order is paid as its payment is committed. The second payment is refused: the order is not unpaid any more.
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
			fmt.Println(rec.ID, rec.State)
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
	// payment-1 Success
	// payment-2 Fail, nothing moved: status of order-17 is paid
	// order-17 is paid <nil>
}

// An account's statement, and what it was opened with.
func ExampleCoordinator_Statement() {
	if err := printStatement(context.Background(), mongotest.URI()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// order-17  -6000  13000
	// order-18  -2500  10500
	// refund     +500  11000
	// opened with 19000
}

func printStatement(ctx context.Context, uri string) error {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(ctx) }()
	db := client.Database("example_" + bson.NewObjectID().Hex())
	defer func() { _ = db.Drop(ctx) }()
	coord, err := transfer.NewCoordinator(db)
	if err != nil {
		return err
	}
	defer func() { _ = coord.Close(ctx) }()
	if err := coord.Setup(ctx); err != nil {
		return err
	}
	for _, a := range []transfer.Account{{ID: "alice", Balance: transfer.Units(19_000)}, {ID: "shop"}} {
		if _, err := coord.OpenAccount(ctx, a); err != nil {
			return err
		}
	}
	for _, req := range []transfer.Request{
		{ID: "order-17", From: "alice", To: "shop", Amount: transfer.Units(6_000)},
		{ID: "order-18", From: "alice", To: "shop", Amount: transfer.Units(2_500)},
		{ID: "refund", From: "shop", To: "alice", Amount: transfer.Units(500)},
	} {
		if _, err := coord.Transfer(ctx, req); err != nil {
			return err
		}
	}

	var first transfer.Entry
	for entry, err := range coord.Statement(ctx, "alice", transfer.StatementQuery{}) {
		if err != nil {
			return err
		}
		sign := ""
		if entry.Amount.Cmp(transfer.Units(0)) > 0 {
			sign = "+"
		}
		fmt.Printf("%-9s %5s  %s\n", entry.TransferID, sign+entry.Amount.String(), entry.Balance)
		if first.TransferID == "" {
			first = entry
		}
	}
	opened, err := coord.BalanceAt(ctx, "alice", first.At.Add(-1))
	if err != nil {
		return err
	}
	fmt.Println("opened with", opened)
	return nil
}

// An account was restored from a backup that was made while a transfer was under way, whose document is gone: the audit shows its marker,
// and that 60 are missing. The operator decides that the transfer has not happened.
func ExampleCoordinator_Audit() {
	if err := auditAndRepair(context.Background(), mongotest.URI()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// orphanMarker: account "alice": a marker of -60 for transfer "order-17", which does not exist; the balance is 40
	// wrongTotal: all ledgers, currency "": the balances sum to 40, and 0 are in transit: that is -60 off what was expected, 100
	// after the repair: 0 findings, the balances sum to 100
}

func auditAndRepair(ctx context.Context, uri string) error {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(ctx) }()
	db := client.Database("example_" + bson.NewObjectID().Hex())
	defer func() { _ = db.Drop(ctx) }()
	restored := bson.M{"_id": "alice", "balance": int64(40), "pending": bson.M{"order-17": int64(-60)}}
	if _, err := db.Collection("accounts").InsertOne(ctx, restored); err != nil {
		return err
	}

	coord, err := transfer.NewCoordinator(db)
	if err != nil {
		return err
	}
	defer func() { _ = coord.Close(ctx) }()
	if err := coord.Setup(ctx); err != nil {
		return err
	}
	expected := transfer.AuditOptions{Expected: []transfer.ExpectedTotal{{Sum: transfer.Units(100)}}}
	report, err := coord.AuditWith(ctx, expected)
	if err != nil {
		return err
	}
	for _, f := range report.Findings {
		fmt.Printf("%s: %s\n", f.Code, f.Detail)
	}
	f := report.Findings[0]
	if err := coord.RepairMarker(ctx, transfer.MarkerRepair{
		Ledger: f.Ledger, Account: f.Account, TransferID: f.TransferID, Amount: f.Amount,
		Decision: transfer.PayIn, // the money has gone nowhere: it is given back
		Reason:   "order 17 was never shipped",
	}); err != nil {
		return err
	}
	if report, err = coord.AuditWith(ctx, expected); err != nil {
		return err
	}
	fmt.Printf("after the repair: %d findings, the balances sum to %s\n", len(report.Findings), report.Ledgers[0].Total)
	return nil
}
