// Command hold is a hotel that holds its guests' money.
// When a guest books a room, the hotel holds an amount.
// When the guest leaves, the hotel posts the price of the stay, and the rest goes back.
// The hotel voids the hold of a booking that is cancelled.
// A hold that is forgotten expires by itself.
//
// The environment variable MONGODB_URI is the connection string of the MongoDB server.
// This command starts the program with a server that ends with it:
//
//	go run ./internal/mongotest/withmongo go run ./examples/hold
//
// The program uses a database of its own, and prints what is in output.txt.
// The story is in story.go.
// The code in play.go connects to the server and drops the database at the end.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
)

const (
	// week is how long a hold lasts.
	week = 7 * 24 * time.Hour
	// soon is how long the forgotten hold lasts.
	// A real one would last a week too, but the reader would have to wait for it.
	soon = 5 * time.Second
)

// story books three rooms: one stay is paid, one is cancelled, and one is forgotten.
func story(ctx context.Context, db *mongo.Database) error {
	coord, err := transfer.NewCoordinator(db)
	if err != nil {
		return err
	}
	defer func() { _ = coord.Close(ctx) }()
	if err := coord.Setup(ctx); err != nil {
		return err
	}
	stop := work(ctx, coord)
	defer stop()

	for _, account := range []transfer.Account{{ID: "guest", Balance: transfer.Units(500)}, {ID: "hotel"}} {
		if _, err := coord.OpenAccount(ctx, account); err != nil {
			return err
		}
	}
	h := hotel{coord}
	fmt.Println("A guest has 500, and books three rooms.")
	for _, chapter := range []func(context.Context) error{h.stay, h.cancelledBooking, h.forgottenBooking} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

// work runs a worker, and returns a function that stops it.
// The worker gives back what is held when a hold expires, no matter which process asked
// for the hold, and whether that process is still alive.
// Each process of a service may run one.
func work(ctx context.Context, coord *transfer.Coordinator) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var worker sync.WaitGroup
	worker.Go(func() {
		if err := coord.Run(ctx); err != nil {
			fmt.Println("The worker failed:", err)
		}
	})
	return func() { cancel(); worker.Wait() }
}

// hotel is a hotel that keeps its money in an account.
type hotel struct{ coord *transfer.Coordinator }

// hold holds money of the guest for the hotel.
// The ID is the booking's ID, so a repeated call holds the money once.
func (h hotel) hold(ctx context.Context, booking string, units int64, expiresIn time.Duration) error {
	req := transfer.Request{ID: booking, From: "guest", To: "hotel", Amount: transfer.Units(units)}
	_, err := h.coord.Hold(ctx, req, expiresIn)
	return err
}

// stay holds 300 and posts 240, the price of the stay.
// It can't post more than is held.
func (h hotel) stay(ctx context.Context) error {
	if err := h.hold(ctx, "booking-1", 300, week); err != nil {
		return err
	}
	fmt.Println("For the first, 300 is held. The guest can't spend it elsewhere, and the hotel hasn't got it yet.")
	if err := h.show(ctx); err != nil {
		return err
	}

	_, err := h.coord.Post(ctx, "booking-1", transfer.PostAmount(transfer.Units(340)))
	if !errors.Is(err, transfer.ErrInvalidRequest) {
		return errors.Join(errors.New("340 of 300 should not be posted"), err)
	}
	fmt.Println("The hotel asks for 340:", err)
	if _, err := h.coord.Post(ctx, "booking-1", transfer.PostAmount(transfer.Units(240))); err != nil {
		return err
	}
	fmt.Println("The hotel asks for 240, which the stay came to. The other 60 go back.")
	return h.show(ctx)
}

// cancelledBooking voids a hold.
// If the hotel posts it anyway, it gets an error.
func (h hotel) cancelledBooking(ctx context.Context) error {
	if err := h.hold(ctx, "booking-2", 100, week); err != nil {
		return err
	}
	if _, err := h.coord.Void(ctx, "booking-2"); err != nil {
		return err
	}
	fmt.Println("For the second, 100 is held. The booking is cancelled, which voids the hold.")
	_, err := h.coord.Post(ctx, "booking-2")
	if !errors.Is(err, transfer.ErrCancelled) {
		return errors.Join(errors.New("a voided hold should not be posted"), err)
	}
	fmt.Println("The hotel asks for the 100 all the same:", err)
	return h.show(ctx)
}

// forgottenBooking holds money and then does nothing.
// The worker gives the money back.
func (h hotel) forgottenBooking(ctx context.Context) error {
	if err := h.hold(ctx, "booking-3", 150, soon); err != nil {
		return err
	}
	fmt.Println("For the third, 150 is held, and everybody forgets about it.")
	_, err := h.coord.Wait(ctx, "booking-3")
	if !errors.Is(err, transfer.ErrExpired) {
		return errors.Join(errors.New("a forgotten hold should expire"), err)
	}
	fmt.Println("In the end:", err)
	return h.show(ctx)
}

// show prints how much each account has, what the guest can spend, and what the hotel
// expects.
func (h hotel) show(ctx context.Context) error {
	guest, err := h.coord.GetAccount(ctx, "guest")
	if err != nil {
		return err
	}
	hotel, err := h.coord.GetAccount(ctx, "hotel")
	if err != nil {
		return err
	}
	fmt.Printf("  the guest has %s and can spend %s; the hotel has %s and expects %s\n",
		guest.Posted, guest.Available, hotel.Posted, hotel.Incoming)
	return nil
}
