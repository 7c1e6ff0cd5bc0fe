package mongostore

import (
	"context"
	"errors"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// changeTransfers performs verifies, decisions and finishes. Many commits are one statement for many documents, and so are many
// finishes; whatever else there is has a statement of its own. Each document is changed by itself, where it fits.
func (s *Store) changeTransfers(ctx context.Context, requests []*Call) {
	var at stamp
	at.now, at.fresh = s.Clock.Estimate()
	if after, purges := s.retention.PurgeAfter(); purges {
		requests = s.finishLate(ctx, requests, after)
		requests, at = s.datePurge(ctx, requests, at, after)
	}
	s.changeAt(ctx, requests, at)
}

// changeAt performs changes with a time to stamp them with.
func (s *Store) changeAt(ctx context.Context, requests []*Call, at stamp) {
	if len(requests) == 0 {
		return
	}
	changes := s.groupAlike(requests, at)
	s.change(ctx, changes)
	var apart []*change
	for _, c := range changes {
		if c.refused {
			apart = append(apart, oneEach(c.requests, at)...)
		}
	}
	if len(apart) > 0 {
		s.change(ctx, apart)
	}
}

// stamp is the server's time as far as it is known here.
type stamp struct {
	now   time.Time
	fresh bool      // the correction of the process's clock is not old
	purge time.Time // when the transfers that are finished now are removed; zero: never
}

// change is one statement, and what asks for it.
type change struct {
	requests []*Call
	at       stamp
	refused  bool // the server has refused to change one of many documents, and may have changed some
}

// groupAlike puts requests for the same change into one statement. A mongos may send a statement for many documents to shards that
// have an old copy of one, and count that: through it there is a statement for each.
func (s *Store) groupAlike(requests []*Call, at stamp) []*change {
	var (
		changes []*change
		alike   = map[protocol.Operation]int{}
	)
	for _, r := range requests {
		key := protocol.Operation{Kind: r.Op.Kind, To: r.Op.To}
		if s.Routed(s.Transfers) || !r.plain() {
			changes = append(changes, &change{requests: []*Call{r}, at: at})
			continue
		}
		place, known := alike[key]
		if !known {
			alike[key] = len(changes)
			changes = append(changes, &change{requests: []*Call{r}, at: at})
			continue
		}
		changes[place].requests = append(changes[place].requests, r)
	}
	return changes
}

// plain reports whether a request asks for what others ask for as well: a commit at epoch 1 by a clean execution, or a finish.
func (r *Call) plain() bool {
	commit := r.Op.Kind == protocol.Decide && r.Op.To == protocol.Committed && r.Op.Epoch == 1 && r.Op.Clean
	return commit || r.Op.Kind == protocol.Finish
}

// oneEach returns a change for each request.
func oneEach(requests []*Call, at stamp) []*change {
	changes := make([]*change, len(requests))
	for i, r := range requests {
		changes[i] = &change{requests: []*Call{r}, at: at}
	}
	return changes
}

// change sends changes as one command and answers their requests.
func (s *Store) change(ctx context.Context, changes []*change) {
	if len(changes) == 1 && len(changes[0].requests) == 1 || s.Routed(s.Transfers) {
		answerChanges(changes, wire.UpdateAll(ctx, s.Transfers, changes))
		return
	}
	wire.InSession(ctx, s.Transfers, func(ctx context.Context) {
		done := wire.UpdateAll(ctx, s.Transfers, changes)
		answerChanges(changes, done)
		if done.Short && done.Matched {
			s.resolveChanges(ctx, changes)
		}
	})
}

// Write writes a change down as a statement.
func (c *change) Write(m *wire.Message) {
	op := c.requests[0].Op
	switch op.Kind {
	case protocol.Verify:
		ownershipWrite{c.requests[0].Attempt, op.Epoch, protocol.Preparing}.Write(m)
	case protocol.MarkHeld:
		c.markHeld(m)
	case protocol.Decide:
		c.decide(m)
	case protocol.Finish:
		c.finish(m)
	case protocol.Claim, protocol.ReadFence, protocol.ReadTransfer, protocol.LookTransfer, protocol.Prepare, protocol.Look,
		protocol.Settle, protocol.Undo, protocol.FenceOnly: // they are of other lanes
	}
	if len(c.requests) > 1 {
		m.Flag("multi", true)
	}
}

func (c *change) Documents() int { return len(c.requests) }

func (c *change) Size() int {
	size := 512 + (document.MaxIDBytes+16)*len(c.requests)
	if c.requests[0].Op.To == protocol.Rollback {
		size += 2 << 10 // why
	}
	return size
}

// ids requires the ID of a change's transfer, or one of the IDs.
func (c *change) ids(m *wire.Message) {
	if len(c.requests) == 1 {
		m.Text("_id", c.requests[0].Attempt.Transfer.ID)
		return
	}
	m.Begin("_id")
	m.BeginArray("$in")
	for i, r := range c.requests {
		m.Text(wire.Index(i), r.Attempt.Transfer.ID)
	}
	m.End()
	m.End()
}

// decide stores a decision, at the server's time.
func (c *change) decide(m *wire.Message) {
	w, op := c.requests[0].Attempt, c.requests[0].Op
	m.Begin("q")
	c.ids(m)
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
		w.failure(op.Refusal).Write(m, "failure")
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

// markHeld stores that everything is prepared. It counts its writes like a touch, so that none of them is one that changes nothing. The
// time is as with a finish: what is held doesn't stall.
func (c *change) markHeld(m *wire.Message) {
	w, op := c.requests[0].Attempt, c.requests[0].Op
	m.Begin("q")
	m.Text("_id", w.Transfer.ID)
	m.Text("state", string(protocol.Preparing))
	m.Number("epoch", op.Epoch)
	m.Text("owner", w.Owner)
	m.End()
	m.Begin("u")
	m.Begin("$set")
	m.Flag("held", true)
	if op.Clean {
		m.Flag("clean", true)
	}
	c.at.known(m)
	m.End()
	c.at.unknown(m)
	m.Begin("$unset") // what was in the way of it
	m.Text("stuck", "")
	m.Text("stuckAt", "")
	m.End()
	m.Begin("$inc")
	m.Number("verified", 1)
	m.End()
	m.End()
}

// known sets lastModified, among other fields, to what the server's time is known to be.
func (a stamp) known(m *wire.Message) {
	if a.fresh {
		m.Date("lastModified", a.now)
	}
}

// unknown has the server set lastModified where its time is not known.
func (a stamp) unknown(m *wire.Message) {
	if a.fresh {
		return
	}
	m.Begin("$currentDate")
	m.Flag("lastModified", true)
	m.End()
}

// finish makes transfers final. Their IDs, not their epochs, are the condition: whoever finds everything settled may finish. The time
// is the process's clock, corrected, as with an insert, if that is fresh: nothing is judged by it any more, and so the caller can be told
// what is stored.
func (c *change) finish(m *wire.Message) {
	to := c.requests[0].Op.To
	m.Begin("q")
	c.ids(m)
	m.Text("state", string(finishedFrom(to)))
	c.at.inTime(m)
	m.End()
	m.Begin("u")
	m.Begin("$set")
	m.Text("state", string(to))
	c.at.known(m)
	if !c.at.purge.IsZero() {
		m.Date("purgeAt", c.at.purge)
	}
	m.End()
	c.at.unknown(m)
	m.Begin("$unset")
	m.Text("open", "")
	m.Text("stuck", "")
	m.Text("stuckAt", "")
	m.End()
	m.End()
}

// finishedFrom returns the state in which a transfer is before its final one.
func finishedFrom(to protocol.State) protocol.State {
	if to == protocol.Fail {
		return protocol.Rollback
	}
	return protocol.Committed
}

// ownershipWrite is a write to an unfinished transfer where it is one execution's, in the given state if there is one. It counts its writes, because
// a write that changes nothing is acknowledged without asking anybody: lastModified alone would stay the same within a millisecond, and a
// cut-off old primary could answer "matched" then.
type ownershipWrite struct {
	work  *Attempt
	epoch int64
	state protocol.State
}

func (t ownershipWrite) Write(m *wire.Message) {
	m.Begin("q")
	m.Text("_id", t.work.Transfer.ID)
	m.Number("epoch", t.epoch)
	m.Text("owner", t.work.Owner)
	if t.state != "" {
		m.Text("state", string(t.state))
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

func (t ownershipWrite) Documents() int { return 1 }

func (t ownershipWrite) Size() int { return 256 + len(t.work.Transfer.ID) + len(t.work.Owner) }

// answerChanges answers the requests of a command's changes.
func answerChanges(changes []*change, done wire.Updated) {
	many := len(changes) > 1 || len(changes[0].requests) > 1
	for i := range changes {
		c, v := changes[i], done.Verdicts[i]
		var refusal wire.StatementError
		c.refused = len(c.requests) > 1 && errors.As(v.Err, &refusal)
		for _, r := range c.requests {
			r.take(v, many)
			if v.Result == protocol.Applied {
				r.changed(c.at)
			}
			r.Attempt.late = r.Op.Kind == protocol.Finish && r.Answer.Result == protocol.NotMatched && !c.at.purge.IsZero()
		}
	}
}

// resolveChanges tells, by a deciding read, which decisions and finishes of a command are stored of which only some have matched. It is
// what each execution would conclude from a look of its own.
func (s *Store) resolveChanges(ctx context.Context, changes []*change) {
	var open []*Call
	for _, c := range changes {
		for _, r := range c.requests {
			if r.Answer.Result == protocol.NotMatched {
				open = append(open, r)
			}
		}
	}
	documents, _ := findTransfers(ctx, open, s.Majority) // where it is not answered, each execution looks for itself
	for _, r := range open {
		t, err := document.DecodeTransfer(documents[r.Attempt.Transfer.ID])
		if err == nil && r.storedIn(t) {
			r.answer(protocol.Applied, nil)
			r.Attempt.Transfer = t
		}
	}
}

// storedIn reports whether a transfer shows that what the request asks for is stored.
func (r *Call) storedIn(t document.Transfer) bool {
	if r.Op.Kind == protocol.Finish {
		return t.State == r.Op.To
	}
	mine := t.Owner == r.Attempt.Owner && t.Epoch == r.Op.Epoch
	return mine && (r.Op.Kind == protocol.Decide && t.State == r.Op.To || r.Op.Kind == protocol.MarkHeld && t.Held)
}

// changed makes what is known of the transfer what the request has made of it.
func (r *Call) changed(at stamp) {
	t, op := &r.Attempt.Transfer, r.Op
	switch op.Kind {
	case protocol.MarkHeld:
		t.Held, t.Clean, t.LastModified = true, op.Clean, at.now
		t.Stuck, t.StuckAt = nil, time.Time{}
	case protocol.Decide:
		t.State, t.Clean, t.LastModified = op.To, t.Clean || op.Clean, at.now // the server's own time is a little later
		if op.To == protocol.Rollback {
			failure := r.Attempt.failure(op.Refusal)
			t.Failure = &failure
		}
	case protocol.Finish:
		t.State, t.Open, t.LastModified, t.PurgeAt = op.To, false, at.now, at.purge
		t.Stuck, t.StuckAt = nil, time.Time{}
	case protocol.Claim, protocol.Verify, protocol.ReadFence, protocol.ReadTransfer, protocol.LookTransfer, protocol.Prepare,
		protocol.Look, protocol.Settle, protocol.Undo, protocol.FenceOnly:
	}
}
