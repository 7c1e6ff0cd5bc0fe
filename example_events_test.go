package transfer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/mongotransfer/transfer"
)

// The service delivers what becomes of transfers to a consumer that is away at first.
func ExampleWithEvents() {
	ctx := context.Background()
	delivered := make(chan transfer.Event)
	handle := func(ctx context.Context, e transfer.Event) error {
		if e.Attempt == 1 && e.Kind == transfer.EventFailed {
			return errors.New("the consumer is away") // the event is tried again in a second
		}
		select {
		case delivered <- e:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	coord, end := exampleBank(ctx, transfer.WithEvents(transfer.EventHandler{ // alice has 100, bob has nothing
		Handle: handle, Kinds: []transfer.EventKind{transfer.EventSucceeded, transfer.EventFailed},
	}))
	defer end()
	working, stop := context.WithCancel(ctx)
	worker := make(chan error, 1)
	go func() { worker <- coord.Run(working) }()

	for _, id := range []string{"order-17", "order-18"} {
		_, err := coord.Transfer(ctx, transfer.Request{ID: id, From: "alice", To: "bob", Amount: transfer.Units(60)})
		if err != nil && !errors.Is(err, transfer.ErrInsufficientFunds) {
			fmt.Println(err)
		}
		e := <-delivered
		fmt.Println(e.ID, e.Record.State, "by attempt", e.Attempt)
	}
	stop()
	if err := <-worker; err != nil {
		fmt.Println(err)
	}
	// Output:
	// order-17:succeeded Success by attempt 1
	// order-18:failed Fail by attempt 2
}
