package mongostore

import (
	"context"
	"errors"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/transition"
	"github.com/mongotransfer/transfer/internal/wire"
)

// changeTransfers performs verifies, marks of holds, decisions and finishes. Many commits
// are one statement for many documents, and so are many finishes. Any other change has a
// statement of its own. Each document is changed by itself, where it matches.
func (s *Store) changeTransfers(ctx context.Context, calls []*Call) {
	var at transition.Stamp
	at.Now, at.Fresh = s.catalog.Clock.Estimate()
	after := s.retention.PurgeAfter()
	if after > 0 {
		calls = s.finishAgain(ctx, calls, after)
	}
	if after > 0 || s.catalog.Events.Any() {
		calls, at = s.dated(ctx, calls, at, after)
	}
	s.changeAt(ctx, calls, at)
}

// changeAt performs changes with a time to stamp them with.
func (s *Store) changeAt(ctx context.Context, calls []*Call, at transition.Stamp) {
	if len(calls) == 0 {
		return
	}
	changes := s.groupAlike(calls, at)
	s.sendChanges(ctx, changes)
	var single []*change
	for _, c := range changes {
		if c.refused {
			single = append(single, oneEach(c.calls, at)...)
		}
	}
	if len(single) > 0 {
		s.sendChanges(ctx, single)
	}
}

// change is one statement, and the calls that ask for it.
type change struct {
	calls   []*Call
	stamp   transition.Stamp
	refused bool // the server refused one of many documents, and may have changed others
}

// groupAlike puts calls for the same change into one statement. Through a mongos each has
// a statement of its own. A mongos may send a statement for many documents to shards that
// have an old copy of one, and count that copy.
func (s *Store) groupAlike(calls []*Call, at transition.Stamp) []*change {
	var (
		changes []*change
		alike   = map[protocol.Operation]int{}
	)
	for _, call := range calls {
		kind := protocol.Operation{Kind: call.Op.Kind, To: call.Op.To}
		index, known := alike[kind]
		if known && call.mergeable() {
			changes[index].calls = append(changes[index].calls, call)
			continue
		}
		if call.mergeable() && !s.catalog.Routed(s.catalog.Transfers) {
			alike[kind] = len(changes)
		}
		changes = append(changes, &change{calls: []*Call{call}, stamp: at})
	}
	return changes
}

// mergeable reports whether a call asks for the same change as others do: a commit at
// epoch 1 by a clean execution, or a finish.
func (c *Call) mergeable() bool {
	commit := c.Op.Kind == protocol.Decide && c.Op.To == protocol.Committed && c.Op.Epoch == 1 && c.Op.Clean
	return commit || c.Op.Kind == protocol.Finish
}

// oneEach returns a change for each call.
func oneEach(calls []*Call, at transition.Stamp) []*change {
	changes := make([]*change, len(calls))
	for i, call := range calls {
		changes[i] = &change{calls: []*Call{call}, stamp: at}
	}
	return changes
}

// sendChanges sends changes as one command and answers their calls.
func (s *Store) sendChanges(ctx context.Context, changes []*change) {
	for _, c := range changes {
		c.stamp.Event = s.outbox.Leave(c.calls[0].Op, len(c.calls))
	}
	defer s.handOver(changes)
	transfers := s.catalog.Transfers
	if len(changes) == 1 && len(changes[0].calls) == 1 || s.catalog.Routed(transfers) {
		answerChanges(changes, wire.UpdateAll(ctx, transfers, changes))
		return
	}
	wire.InSession(ctx, transfers, func(ctx context.Context) {
		done := wire.UpdateAll(ctx, transfers, changes)
		answerChanges(changes, done)
		if done.Short && done.Matched {
			s.resolveChanges(ctx, changes)
		}
	})
}

// handOver has the events delivered that were left with this process. It reads them
// first, so it does not matter which of the changes were stored.
func (s *Store) handOver(changes []*change) {
	for _, c := range changes {
		if by := c.stamp.Event.By; !by.IsZero() {
			s.outbox.Left(by, c.ids())
		}
	}
}

// answerChanges answers the calls of a command's changes.
func answerChanges(changes []*change, done wire.Updated) {
	many := len(changes) > 1 || len(changes[0].calls) > 1
	for i, c := range changes {
		verdict := done.Verdicts[i]
		var refusal wire.StatementError
		c.refused = len(c.calls) > 1 && errors.As(verdict.Err, &refusal)
		for _, call := range c.calls {
			call.take(verdict, many)
			if verdict.Result == protocol.Applied {
				call.changed(c.stamp)
			}
			missed := call.Op.Kind == protocol.Finish && call.Answer.Result == protocol.NotMatched
			call.Attempt.finishMissed = missed && !c.stamp.PurgeAt.IsZero()
		}
	}
}

// resolveChanges finds out, by a deciding read, which changes of a command are stored
// where only some have matched. Each execution would conclude the same from a look of its
// own; where the read is not answered, it looks.
func (s *Store) resolveChanges(ctx context.Context, changes []*change) {
	var open []*Call
	for _, c := range changes {
		for _, call := range c.calls {
			if call.Answer.Result == protocol.NotMatched {
				open = append(open, call)
			}
		}
	}
	documents, _ := findTransfers(ctx, open, s.catalog.Majority)
	for _, call := range open {
		t, err := document.DecodeTransfer(documents[call.Attempt.Transfer.ID])
		if err == nil && call.storedIn(t) {
			call.answer(protocol.Applied, nil)
			call.Attempt.learn(t)
		}
	}
}

// storedIn reports whether a transfer shows that the call's change is stored.
func (c *Call) storedIn(t document.Transfer) bool {
	if c.Op.Kind == protocol.Finish {
		return t.State == c.Op.To
	}
	mine := t.Owner == c.Attempt.Owner && t.Epoch == c.Op.Epoch
	return mine && (c.Op.Kind == protocol.Decide && t.State == c.Op.To || c.Op.Kind == protocol.MarkHeld && t.Held)
}

// changed makes the attempt's transfer what the call has made of the stored one.
func (c *Call) changed(at transition.Stamp) {
	var why *document.Failure
	if c.Op.Kind == protocol.Decide && c.Op.To == protocol.Rollback {
		failure := c.Attempt.failure(c.Op.Refusal)
		why = &failure
	}
	at.Change(&c.Attempt.Transfer, c.Op, why)
}
