// Command order pays the orders of a shop.
// A payment is a transfer with an effect: as the money moves, the order changes from
// UnPaid to Paid.
// Either both happen or neither does, even if a process crashes in between.
// So an order is paid once, even if several payments race for it.
// The shop needs no lock, no transaction, and no job that repairs what a crash leaves
// behind.
//
// The environment variable MONGODB_URI is the connection string of the MongoDB server.
// This command starts the program with a server that ends with it:
//
//	go run ./internal/mongotest/withmongo go run ./examples/order
//
// The program uses a database of its own, and prints what is in output.txt.
// The story is in story.go.
// The code in play.go connects to the server and drops the database at the end.
package main

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
)

// story opens two accounts, stores two orders, and pays them.
func story(ctx context.Context, db *mongo.Database) error {
	sh := shop{orders: db.Collection("orders")}
	// The coordinator changes orders, so it must know their collection.
	// The collection may be in any database, on any cluster.
	coord, err := transfer.NewCoordinator(db, transfer.WithDocuments("orders", sh.orders))
	if err != nil {
		return err
	}
	defer func() { _ = coord.Close(ctx) }()
	sh.coord = coord
	if err := coord.Setup(ctx); err != nil {
		return err
	}

	for _, account := range []transfer.Account{{ID: "ann", Balance: transfer.Units(200)}, {ID: "shop"}} {
		if _, err := coord.OpenAccount(ctx, account); err != nil {
			return err
		}
	}
	lamp := order{ID: "order-17", Buyer: "ann", Price: 60, Status: "UnPaid"}
	sofa := order{ID: "order-18", Buyer: "ann", Price: 900, Status: "UnPaid"}
	if _, err := sh.orders.InsertMany(ctx, []order{lamp, sofa}); err != nil {
		return err
	}
	fmt.Printf("Ann has 200. She has ordered a lamp for %d and a sofa for %d.\n", lamp.Price, sofa.Price)

	if err := sh.payTwice(ctx, lamp); err != nil {
		return err
	}
	fmt.Println("The next day she pays for the lamp once more.")
	if err := sh.payInVain(ctx, "phone-2", lamp, transfer.ErrRequirementFailed); err != nil {
		return err
	}
	fmt.Println("She pays for the sofa.")
	if err := sh.payInVain(ctx, "phone-3", sofa, transfer.ErrInsufficientFunds); err != nil {
		return err
	}
	return sh.balances(ctx, "ann", "shop")
}

// shop is a shop with its accounts and orders.
type shop struct {
	coord  *transfer.Coordinator
	orders *mongo.Collection
}

// order is the shop's own document.
// A payment sets status and paidBy, and keeps a marker in the document while it is in
// progress.
// The library changes nothing else.
type order struct {
	ID     string `bson:"_id"`
	Buyer  string `bson:"buyer"`
	Price  int64  `bson:"price"`
	Status string `bson:"status"`
	PaidBy string `bson:"paidBy,omitempty"`
}

// payment returns the transfer that pays an order.
// The buyer pays the price, and the order must be unpaid and becomes paid.
func payment(id string, o order) transfer.Request {
	return transfer.Request{
		ID: id, From: o.Buyer, To: "shop", Amount: transfer.Units(o.Price),
		Effects: []transfer.Effect{{
			Documents: "orders", ID: o.ID,
			Require: bson.D{{Key: "status", Value: "UnPaid"}},
			Set:     bson.D{{Key: "status", Value: "Paid"}, {Key: "paidBy", Value: id}},
		}},
	}
}

// payTwice pays one order from two devices at once.
// The buyer has enough money for both, so the money is not what stops the second payment.
func (s shop) payTwice(ctx context.Context, o order) error {
	_, failures := s.coord.TransferMany(ctx, []transfer.Request{payment("phone-1", o), payment("laptop-1", o)})
	var paid, refused int
	for _, err := range failures {
		switch {
		case err == nil:
			paid++
		case errors.Is(err, transfer.ErrRequirementFailed):
			// The order is paid, or the other payment has reserved it.
			refused++
		default:
			return err
		}
	}
	fmt.Printf("She pays for the lamp on her phone and on her laptop at once: %d payment succeeds, %d is refused.\n", paid, refused)
	return s.show(ctx, o)
}

// payInVain makes a payment that is refused.
// The order stays as it is.
func (s shop) payInVain(ctx context.Context, id string, o order, why error) error {
	rec, err := s.coord.Transfer(ctx, payment(id, o))
	if !errors.Is(err, why) {
		return errors.Join(fmt.Errorf("%s should be refused: %w", id, why), err)
	}
	fmt.Printf("  It is refused: %s.\n", rec.Failure.Message)
	return s.show(ctx, o)
}

// show prints an order, and reads it as any other program does.
func (s shop) show(ctx context.Context, o order) error {
	if err := s.orders.FindOne(ctx, bson.D{{Key: "_id", Value: o.ID}}).Decode(&o); err != nil {
		return err
	}
	fmt.Printf("  %s is %s.\n", o.ID, o.Status)
	return nil
}

// balances prints the balances of the given accounts.
func (s shop) balances(ctx context.Context, ids ...string) error {
	fmt.Println("The balances:")
	for _, id := range ids {
		account, err := s.coord.GetAccount(ctx, id)
		if err != nil {
			return err
		}
		fmt.Printf("  %-5s %3s\n", id, account.Balance)
	}
	return nil
}
