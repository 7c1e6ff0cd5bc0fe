// Command hold is a hotel that has its guests' cards authorised: when a guest books, an
// amount is held; when the guest leaves, what the stay came to is posted, and the rest
// goes back; a booking that is cancelled is voided; and a hold that is forgotten expires
// by itself.
//
// The environment variable MONGODB_URI names the MongoDB server. With one just for the
// occasion:
//
//	go run ./internal/mongotest/withmongo go run ./examples/hold
//
// It plays in a database of its own, and tells what is in output.txt. The story is in
// story.go; play.go connects, and cleans up.
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
	week = 7 * 24 * time.Hour
	// soon is when the forgotten hold expires. It would be a week, too, if nobody had to wait for it here.
	soon = 2 * time.Second
)

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

// work runs a worker, as each process of a service may: it gives back what is held when the time is over, whoever has asked for
// the hold, and whether that process is still there. It returns a function that stops the worker.
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

type hotel struct{ coord *transfer.Coordinator }

// hold reserves money of the guest for the hotel. The ID is the booking's, so that asking twice holds once.
func (h hotel) hold(ctx context.Context, booking string, units int64, expiresIn time.Duration) error {
	req := transfer.Request{ID: booking, From: "guest", To: "hotel", Amount: transfer.Units(units)}
	_, err := h.coord.Hold(ctx, req, expiresIn)
	return err
}

// stay holds 300 and posts the 240 that the stay came to. More than is held can't be taken.
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

// cancelledBooking voids a hold. A hotel that bills it all the same is told so.
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

// forgottenBooking holds money and does nothing more. The worker gives it back.
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

// show prints where the money is: what can be spent, what is on the books, and what is on its way.
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
