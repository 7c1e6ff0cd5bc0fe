package document

import (
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// EventKind is what an event reports of a transfer.
// It is stored as this word.
type EventKind string

const (
	// EventHeld means that a hold is held.
	EventHeld EventKind = "held"
	// EventSucceeded means that a transfer has come to Success.
	EventSucceeded EventKind = "succeeded"
	// EventFailed means that a transfer has come to Fail.
	EventFailed EventKind = "failed"
)

// EventKinds returns all kinds, in the order in which they are stored.
func EventKinds() []EventKind { return []EventKind{EventFailed, EventHeld, EventSucceeded} }

// Events are the kinds of events that a deployment delivers.
// The zero value is none of them.
type Events struct {
	// Failed, Held and Succeeded stand for the kinds of these names.
	Failed, Held, Succeeded bool
}

// Any reports whether there is any kind.
func (e Events) Any() bool { return e != Events{} }

// Names returns the kinds as they are stored, in the order of their names.
func (e Events) Names() []string {
	var names []string
	for _, kind := range EventKinds() {
		if e.has(kind) {
			names = append(names, string(kind))
		}
	}
	return names
}

func (e Events) has(kind EventKind) bool {
	switch kind {
	case EventFailed:
		return e.Failed
	case EventHeld:
		return e.Held
	case EventSucceeded:
		return e.Succeeded
	}
	return false
}

// Of returns the event that an operation leaves in the outbox, "" if there is none.
func (e Events) Of(op protocol.Operation) EventKind {
	held := op.Kind == protocol.MarkHeld
	final := op.Kind == protocol.Finish
	switch {
	case held && e.Held:
		return EventHeld
	case final && op.To == protocol.Success && e.Succeeded:
		return EventSucceeded
	case final && op.To == protocol.Fail && e.Failed:
		return EventFailed
	}
	return ""
}

// MayWait reports whether the event of a hold may still wait when an operation leaves
// none of its own. That it was held may have been an event then, and be none now. Where
// there are no events at all none waits: they are not switched off before that.
func (e Events) MayWait(t *Transfer, op protocol.Operation) bool {
	return t.Hold && e.Any() && e.Of(op) == ""
}

// Undelivered is an event that is in the outbox of its transfer: it was not delivered
// yet.
type Undelivered struct {
	// Kind is what it reports.
	Kind EventKind
	// At is when that became so, by the server's clock.
	At time.Time
	// Due is when a worker may take it in hand.
	// It is the zero time for one that was given up.
	Due time.Time
	// By is the lease of who has it in hand, or has given it up because the one before
	// had not come back.
	// It is zero if nobody has had it since the latest failure.
	By bson.ObjectID
	// Attempts counts the deliveries that were begun.
	Attempts int64
	// GivenUp says that it was tried as often as the worker allows.
	GivenUp bool
}

// Undelivered returns the events in the transfer's outbox.
// What can't be read there is left out.
func (t Transfer) Undelivered() []Undelivered {
	entries, isArray := t.Outbox.ArrayOK()
	if !isArray {
		return nil
	}
	var all []Undelivered
	for _, e := range wire.Elements(bson.Raw(entries)) {
		entry, isDocument := e.Value().DocumentOK()
		kind, _ := entry.Lookup("kind").StringValueOK()
		if !isDocument || !slices.Contains(EventKinds(), EventKind(kind)) {
			continue
		}
		u := Undelivered{Kind: EventKind(kind), GivenUp: entry.Lookup("due").Type == bson.TypeMaxKey}
		u.At, _ = entry.Lookup("at").TimeOK()
		u.Due, _ = entry.Lookup("due").TimeOK()
		u.By, _ = entry.Lookup("by").ObjectIDOK()
		u.Attempts, _ = entry.Lookup("attempts").AsInt64OK()
		u.At, u.Due = inUTC(u.At), inUTC(u.Due)
		all = append(all, u)
	}
	return all
}

func inUTC(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}

// HasUndelivered selects transfers with an event in their outbox, given up or not, by an
// index.
func HasUndelivered() bson.E {
	return bson.E{Key: "outbox.due", Value: bson.D{{Key: "$exists", Value: true}}}
}

// FarDue is further ahead than an event can be due by a lease or a retry. One that is due
// later was stored while the server's clock was ahead, and nobody waits for that: see
// [StandingStill].
const FarDue = 10 * time.Minute

// Deliverable selects transfers with an event that a worker may take in hand at an
// instant, by an index.
func Deliverable(at time.Time) bson.D {
	return bson.D{{Key: "$or", Value: bson.A{
		bson.D{{Key: "outbox.due", Value: bson.D{{Key: "$lte", Value: at}}}},
		bson.D{{Key: "outbox.due", Value: bson.D{{Key: "$gt", Value: at.Add(FarDue)}}}},
	}}}
}

// AwaitsDelivery selects transfers with an event that was not given up, by an index.
func AwaitsDelivery() bson.D {
	return bson.D{{Key: "outbox.due", Value: bson.D{{Key: "$type", Value: "date"}}}}
}

// InHand selects those of some transfers that have an event in hand by a lease.
func InHand(ids []string, by bson.ObjectID) bson.D {
	return bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}, {Key: "outbox.by", Value: by}}
}
