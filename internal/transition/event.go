package transition

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

// EventLease is how long a worker has an event in hand before others may take it: a
// worker that was killed keeps it from them for no longer.
const EventLease = 25 * time.Second

// Event is what a write that makes a transfer held or final leaves in its outbox.
// The zero value is nothing.
type Event struct {
	// Kind is what it reports.
	Kind document.EventKind
	// By is the lease of the process that writes it, which then has it in hand: nobody
	// writes it again before it is delivered. Zero: it waits for any worker.
	By bson.ObjectID
}

// write writes the event as an entry of the outbox.
func (e Event) write(m *wire.Message, now time.Time) {
	m.Text("kind", string(e.Kind))
	m.Date("at", now)
	if e.By.IsZero() {
		m.Date("due", now)
		return
	}
	m.Date("due", now.Add(EventLease))
	m.ObjectID("by", e.By)
	m.Number("attempts", 1)
}

// start sets the outbox, among other fields. It is for a write that no other event
// precedes, and that may be sent again.
func (e Event) start(m *wire.Message, now time.Time) {
	if e.Kind == "" {
		return
	}
	m.BeginArray("outbox")
	m.Begin("0")
	e.write(m, now)
	m.End()
	m.End()
}

// add adds the event to the outbox, where the one of a hold may still be.
func (e Event) add(m *wire.Message, now time.Time) {
	if e.Kind == "" {
		return
	}
	m.Begin("$push")
	m.Begin("outbox")
	e.write(m, now)
	m.End()
	m.End()
}

// purgeField returns the field for the time of the purge. While an event waits it is
// another one than that by which the server removes transfers.
func (e Event) purgeField() string {
	if e.Kind != "" {
		return "keepUntil"
	}
	return "purgeAt"
}
