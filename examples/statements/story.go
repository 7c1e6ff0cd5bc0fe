// Command statements writes a statement for every wallet, each night.
// It keeps no list of the wallets and none of their entries, so it needs the same memory
// for ten wallets and for ten million.
// A night that is cut short goes on where it was.
// All statements are of the same day, however long the writing takes and whatever moves
// meanwhile.
//
// The environment variable MONGODB_URI is the connection string of the MongoDB server.
// This command starts the program with a server that ends with it:
//
//	go run ./internal/mongotest/withmongo go run ./examples/statements
//
// The program uses a database of its own, and prints what is in output.txt.
// The story is in story.go, and the night's work in night.go.
// The code in play.go connects to the server and drops the database at the end.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
)

// walletCount is the number of wallets: more than a list of accounts reads at once.
const walletCount = 300

// story moves money, and writes the statements of the day in two runs.
func story(ctx context.Context, db *mongo.Database) (err error) {
	coord, err := transfer.NewCoordinator(db, transfer.WithLedger(wallets, db.Collection(wallets)))
	if err != nil {
		return err
	}
	defer func() { _ = coord.Close(ctx) }()
	if err := coord.Setup(ctx); err != nil {
		return err
	}
	ledger, err := open(ctx, coord)
	if err != nil {
		return err
	}
	fmt.Printf("There are %d wallets. Each is given 100, and some pay their number to the shop.\n", walletCount)
	end, err := day(ctx, coord)
	if err != nil {
		return err
	}

	folder, err := os.MkdirTemp("", "statements")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	n := night{coord: coord, wallets: ledger, progress: db.Collection("nights"), folder: folder, end: end}

	fmt.Println("The statements of the day are written, and after 170 of them the machine is taken away.")
	run, cut := context.WithCancel(ctx)
	n.written = func(count int) {
		if count == 170 {
			cut()
		}
	}
	count, err := n.run(run)
	cut()
	if !errors.Is(err, context.Canceled) {
		return errors.Join(errors.New("the run should be cut short"), err)
	}
	fmt.Printf("  %d statements\n", count)

	fmt.Println("Meanwhile wallet-200 pays another 50. That is tomorrow's.")
	if _, err := coord.Transfer(ctx, payment("tomorrow", 200, 50)); err != nil {
		return err
	}

	fmt.Println("Another machine goes on:")
	n.written = func(int) {}
	if count, err = n.run(ctx); err != nil {
		return err
	}
	fmt.Printf("  %d statements\n", count)
	return n.show("wallet-007", "wallet-200")
}

// open opens the wallets, in a ledger of their own, and the accounts of the shop and of
// the outside world.
func open(ctx context.Context, coord *transfer.Coordinator) (*transfer.Ledger, error) {
	for _, account := range []transfer.Account{{ID: "shop"}, {ID: "world", NoFloor: true}} {
		if _, err := coord.OpenAccount(ctx, account); err != nil {
			return nil, err
		}
	}
	ledger, err := coord.Ledger(wallets)
	if err != nil {
		return nil, err
	}
	for i := range walletCount {
		if _, err := ledger.Open(ctx, transfer.Account{ID: name(i)}); err != nil {
			return nil, err
		}
	}
	return ledger, nil
}

// name returns the ID of a wallet.
func name(i int) string { return fmt.Sprintf("wallet-%03d", i) }

// day moves the money of a day, and returns an instant after all of it, by the server's
// clock.
func day(ctx context.Context, coord *transfer.Coordinator) (time.Time, error) {
	var gifts, payments []transfer.Request
	for i := range walletCount {
		gifts = append(gifts, transfer.Request{ID: "gift-" + name(i), Legs: []transfer.Leg{
			{Account: "world", Amount: transfer.Units(-100)}, {Ledger: wallets, Account: name(i), Amount: transfer.Units(100)},
		}})
		if i > 0 && i <= 100 {
			payments = append(payments, payment("payment-"+name(i), i, int64(i)))
		}
	}
	for _, requests := range [][]transfer.Request{gifts, payments} {
		if _, errs := coord.TransferMany(ctx, requests); errors.Join(errs...) != nil {
			return time.Time{}, errors.Join(errs...)
		}
	}
	for last, err := range coord.Statement(ctx, "shop", transfer.StatementQuery{NewestFirst: true, Limit: 1}) {
		return last.At.Add(time.Millisecond), err
	}
	return time.Time{}, errors.New("nothing was paid")
}

// payment is what a wallet pays to the shop.
func payment(id string, wallet int, units int64) transfer.Request {
	return transfer.Request{ID: id, Legs: []transfer.Leg{
		{Ledger: wallets, Account: name(wallet), Amount: transfer.Units(-units)}, {Account: "shop", Amount: transfer.Units(units)},
	}}
}
