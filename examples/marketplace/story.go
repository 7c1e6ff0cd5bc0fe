// Command marketplace sells baskets of several sellers' goods. One transfer takes the
// price from the buyer, gives each seller their share, and the fee to the house, whose
// accounts are another ledger, in another database: all of it or nothing.
//
// The environment variable MONGODB_URI names the MongoDB server. With one just for the
// occasion:
//
//	go run ./internal/mongotest/withmongo go run ./examples/marketplace
//
// It plays in a database of its own, and tells what is in output.txt. The story is in
// story.go; play.go connects, and cleans up.
package main

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
)

// feePercent is what the house takes of a price.
const feePercent = 10

func story(ctx context.Context, db *mongo.Database) (err error) {
	// With the database of another client the fees would be in another cluster, and nothing else would be different.
	house := db.Client().Database(db.Name() + "_house")
	defer func() { err = errors.Join(err, house.Drop(context.WithoutCancel(ctx))) }()
	fees := house.Collection("accounts")
	coord, err := transfer.NewCoordinator(db, transfer.WithLedger("house", fees))
	if err != nil {
		return err
	}
	defer func() { _ = coord.Close(ctx) }()
	if err := coord.Setup(ctx); err != nil {
		return err
	}
	m, err := open(ctx, coord)
	if err != nil {
		return err
	}

	fmt.Println("Buyer ann has 10000 cents. She buys a book of dora for 2999 and a chair of emil for 4995.")
	bought, err := m.sell(ctx, "basket-1", "ann", item{"dora", 2999}, item{"emil", 4995})
	if err != nil {
		return err
	}
	for _, leg := range bought.Legs {
		fmt.Printf("  %6s  %s\n", leg.Amount, leg.Account)
	}

	if err := coord.CloseAccount(ctx, "felix"); err != nil {
		return err
	}
	fmt.Println("Seller felix leaves the market. A basket with something of his is refused as a whole:")
	_, err = m.sell(ctx, "basket-2", "ann", item{"dora", 500}, item{"felix", 800})
	var refused *transfer.RefusedError
	if !errors.As(err, &refused) {
		return errors.Join(errors.New("the basket should be refused"), err)
	}
	fmt.Printf("  %s: %v\n", refused.Account, refused.Err)
	return m.balances(ctx)
}

// market has the accounts of buyers and sellers in the default ledger, and those of the house in a ledger of its own.
type market struct {
	coord         *transfer.Coordinator
	people, house *transfer.Ledger
}

// open opens the accounts of both ledgers.
func open(ctx context.Context, coord *transfer.Coordinator) (m market, err error) {
	m.coord = coord
	if m.people, err = coord.Ledger(""); err != nil {
		return m, err
	}
	if m.house, err = coord.Ledger("house"); err != nil {
		return m, err
	}
	for _, account := range []transfer.Account{{ID: "ann", Balance: transfer.Units(10_000)}, {ID: "dora"}, {ID: "emil"}, {ID: "felix"}} {
		if _, err := m.people.Open(ctx, account); err != nil {
			return m, err
		}
	}
	_, err = m.house.Open(ctx, transfer.Account{ID: "fees"})
	return m, err
}

// item is something of a seller's, with its price in cents.
type item struct {
	seller string
	price  int64
}

// sell is the rule of the market: the buyer pays each price, the house takes its percentage, and what is left is the seller's. The legs
// of an item sum to zero, whatever was rounded, and so do all together, as a transfer's must. Those of one account become one.
func (m market) sell(ctx context.Context, id, buyer string, basket ...item) (transfer.Record, error) {
	var legs []transfer.Leg
	for _, it := range basket {
		fee := it.price * feePercent / 100 // rounded down, in favour of the seller
		legs = append(legs,
			transfer.Leg{Account: buyer, Amount: transfer.Units(-it.price)},
			transfer.Leg{Account: it.seller, Amount: transfer.Units(it.price - fee)},
			transfer.Leg{Ledger: "house", Account: "fees", Amount: transfer.Units(fee)},
		)
	}
	return m.coord.Transfer(ctx, transfer.Request{ID: id, Legs: legs})
}

func (m market) balances(ctx context.Context) error {
	fmt.Println("The balances:")
	for _, place := range []struct {
		ledger *transfer.Ledger
		ids    []string
	}{
		{m.people, []string{"ann", "dora", "emil", "felix"}},
		{m.house, []string{"fees"}},
	} {
		for _, id := range place.ids {
			account, err := place.ledger.Get(ctx, id)
			if err != nil {
				return err
			}
			fmt.Printf("  %6s  %s\n", account.Balance, id)
		}
	}
	return nil
}
