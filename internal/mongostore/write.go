package mongostore

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// writeParticipants performs prepares, settles, undos and fence-onlys on participants of
// one collection.
//
// Where one statement for several transfers did not match, writeParticipants sends one
// for each, in order, so that each gets an answer of its own. It does so only if it is
// known that none of them was done. 1. A prepare is made by a statement for several
// transfers, whose answer is NotMatched for want of a better one. 2. It is sent again by
// itself, and the server refuses that. 3. Its execution believes that nothing was
// prepared, and leaves the marker for ever.
func (s *Store) writeParticipants(ctx context.Context, l *collections.Collection, calls []*Call) {
	calls = withoutGarbled(calls)
	if len(calls) == 0 {
		return
	}
	updates := s.merge(calls)
	known := s.sendUpdates(ctx, l, updates)
	if wire.HeldUp(calls[0].Cause) {
		s.markSuspects(ctx, l, updates)
	}
	var single []*Call
	for _, u := range updates {
		if len(u.calls) == 1 {
			continue
		}
		for _, call := range u.calls {
			if result := call.Answer.Result; result == protocol.Failed || result == protocol.NotMatched && known {
				single = append(single, call)
			}
		}
	}
	if len(single) > 0 {
		s.sendUpdates(ctx, l, s.oneUpdateEach(single))
	}
}

// sendUpdates sends updates as one command and answers their calls.
// It reports whether each NotMatched is known to be true.
func (s *Store) sendUpdates(ctx context.Context, l *collections.Collection, updates []*mergedUpdate) (known bool) {
	if len(updates) == 1 {
		s.answerUpdates(updates, wire.UpdateAll(ctx, l.Commands, updates))
		return true
	}
	known = true
	wire.InSession(ctx, l.Commands, func(inSession context.Context) {
		done := wire.UpdateAll(inSession, l.Commands, updates)
		s.answerUpdates(updates, done)
		switch {
		case !done.Short || !done.Matched:
		case s.catalog.Routed(l.Commands):
			known = s.resolveUpdates(ctx, l.Linearizable, updates)
		default:
			known = s.resolveUpdates(inSession, l.Majority, updates)
		}
	})
	return known
}

// answerUpdates answers the calls of a command's updates.
func (s *Store) answerUpdates(updates []*mergedUpdate, done wire.Updated) {
	many := len(updates) > 1 || len(updates[0].calls) > 1
	for i, u := range updates {
		for _, call := range u.calls {
			call.take(done.Verdicts[i], many)
			call.participant().writeRefused = nil
			if call.Answer.Result == protocol.Failed {
				call.participant().writeRefused = call.Cause
			}
			s.rememberFence(call, u)
		}
	}
}

// resolveUpdates finds out, by a deciding read, which statements of a command have
// matched where only some have. It reports whether the read was answered.
//
// A marker that is there counts as prepared. One that is gone, from a document that
// exists, counts as cleared by any process. The execution would conclude the same from a
// look of its own. An update that sets a fence has to know that it was its own: it stays
// NotMatched.
func (s *Store) resolveUpdates(ctx context.Context, from *mongo.Collection, updates []*mergedUpdate) bool {
	var open []*Call
	for _, u := range updates {
		for _, call := range u.calls {
			if call.Answer.Result == protocol.NotMatched && !u.replacesFence && !u.drawsFence {
				open = append(open, call)
			}
		}
	}
	if len(open) == 0 {
		return true
	}
	documents, err := s.findParticipants(ctx, open, from)
	if err != nil {
		return false
	}
	for _, call := range open {
		p := call.participant()
		view := p.view(documents[p.subject])
		marker := view.Markers(call.Attempt.Transfer.ID).Own
		if view.Found() && marker == (call.Op.Kind == protocol.Prepare) && view.HasMap() {
			call.answer(protocol.Applied, nil)
		}
	}
	return true
}

// rememberFence keeps the known fences true to the answers.
func (s *Store) rememberFence(call *Call, u *mergedUpdate) {
	subject := call.participant().subject
	switch {
	case call.Answer.Result != protocol.Applied, u.drawsFence:
		s.fences.Forget(subject)
	case call.Op.Kind == protocol.Prepare:
		s.fences.Applied(subject, "", 1)
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
