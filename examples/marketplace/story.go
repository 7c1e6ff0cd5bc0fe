// Command marketplace sells baskets with goods of several sellers.
// One transfer takes the price from the buyer, gives each seller their share, and gives
// the fee to the house.
// The accounts of the house are another ledger, in another database.
// All of these accounts change, or none does.
// What a buyer brings back is refunded by a part of the same legs: the seller gives back
// their share, and the house its fee.
//
// The environment variable MONGODB_URI is the connection string of the MongoDB server.
// This command starts the program with a server that ends with it:
//
//	go run ./internal/mongotest/withmongo go run ./examples/marketplace
//
// The program uses a database of its own, and prints what is in output.txt.
// The story is in story.go.
// The code in play.go connects to the server and drops the database at the end.
package main

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
)

// feePercent is the percentage of a price that the house takes.
const feePercent = 10

// story sells a basket of two sellers, and one that is refused, and takes goods back.
func story(ctx context.Context, db *mongo.Database) (err error) {
	// To keep the fees on another cluster, use the database of another client.
	// Nothing else changes.
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
	if err := m.returns(ctx); err != nil {
		return err
	}
	return m.balances(ctx)
}

// returns refunds the chair of the first basket, and then what is left of it.
func (m market) returns(ctx context.Context) error {
	fmt.Println("The chair is broken. Emil gives his share back, and the house its fee:")
	back, err := m.refund(ctx, "refund-1", "basket-1", "ann", item{"emil", 4995})
	if err != nil {
		return err
	}
	for _, leg := range back.Legs {
		fmt.Printf("  %6s  %s\n", leg.Amount, leg.Account)
	}
	fmt.Println("The chair is not refunded twice, and not for more than was paid:")
	if _, err = m.refund(ctx, "refund-2", "basket-1", "ann", item{"emil", 1}); !errors.Is(err, transfer.ErrReversalExceeds) {
		return errors.Join(errors.New("nothing of emil's is left to be refunded"), err)
	}
	fmt.Printf("  %v\n", err)
	fmt.Println("In the end the whole basket comes back:")
	if back, err = m.coord.Reverse(ctx, transfer.Reversal{ID: "refund-3", Of: "basket-1", All: true}); err != nil {
		return err
	}
	for _, leg := range back.Legs {
		fmt.Printf("  %6s  %s\n", leg.Amount, leg.Account)
	}
	return nil
}

// market holds the two ledgers.
// The accounts of buyers and sellers are in the default ledger, and those of the house
// are in a ledger of its own.
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

// item is one thing that a seller sells, with its price in cents.
type item struct {
	seller string
	price  int64
}

// sell makes the transfer that pays for a basket.
// For each item, the buyer pays the price, the house gets its percentage, and the seller
// gets the rest.
// The legs of an item sum to zero, even where the fee is rounded.
// So all legs together sum to zero, as those of a transfer must.
// The library adds up the legs of an account.
func (m market) sell(ctx context.Context, id, buyer string, basket ...item) (transfer.Record, error) {
	return m.coord.Transfer(ctx, transfer.Request{ID: id, Legs: legsOf(buyer, basket)})
}

// refund takes goods of a basket back: their legs, the other way round.
func (m market) refund(ctx context.Context, id, basket, buyer string, returned ...item) (transfer.Record, error) {
	legs := legsOf(buyer, returned)
	for i := range legs {
		legs[i].Amount = legs[i].Amount.Neg()
	}
	return m.coord.Reverse(ctx, transfer.Reversal{ID: id, Of: basket, Legs: legs})
}

// legsOf returns the legs of a basket.
func legsOf(buyer string, basket []item) (legs []transfer.Leg) {
	for _, it := range basket {
		fee := it.price * feePercent / 100 // rounded down, in favour of the seller
		legs = append(legs,
			transfer.Leg{Account: buyer, Amount: transfer.Units(-it.price)},
			transfer.Leg{Account: it.seller, Amount: transfer.Units(it.price - fee)},
		)
		if fee > 0 {
			legs = append(legs, transfer.Leg{Ledger: "house", Account: "fees", Amount: transfer.Units(fee)})
		}
	}
	return legs
}

// balances prints the balances of all accounts.
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
