// Package transition has the updates of a transfer's own document: claims, decisions, the
// mark of a hold and its extensions, finishes, the write that proves ownership, the note
// of what keeps a transfer from its end, and the one that puts a submitted transfer off.
// Each says what it requires and what it changes; nothing is sent here.
package transition

import (
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/retention"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Stamp is the server's time, as far as the process knows it.
type Stamp struct {
	// Now is the time.
	Now time.Time
	// Fresh says that the correction of the process's clock is not old.
	Fresh bool
	// PurgeAt is when what is finished now is purged; zero: never.
	PurgeAt time.Time
	// Event is left in the outbox by a finish, or by the mark of a hold.
	// It needs a fresh stamp.
	Event Event
}

// Change makes a transfer what one of the operations that are stamped makes of the stored
// one.
// A decision's time is the server's, and a little later than the stamp's.
// Why says why it is rolled back; a commit has none.
func (s Stamp) Change(t *document.Transfer, op protocol.Operation, why *document.Failure) {
	switch op.Kind {
	case protocol.MarkHeld:
		t.Held, t.Clean, t.LastModified = true, op.Clean, s.Now
		t.Stuck, t.StuckAt = nil, time.Time{}
	case protocol.Decide:
		t.State, t.Clean, t.LastModified = op.To, t.Clean || op.Clean, s.Now
		if op.To == protocol.Rollback {
			t.Failure = why
		} else {
			t.CommittedAt = s.Now
		}
	case protocol.Finish:
		t.State, t.Open, t.LastModified, t.PurgeAt = op.To, false, s.Now, s.PurgeAt
		if s.Event.Kind != "" {
			t.PurgeAt = time.Time{} // it waits for the delivery
		}
		t.Stuck, t.StuckAt = nil, time.Time{}
	case protocol.Claim, protocol.Verify, protocol.ReadFence, protocol.ReadTransfer, protocol.LookTransfer,
		protocol.Prepare, protocol.Look, protocol.Pay, protocol.Settle, protocol.Clear, protocol.Undo, protocol.FenceOnly:
	}
}

// setModified sets lastModified, among other fields, where the server's time is known.
func (s Stamp) setModified(m *wire.Message) {
	if s.Fresh {
		m.Date("lastModified", s.Now)
	}
}

// leaveModified has the server set lastModified where its time is not known.
func (s Stamp) leaveModified(m *wire.Message) {
	if s.Fresh {
		return
	}
	m.Begin("$currentDate")
	m.Flag("lastModified", true)
	m.End()
}

// requireInTime requires of a finish that names a purge that it arrives soon, by the
// server's clock.
//
//  1. A stamps the finish and is frozen.
//  2. It wakes hours later and sends the finish: the transfer would be purged the moment
//     it is final.
func (s Stamp) requireInTime(m *wire.Message) {
	if s.PurgeAt.IsZero() {
		return
	}
	m.Begin("$expr")
	m.BeginArray("$lt")
	m.Text("0", "$$NOW")
	m.Date("1", s.Now.Add(retention.FinishLimit))
	m.End()
	m.End()
}

// requireIDs requires the ID of a transfer, or one of several.
func requireIDs(m *wire.Message, ids []string) {
	if len(ids) == 1 {
		m.Text("_id", ids[0])
		return
	}
	m.Begin("_id")
	m.BeginArray("$in")
	for i, id := range ids {
		m.Text(wire.Index(i), id)
	}
	m.End()
	m.End()
}

// unset removes fields of a document.
func unset(m *wire.Message, fields ...string) {
	m.Begin("$unset")
	for _, field := range fields {
		m.Text(field, "")
	}
	m.End()
}

// stateBefore returns the state that a transfer has before a final one.
func stateBefore(final protocol.State) protocol.State {
	if final == protocol.Fail {
		return protocol.Rollback
	}
	return protocol.Committed
}
