package chaos

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/mongotransfer/transfer"
)

// receipt is a line of a worker's report: it was given an event, and has taken it.
type receipt struct {
	ID       string // of the event
	Kind     transfer.EventKind
	Transfer string
	State    transfer.State // of the record that came with it
	At       time.Time
	Attempt  int
}

// The troubles that a handler has with an event, by the dice.
const (
	dieSides   = 24
	dieFails   = 0 // on the side with this number it returns an error
	diePanics  = 1
	dieTarries = 2 // it hangs, and then fails
	// tarryLimit is how long it hangs, unless its context ends before.
	tarryLimit = 2 * time.Second
	// mostTroubles is how many attempts at an event may meet with trouble.
	mostTroubles = 3
)

// eventful returns the option of a coordinator of this run. The handler has trouble with
// some of the events, and then takes them: take keeps the receipt.
func eventful(take func(receipt)) transfer.Option {
	return transfer.WithEvents(transfer.EventHandler{Handle: func(ctx context.Context, e transfer.Event) error {
		if err := troubleWith(ctx, e); err != nil {
			return err
		}
		take(receipt{e.ID, e.Kind, e.Record.ID, e.Record.State, e.At, e.Attempt})
		return nil
	}})
}

// eventless returns the option of a coordinator of this run that delivers no events.
func eventless() transfer.Option { return transfer.WithEvents(transfer.EventHandler{}) }

// errNoEvent is what a handler returns that does not take an event.
var errNoEvent = errors.New("not this time")

// troubleWith throws the die of an attempt, which falls the same way in each process.
func troubleWith(ctx context.Context, e transfer.Event) error {
	if e.Attempt > mostTroubles {
		return nil
	}
	die := fnv.New32a()
	_, _ = fmt.Fprintf(die, "%s %d", e.ID, e.Attempt) // A hash takes everything.
	switch die.Sum32() % dieSides {
	case dieFails:
		return errNoEvent
	case diePanics:
		panic(errNoEvent)
	case dieTarries:
		pause(ctx, tarryLimit)
		return errNoEvent
	}
	return nil
}

// receipts are those for one event.
type receipts struct {
	first receipt
	times int
	// odd is one that differs in what never changes.
	odd *receipt
}

// delivered records that an event was taken.
func (j *journal) delivered(r receipt) {
	j.mu.Lock()
	defer j.mu.Unlock()
	known := j.events[r.ID]
	if known == nil {
		known = &receipts{first: r}
		j.events[r.ID] = known
	}
	first := known.first
	// A hold that is marked once more, by a message that was late, has the time of that.
	moved := !first.At.Equal(r.At) && r.Kind != transfer.EventHeld
	if first.Kind != r.Kind || first.Transfer != r.Transfer || moved {
		known.odd = &r
	}
	known.times++
}

// receiptsNow returns the receipts until now, by event.
func (j *journal) receiptsNow() map[string]receipts {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := map[string]receipts{}
	for id, r := range j.events {
		now[id] = *r
	}
	return now
}

// due returns the events that a transfer must have had.
func (t transferDocument) due() []transfer.EventKind {
	var kinds []transfer.EventKind
	if t.Held {
		kinds = append(kinds, transfer.EventHeld)
	}
	switch t.State {
	case transfer.StateSuccess:
		kinds = append(kinds, transfer.EventSucceeded)
	case transfer.StateFail:
		kinds = append(kinds, transfer.EventFailed)
	case transfer.StateInitiated, transfer.StatePreparing, transfer.StateCommitted, transfer.StateRollback:
	}
	return kinds
}

// events checks that each event of each transfer was delivered, and no other one, and
// that nothing is left to be delivered.
func (a *audit) events(delivered map[string]receipts) {
	due := map[string]bool{}
	for id, t := range a.transfers {
		for _, kind := range t.due() {
			event := id + ":" + string(kind)
			due[event] = true
			if delivered[event].times == 0 {
				a.wrong("event "+event, t, "event %s was never delivered", event)
			}
		}
		if len(t.Outbox) > 0 || !t.KeepUntil.IsZero() {
			a.wrong("outbox "+id, t, "transfer %s has events left: %v, kept until %s", id, t.Outbox, t.KeepUntil)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(delivered)) {
		got := delivered[id]
		t := a.transfers[got.first.Transfer]
		if !due[id] || got.first.ID != got.first.Transfer+":"+string(got.first.Kind) {
			a.wrong("event "+id, t, "event %s was delivered, and is none: %+v", id, got.first)
		}
		if final := got.first.Kind != transfer.EventHeld; final && got.first.State != t.State {
			a.wrong("event "+id, t, "event %s came with a record in %s", id, got.first.State)
		}
		if got.odd != nil {
			a.wrong("event "+id, t, "event %s came as %+v, and then as %+v", id, got.first, *got.odd)
		}
	}
}
