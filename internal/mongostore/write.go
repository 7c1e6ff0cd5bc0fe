package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// writeParticipants performs writes on participants of one collection.
//
// Where one update for several transfers did not match, or the server has ended a
// statement for many accounts because it refuses one of them, it sends one for each, in
// order, so that each gets its own answer. It does so only if none of them was done.
//
//  1. A prepare is made by an update for several transfers, which did not match.
//  2. It is sent again by itself, and the server refuses that.
//  3. Its execution believes that nothing was prepared, and leaves the marker for ever.
func (s *Store) writeParticipants(ctx context.Context, l *collections.Collection, calls []*Call) {
	calls = withoutGarbled(calls)
	if len(calls) == 0 {
		return
	}
	updates := s.merge(calls)
	statements := s.statements(len(updates) >= s.leastShared && s.sharesStatements(ctx, l), updates)
	known := s.sendStatements(ctx, l, statements)
	if wire.HeldUp(calls[0].Cause) {
		s.markSuspects(ctx, l, updatesOf(statements))
	}
	if again := callsAgain(statements, known); len(again) > 0 {
		s.sendStatements(ctx, l, s.statements(false, s.oneUpdateEach(again)))
	}
}

// updatesOf returns the updates of statements, in the order in which a server performs
// them.
func updatesOf(statements []*statement) []*mergedUpdate {
	var updates []*mergedUpdate
	for _, st := range statements {
		updates = append(updates, st.updates...)
	}
	return updates
}

// callsAgain returns the calls that are to be sent again, each by itself. A call that was
// refused in a shared statement is apart from now on: its execution looks at the account,
// and may find that nothing speaks against it. So a document that is not quite as the
// library writes them is a matter of one more look.
func callsAgain(statements []*statement, known bool) []*Call {
	var again []*Call
	for _, st := range statements {
		for _, u := range st.updates {
			for _, call := range u.calls {
				result := call.Answer.Result
				call.participant().apart = u.shared && result == protocol.NotMatched
				switch {
				case len(u.calls) == 1 && !st.refused:
				case result == protocol.Failed, result == protocol.NotMatched && known:
					again = append(again, call)
				}
			}
		}
	}
	return again
}

// sendStatements sends statements as one command and answers their calls.
// It reports whether each NotMatched is known to be true.
func (s *Store) sendStatements(ctx context.Context, l *collections.Collection, statements []*statement) (known bool) {
	if len(statements) == 1 && !statements[0].updates[0].shared {
		s.answerStatements(l, statements, wire.ModifyAll(ctx, l.Commands, statements))
		return true
	}
	known = true
	wire.InSession(ctx, l.Commands, func(inSession context.Context) {
		done := wire.ModifyAll(inSession, l.Commands, statements)
		s.answerStatements(l, statements, done)
		if open := openCalls(statements, done); len(open) > 0 {
			reading, from, ask := inSession, l.Majority, false
			if s.catalog.Routed(l.Commands) || !done.Matched {
				reading, from, ask = ctx, l.Linearizable, true
			}
			known = s.resolve(reading, from, ask, open)
		}
	})
	return known
}

// answerStatements answers the calls of a command's statements.
func (s *Store) answerStatements(l *collections.Collection, statements []*statement, done wire.Updated) {
	updates := updatesOf(statements)
	many := len(updates) > 1 || len(updates[0].calls) > 1
	for i, st := range statements {
		verdict := done.Verdicts[i]
		var refusal wire.StatementError
		st.refused = st.updates[0].shared && errors.As(verdict.Err, &refusal)
		if st.refused && wire.IsEvaluation(refusal.Code) {
			s.trials.Failed(l)
		}
		for _, u := range st.updates {
			for _, call := range u.calls {
				call.take(verdict, many)
				call.participant().writeRefused = nil
				if call.Answer.Result == protocol.Failed {
					call.participant().writeRefused = call.Cause
				}
				s.rememberFence(call, u)
			}
			if !u.shared {
				s.refused.Note(u.subject(), verdict.Result)
			}
		}
	}
}

// openCalls returns the calls of which the reply does not say what became of them. Where
// only some documents were changed, these are all that are not answered, but for those
// whose update sets a fence: such a call has to know that it was its own, and stays
// NotMatched. Where the server has ended a shared statement, these are all of its calls.
func openCalls(statements []*statement, done wire.Updated) []*Call {
	var open []*Call
	for _, st := range statements {
		for _, u := range st.updates {
			for _, call := range u.calls {
				short := done.Short && done.Matched && call.Answer.Result == protocol.NotMatched
				if st.refused || short && !u.replacesFence && !u.drawsFence {
					open = append(open, call)
				}
			}
		}
	}
	return open
}

// resolve finds out, by a deciding read, which calls of a command were done. It reports
// whether the read was answered, and is confirmed if asked.
//
// A trace that is there counts as prepared. One that is gone, from a document that
// exists, counts as paid or cleared: an execution concludes the same from its own look.
func (s *Store) resolve(ctx context.Context, from *mongo.Collection, ask bool, open []*Call) bool {
	var documents map[collections.Subject]bson.Raw
	if open[0].participant().subject.Collection.Confirmed(ctx, ask, func() (_ bool, err error) {
		documents, err = s.findParticipants(ctx, open, from)
		return true, err
	}) != nil {
		return false
	}
	for _, call := range open {
		p := call.participant()
		view := p.view(documents[p.subject])
		if view.Found() && call.shownBy(view.Markers(call.Attempt.Transfer.ID).Own) {
			call.answer(protocol.Applied, nil)
		} else {
			call.answer(protocol.NotMatched, nil)
		}
	}
	return true
}

// shownBy reports whether a trace shows that the call's write was done.
// One at the original of a reversal may be of another plan: its execution looks.
func (c *Call) shownBy(now protocol.Trace) bool {
	switch c.Op.Kind {
	case protocol.Prepare:
		e := c.participant().effect
		return (e == nil || !e.original) && (now == protocol.Reserved || now == protocol.Done)
	case protocol.Pay:
		return now == protocol.Done || now == protocol.NoTrace
	default:
		return now == protocol.NoTrace
	}
}

// rememberFence keeps the known fences true to the answers.
func (s *Store) rememberFence(call *Call, u *mergedUpdate) {
	subject := call.participant().subject
	switch {
	case call.Answer.Result != protocol.Applied, u.drawsFence:
		s.fences.Forget(subject)
	case call.Op.Kind == protocol.Prepare:
		s.fences.Applied(subject, "", 1)
	case call.Op.Kind == protocol.Clear && !u.replacesFence:
		s.fences.Applied(subject, "", 0)
	case u.replacesFence:
		s.fences.Applied(subject, document.FenceOfToken(u.token), -1)
	default:
		s.fences.Applied(subject, "", -1)
	}
}

// withoutGarbled returns the calls that can be performed, and refuses the others.
func withoutGarbled(calls []*Call) []*Call {
	if !slices.ContainsFunc(calls, func(call *Call) bool { return call.participant().garbled }) {
		return calls
	}
	var rest []*Call // not in place: the list is the caller's
	for _, call := range calls {
		if !call.refuseGarbled() {
			rest = append(rest, call)
		}
	}
	return rest
}

// refuseGarbled refuses a call that is to remove a marker, or to replace the fence where
// no marker is, if the latest look has shown something else than a map of markers:
// nothing shows then whether the marker is there. The call is asked for again after the
// next look.
func (c *Call) refuseGarbled() bool {
	p := c.participant()
	if !p.garbled || c.Op.Kind == protocol.Prepare {
		return false
	}
	p.garbled = false
	pending := p.subject.Collection.Fields.Pending
	c.answer(protocol.Failed, fmt.Errorf("%w: somebody has changed its field %q; put the map back", document.ErrGarbled, pending))
	return true
}
