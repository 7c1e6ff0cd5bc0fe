package mongostore

import (
	"time"

	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// stamp is the server's time, as far as the process knows it.
type stamp struct {
	now     time.Time
	fresh   bool      // the correction of the process's clock is not old
	purgeAt time.Time // when what is finished now is purged; zero: never
}

// setModified sets lastModified, among other fields, where the server's time is known.
func (a stamp) setModified(m *wire.Message) {
	if a.fresh {
		m.Date("lastModified", a.now)
	}
}

// leaveModified has the server set lastModified where its time is not known.
func (a stamp) leaveModified(m *wire.Message) {
	if a.fresh {
		return
	}
	m.Begin("$currentDate")
	m.Flag("lastModified", true)
	m.End()
}

// Write writes the change as a statement.
func (c *change) Write(m *wire.Message) {
	op := c.calls[0].Op
	switch op.Kind {
	case protocol.Verify:
		ownershipWrite{c.calls[0].Attempt, op.Epoch, protocol.Preparing}.Write(m)
	case protocol.MarkHeld:
		c.markHeld(m)
	case protocol.Decide:
		c.decide(m)
	case protocol.Finish:
		c.finish(m)
	case protocol.Claim, protocol.ReadFence, protocol.ReadTransfer, protocol.LookTransfer,
		protocol.Prepare, protocol.Look, protocol.Pay, protocol.Settle, protocol.Clear, protocol.Undo, protocol.FenceOnly: // of other lanes
	}
	if len(c.calls) > 1 {
		m.Flag("multi", true)
	}
}

// Documents returns how many documents the statement is for.
func (c *change) Documents() int { return len(c.calls) }

// Size bounds the bytes of the statement.
func (c *change) Size() int {
	size := 512
	for _, call := range c.calls {
		size += len(call.Attempt.Transfer.ID) + 16
	}
	if c.calls[0].Op.To == protocol.Rollback {
		size += 2 << 10 // the failure
	}
	return size
}

// requireIDs requires the ID of the change's transfer, or one of the IDs.
func (c *change) requireIDs(m *wire.Message) {
	if len(c.calls) == 1 {
		m.Text("_id", c.calls[0].Attempt.Transfer.ID)
		return
	}
	m.Begin("_id")
	m.BeginArray("$in")
	for i, call := range c.calls {
		m.Text(wire.Index(i), call.Attempt.Transfer.ID)
	}
	m.End()
	m.End()
}

// decide stores a decision, at the server's time.
func (c *change) decide(m *wire.Message) {
	a, op := c.calls[0].Attempt, c.calls[0].Op
	m.Begin("q")
	c.requireIDs(m)
	m.Text("state", string(protocol.Preparing))
	m.Number("epoch", op.Epoch)
	m.End()
	m.Begin("u")
	m.Begin("$set")
	m.Text("state", string(op.To))
	if op.Clean {
		m.Flag("clean", true)
	}
	if op.To == protocol.Rollback {
		a.failure(op.Refusal).Write(m, "failure")
	}
	m.End()
	m.Begin("$currentDate")
	m.Flag("lastModified", true)
	if op.To == protocol.Committed {
		m.Flag("committedAt", true)
	}
	m.End()
	m.End()
}

// markHeld stores that everything is prepared.
// It counts its writes, like an ownershipWrite, so that none of them changes nothing.
// The time is stamped as by a finish: what is held doesn't stall.
func (c *change) markHeld(m *wire.Message) {
	a, op := c.calls[0].Attempt, c.calls[0].Op
	m.Begin("q")
	m.Text("_id", a.Transfer.ID)
	m.Text("state", string(protocol.Preparing))
	m.Number("epoch", op.Epoch)
	m.Text("owner", a.Owner)
	m.End()
	m.Begin("u")
	m.Begin("$set")
	m.Flag("held", true)
	if op.Clean {
		m.Flag("clean", true)
	}
	c.stamp.setModified(m)
	m.End()
	c.stamp.leaveModified(m)
	unset(m, "stuck", "stuckAt") // what kept it from being held is over
	m.Begin("$inc")
	m.Number("verified", 1)
	m.End()
	m.End()
}

// finish makes transfers final. It requires no epoch: any execution that finds everything
// settled may finish. The time is the process's clock, corrected as with an insert, if
// that is fresh. Nothing is judged by this time any more, and the caller then learns the
// time that is stored.
func (c *change) finish(m *wire.Message) {
	to := c.calls[0].Op.To
	m.Begin("q")
	c.requireIDs(m)
	m.Text("state", string(stateBefore(to)))
	c.stamp.requireInTime(m)
	m.End()
	m.Begin("u")
	m.Begin("$set")
	m.Text("state", string(to))
	c.stamp.setModified(m)
	if !c.stamp.purgeAt.IsZero() {
		m.Date("purgeAt", c.stamp.purgeAt)
	}
	m.End()
	c.stamp.leaveModified(m)
	unset(m, "open", "stuck", "stuckAt")
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

// ownershipWrite writes to an unfinished transfer where it is one execution's, and in the
// given state if there is one.
//
// It counts its writes, because a write that changes nothing is acknowledged without
// asking any other member. 1. A primary is cut off and replaced. 2. It gets the write
// within the millisecond of the last one: lastModified alone would stay the same. 3. It
// answers "matched" by itself.
type ownershipWrite struct {
	attempt *Attempt
	epoch   int64
	state   protocol.State
}

// Write writes the statement.
func (w ownershipWrite) Write(m *wire.Message) {
	m.Begin("q")
	m.Text("_id", w.attempt.Transfer.ID)
	m.Number("epoch", w.epoch)
	m.Text("owner", w.attempt.Owner)
	if w.state != "" {
		m.Text("state", string(w.state))
	} else {
		m.Flag("open", true)
	}
	m.End()
	m.Begin("u")
	m.Begin("$inc")
	m.Number("verified", 1)
	m.End()
	m.Begin("$currentDate")
	m.Flag("lastModified", true)
	m.End()
	m.End()
}

// Documents returns how many documents the statement is for.
func (w ownershipWrite) Documents() int { return 1 }

// Size bounds the bytes of the statement.
func (w ownershipWrite) Size() int { return 256 + len(w.attempt.Transfer.ID) + len(w.attempt.Owner) }
