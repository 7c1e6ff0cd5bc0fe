package transfer

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/outbox"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/transition"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

const (
	defaultMaxAttempts = 20
	maxMaxAttempts     = 1 << 20
)

// EventKind is what an [Event] reports about a transfer.
type EventKind string

const (
	// EventHeld reports that a hold is held: its money is reserved.
	// It is delivered even if the hold is over by then.
	EventHeld EventKind = EventKind(document.EventHeld)
	// EventSucceeded reports that a transfer has reached StateSuccess.
	EventSucceeded EventKind = EventKind(document.EventSucceeded)
	// EventFailed reports that a transfer has reached StateFail.
	EventFailed EventKind = EventKind(document.EventFailed)
)

// Event reports that a transfer is held, or final.
//
// It is delivered at least once.
// It is delivered again if a process ends after the handler has returned and before that
// is recorded, or if a handler takes too long.
// So a consumer remembers the IDs that it has seen, or does only what may be done twice.
// No order is promised, not even between the events of one transfer: At lets a consumer
// put them in order.
type Event struct {
	// ID is the transfer's ID, a colon, and the kind: "order-17:succeeded".
	// It is the same at every delivery.
	ID string
	// Kind is what the event reports.
	Kind EventKind
	// Record is the transfer as it is stored when the event is delivered.
	// What was EventHeld may be in StateSuccess by then.
	Record Record
	// At is when the transfer became held or final, by the server's clock.
	// It is the same at every delivery, except for a hold that was marked twice because a
	// message was late.
	At time.Time
	// Attempt counts the deliveries of this event that were begun, from 1.
	Attempt int
}

// EventHandler says which events a deployment delivers, and how this process delivers
// them.
type EventHandler struct {
	// Handle delivers an event: nil says that it was delivered.
	// An error or a panic says that it was not, and the event is tried again after 1 s,
	// then after twice as long each time, up to 5 minutes.
	// The context ends after 15 s, or 5 s after the context of Run has ended.
	// Up to 256 handlers run at once.
	// A handler that ignores the end of its context delays no others, but counts as
	// failed.
	// Defaults to nil: this process delivers nothing, and others do.
	Handle func(context.Context, Event) error
	// Kinds are the kinds of events that are delivered.
	// All Coordinators of the deployment name the same kinds, in any order.
	// Defaults to all three.
	Kinds []EventKind
	// MaxAttempts is how often this process tries an event before it gives it up: see
	// [Coordinator.Redeliver].
	// An attempt counts when it begins, even if the process is killed during it: with 1,
	// the event that it was delivering is then given up.
	// It lies between 1 and 1,048,576.
	// Defaults to 20, which takes about an hour.
	MaxAttempts int
}

// WithEvents switches events on: [Coordinator.Run] delivers each at least once, even if
// no process ran when the transfer became final, or its process was killed the moment
// after.
//
// The write that makes a transfer held or final leaves the event in the same document, so
// that there is no second write and nothing to be lost between two.
// While an event waits, [WithRetention] does not remove its transfer.
//
// Events are a property of the deployment, and its note names the kinds.
// A Coordinator with other kinds, or with none, is refused with
// ErrUnsupportedDeployment.
// To switch them on, to change the kinds or to switch them off, see [Coordinator.Adopt].
// Transfers that were final before have no events.
//
// Defaults to no events: then nothing is stored for them.
func WithEvents(h EventHandler) Option { return func(s *settings) { s.events, s.eventful = h, true } }

// UndeliveredEvent is an event of a transfer that was not delivered yet.
type UndeliveredEvent struct {
	// Kind is what the event reports.
	Kind EventKind
	// At is when the transfer became held or final, by the server's clock.
	At time.Time
	// Attempts counts the deliveries that were begun.
	Attempts int
	// GivenUp says that it was tried as often as MaxAttempts says, and is not tried any
	// more: see [Coordinator.Redeliver].
	GivenUp bool
}

// Redeliver lets Run try the undelivered events of a transfer again, from the first
// attempt on: those that were given up, and those that wait for another try.
// [Query].Undelivered lists the transfers.
// It changes nothing about an event that was delivered, or that a process is delivering:
// such a process has at most 25 s, and after that the event is tried again anyway.
// It doesn't wait for the delivery.
//
//   - nil: they are due now, or there is none.
//   - ErrTransferNotFound: there is no such transfer, or not any more.
//   - ErrInvalidRequest: this can't be a transfer's ID, or there are no events here (see
//     [WithEvents]).
//   - all others: as [Coordinator.Cancel]. Call again.
func (c *Coordinator) Redeliver(ctx context.Context, transferID string) error {
	if err := document.CheckID(transferID); err != nil {
		return invalid("transfer: %w", err)
	}
	if err := c.readyForAny(ctx); err != nil {
		return err
	}
	if !c.catalog.Events.Any() {
		if _, err := c.stored(ctx, transferID); err != nil {
			return err
		}
		return invalid("there are no events here: see WithEvents")
	}
	end, err := c.begin()
	if err != nil {
		return aboutTransfer(transferID, err)
	}
	defer end()
	filter, update := transition.Redeliver(transferID).Update()
	var tries retry
	for tries.next(ctx, c) {
		limited, cancel := c.catalog.WithLimit(wire.Detached(ctx), wire.CommandLimit)
		_, result, err := wire.FindAndModify(limited, c.catalog.Transfers, filter, update)
		cancel()
		switch result {
		case protocol.Applied:
			c.outbox.Soon()
			return nil
		case protocol.NotMatched:
			_, err := c.storedBy(ctx, transferID, c.queries.ReadTransferLinearizable)
			if err == nil || errors.Is(err, ErrTransferNotFound) {
				return err
			}
			return tries.doubt(err)
		default:
			tries.record(try{result: result, err: err})
		}
	}
	return aboutTransfer(transferID, asUnauthorized(tries.err(nil)))
}

// kinds returns the kinds of events of the deployment.
func (s *settings) kinds() document.Events {
	if !s.eventful {
		return document.Events{}
	}
	if len(s.events.Kinds) == 0 {
		return document.Events{Failed: true, Held: true, Succeeded: true}
	}
	var kinds document.Events
	for _, kind := range s.events.Kinds {
		switch kind {
		case EventFailed:
			kinds.Failed = true
		case EventHeld:
			kinds.Held = true
		case EventSucceeded:
			kinds.Succeeded = true
		}
	}
	return kinds
}

func (s *settings) checkEvents() error {
	for _, kind := range s.events.Kinds {
		if kind != EventHeld && kind != EventSucceeded && kind != EventFailed {
			return invalid("WithEvents knows EventHeld, EventSucceeded and EventFailed, not %s", words.Quote(string(kind)))
		}
	}
	if n := s.events.MaxAttempts; n < 0 || n > maxMaxAttempts {
		return invalid("MaxAttempts of WithEvents lies between 1 and %d, and is %d", maxMaxAttempts, n)
	}
	return nil
}

// newOutbox returns what delivers the events of a Coordinator.
func (c *Coordinator) newOutbox(hand *outbox.Hand) *outbox.Outbox {
	settings := outbox.Settings{
		Catalog: c.catalog, Queries: c.queries, Hand: hand, Log: c.log, Now: c.now, Ready: c.readyForAny,
		MaxAttempts: cmp.Or(c.settings.events.MaxAttempts, defaultMaxAttempts),
	}
	if handle := c.settings.events.Handle; handle != nil {
		settings.Handle = func(ctx context.Context, e outbox.Event) error { return handle(ctx, eventFrom(e)) }
	}
	if done := c.settings.observer.EventDone; done != nil {
		settings.Done = func(a outbox.Attempt) { done(eventInfo(a)) }
	}
	return outbox.New(settings)
}

// eventFrom returns an event as the API has it.
func eventFrom(e outbox.Event) Event {
	return Event{
		ID:   e.Transfer.ID + ":" + string(e.Kind),
		Kind: EventKind(e.Kind), Record: recordOf(e.Transfer), At: e.At, Attempt: e.Attempt,
	}
}

// eventInfo returns an attempt as an observer gets it.
func eventInfo(a outbox.Attempt) EventInfo {
	return EventInfo{
		Context: a.Context, ID: eventFrom(a.Event).ID, Transfer: a.Transfer.ID, Kind: string(a.Kind), Attempt: a.Attempt,
		GivenUp: a.GivenUp, Took: a.Took, Err: a.Err,
	}
}

// undeliveredOf returns the events of a transfer that are not delivered.
func undeliveredOf(t document.Transfer) []UndeliveredEvent {
	var all []UndeliveredEvent
	for _, u := range t.Undelivered() {
		all = append(all, UndeliveredEvent{
			Kind: EventKind(u.Kind), At: u.At, Attempts: int(u.Attempts), GivenUp: u.GivenUp,
		})
	}
	return all
}
