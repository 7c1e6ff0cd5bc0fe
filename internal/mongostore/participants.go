package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// read finds participants of one ledger and answers with the facts. Whether a document is as an effect requires it is asked only where
// the answer decides.
func (s *Store) read(ctx context.Context, requests []*Call, from *mongo.Collection, deciding bool) {
	documents, err := s.find(ctx, requests, from)
	for _, r := range requests {
		p := r.participant()
		document, answered := documents[p.key]
		if !answered {
			r.answer(protocol.Unknown, err)
			continue
		}
		facts := s.facts(r.Attempt, p, document)
		if deciding {
			p.garbled = r.Attempt.garbles(p.view(document))
		}
		r.Answer = protocol.Answer{Result: protocol.Applied, Facts: facts}
		if p.effect != nil {
			continue // most documents change once: to remember their fences would only crowd out those of accounts
		}
		if facts.Found && facts.Kind {
			inFlight := p.view(document).Markers(r.Attempt.Transfer.ID).Count
			s.fences.learn(p.key, facts.Fence, p.floor, inFlight)
		} else {
			s.fences.forget(p.key)
		}
	}
	if deciding {
		judgeRequirements(ctx, requests, from)
	}
	for _, r := range requests {
		if r.Answer.Result == protocol.Applied {
			r.participant().note(r.Answer.Facts)
		}
	}
}

// find reads the requests' participants, which are of one ledger. Where it fails, those
// that were answered are in what it returns, also as nil.
func (s *Store) find(ctx context.Context, requests []*Call, from *mongo.Collection) (map[collections.Subject]bson.Raw, error) {
	parties := make([]*participant, 0, len(requests))
	asked := make(map[collections.Subject]bool, len(requests))
	for _, r := range requests {
		if p := r.participant(); !asked[p.key] {
			asked[p.key] = true
			parties = append(parties, p)
		}
	}
	l := requests[0].participant().key.Collection
	documents := make(map[collections.Subject]bson.Raw, len(parties))
	for some := range wire.Portions(parties, wire.MaxAnswerBytes, func(*participant) int { return wire.ParticipantBytes }) {
		ids := make(bson.A, len(some))
		for i, p := range some {
			ids[i] = p.id
		}
		found, err := wire.FindByID(ctx, from, ids, options.Find().SetProjection(l.Fields.Projection()))
		if err != nil {
			return documents, err
		}
		for _, p := range some {
			documents[p.key] = nil
		}
		for _, doc := range found {
			documents[l.Subject(doc.Lookup("_id"))] = doc
		}
	}
	return documents, nil
}

// maxTouched bounds how many transfers a look writes to before it reads: one that matches is enough.
const maxTouched = 4

// look is a deciding read. On the transfers' own replica set it is a majority read in the session of a write to one of the
// transfers that matched. Elsewhere, or where none matched, it is linearizable, which takes up to 100 ms on an idle server.
func (s *Store) look(ctx context.Context, l *collections.Collection, requests []*Call) {
	decided := false
	if l.SameClient && !s.Routed(s.Transfers) {
		wire.InSession(ctx, s.Transfers, func(ctx context.Context) {
			if decided = s.touchAny(ctx, requests); decided {
				s.read(ctx, requests, l.Majority, true)
			}
		})
	}
	if !decided {
		s.read(ctx, requests, l.Linearizable, true)
	}
}

// touchAny writes to some of the requests' transfers and reports whether any was still their execution's.
func (s *Store) touchAny(ctx context.Context, requests []*Call) bool {
	var touches []ownershipWrite
	touched := map[string]bool{}
	for _, r := range requests {
		if touched[r.Attempt.Transfer.ID] || len(touches) == maxTouched {
			continue
		}
		touched[r.Attempt.Transfer.ID] = true
		touches = append(touches, ownershipWrite{work: r.Attempt, epoch: r.Attempt.Transfer.Epoch})
	}
	return wire.UpdateAll(ctx, s.Transfers, touches).Matched
}

// write performs prepares, settles, undos and fence-onlys. What could not be done by one statement for several transfers is tried
// again by one for each, in order, so that each gets an answer of its own; but only if it is known that none of it was done. 1. A
// prepare is made by a statement for several transfers, and told NotMatched for want of a better answer. 2. It is sent again by
// itself, and the server refuses that: its execution believes that nothing was prepared, and leaves the marker for ever.
func (s *Store) write(ctx context.Context, l *collections.Collection, requests []*Call) {
	requests = legible(requests)
	if len(requests) == 0 {
		return
	}
	units := s.gather(requests)
	known := s.writeUnits(ctx, l, units)
	if wire.HeldUp(requests[0].Cause) {
		s.findSuspect(ctx, l, units)
	}
	var apart []*Call
	for _, u := range units {
		if len(u.requests) == 1 {
			continue
		}
		for _, r := range u.requests {
			if result := r.Answer.Result; result == protocol.Failed || result == protocol.NotMatched && known {
				apart = append(apart, r)
			}
		}
	}
	if len(apart) > 0 {
		s.writeUnits(ctx, l, s.singles(apart))
	}
}

// writeUnits sends units as one command and answers their requests. It reports whether NotMatched is known to be true of each.
func (s *Store) writeUnits(ctx context.Context, l *collections.Collection, units []*mergedUpdate) (known bool) {
	if len(units) == 1 {
		s.answerUnits(units, wire.UpdateAll(ctx, l.Commands, units))
		return true
	}
	known = true
	wire.InSession(ctx, l.Commands, func(inSession context.Context) {
		done := wire.UpdateAll(inSession, l.Commands, units)
		s.answerUnits(units, done)
		switch {
		case !done.Short || !done.Matched:
		case s.Routed(l.Commands):
			known = s.resolve(ctx, l.Linearizable, units)
		default:
			known = s.resolve(inSession, l.Majority, units)
		}
	})
	return known
}

func (s *Store) answerUnits(units []*mergedUpdate, done wire.Updated) {
	many := len(units) > 1 || len(units[0].requests) > 1
	for i, u := range units {
		for _, r := range u.requests {
			r.take(done.Verdicts[i], many)
			r.participant().refused = nil
			if r.Answer.Result == protocol.Failed {
				r.participant().refused = r.Cause
			}
			s.remember(r, u)
		}
	}
}

// resolve tells, by a deciding read, which statements of a command have matched of which only some have. A marker that is there
// counts as prepared, and one that is gone from a document which is there as cleared, by whomever: it is what the
// execution would conclude from a look of its own. One that replaces the fence has to know that it was its own. It reports whether
// the read was answered.
func (s *Store) resolve(ctx context.Context, from *mongo.Collection, units []*mergedUpdate) bool {
	var open []*Call
	for _, u := range units {
		for _, r := range u.requests {
			if r.Answer.Result == protocol.NotMatched && !u.replaces && !u.draws {
				open = append(open, r)
			}
		}
	}
	if len(open) == 0 {
		return true
	}
	documents, err := s.find(ctx, open, from)
	if err != nil {
		return false
	}
	for _, r := range open {
		p := r.participant()
		view := p.view(documents[p.key])
		marker := view.Markers(r.Attempt.Transfer.ID).Own
		if view.Found() && marker == (r.Op.Kind == protocol.Prepare) && view.HasMap() {
			r.answer(protocol.Applied, nil)
		}
	}
	return true
}

// remember keeps the known fences true to the answers.
func (s *Store) remember(r *Call, u *mergedUpdate) {
	key := r.participant().key
	switch {
	case r.Answer.Result != protocol.Applied, u.draws:
		s.fences.forget(key)
	case r.Op.Kind == protocol.Prepare:
		s.fences.applied(key, "", 1)
	case u.replaces:
		s.fences.applied(key, document.FenceOfToken(u.token), -1)
	default:
		s.fences.applied(key, "", -1)
	}
}
