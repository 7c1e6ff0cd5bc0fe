package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mongotransfer/transfer"
)

// broker takes messages. It is all that this program wants of one: NATS is in nats.go,
// and another one is two methods.
type broker interface {
	// publish returns nil once the broker has stored a message. A second message with the
	// same ID is the same one.
	publish(ctx context.Context, subject, id string, body []byte) error
	// close ends the connection, once nothing is published any more.
	close() error
}

// message is what others get to see of an event. It has what they need, and not all that
// the library knows: the program decides what leaves it.
type message struct {
	// ID is the same at every delivery: a consumer remembers which ones it has seen.
	ID string `json:"id"`
	// Transfer is the transfer's ID, and State where it stands.
	Transfer string         `json:"transfer"`
	State    transfer.State `json:"state"`
	// At is when it came to be that. The order of messages is not that of these times.
	At time.Time `json:"at"`
	// Legs are the movements: of a hold what is held, and of what has succeeded what was
	// moved, which may be a part of that.
	Legs []leg `json:"legs"`
	// Reason is why it has failed.
	Reason string `json:"reason,omitempty"`
}

type leg struct {
	Account  string          `json:"account"`
	Amount   transfer.Amount `json:"amount"`
	Currency string          `json:"currency,omitempty"`
}

// messageOf returns the message of an event.
func messageOf(e transfer.Event) message {
	m := message{ID: e.ID, Transfer: e.Record.ID, State: e.Record.State, At: e.At}
	legs := e.Record.Legs
	if e.Kind == transfer.EventSucceeded {
		legs = e.Record.Moved()
	}
	for _, l := range legs {
		m.Legs = append(m.Legs, leg{l.Account, l.Amount, l.Currency})
	}
	if e.Record.Failure != nil {
		m.Reason = e.Record.Failure.Code
	}
	return m
}

// forwardTo returns what delivers events to a broker. It fails where the broker does: the
// library tries the event again then, ever more rarely.
func forwardTo(b broker) func(context.Context, transfer.Event) error {
	return func(ctx context.Context, e transfer.Event) error {
		body, err := json.Marshal(messageOf(e))
		if err != nil {
			return err
		}
		if err := b.publish(ctx, "transfers."+string(e.Kind), e.ID, body); err != nil {
			return fmt.Errorf("publish %s: %w", e.ID, err)
		}
		return nil
	}
}

// closing closes a broker, and keeps the error of what was done before.
func closing(b broker, err *error) { *err = errors.Join(*err, b.close()) }
