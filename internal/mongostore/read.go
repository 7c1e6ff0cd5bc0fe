package mongostore

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/transition"
	"github.com/mongotransfer/transfer/internal/wire"
)

// maxVerified bounds how many transfers a look writes to. One that matches is enough.
const maxVerified = 4

// lookAtParticipants is a deciding read of participants of one collection: on the
// transfers' replica set a majority read in the session of a write to one of them that
// matched, and else a linearizable read, which takes up to 100 ms on an idle server.
func (s *Store) lookAtParticipants(ctx context.Context, l *collections.Collection, calls []*Call) {
	mayConclude := slices.ContainsFunc(calls, func(c *Call) bool { return c.Op.Concluding })
	if err := l.Confirmed(ctx, mayConclude, func() (bool, error) {
		decided := false
		if l.SameClient && !s.catalog.Routed(s.catalog.Transfers) {
			wire.InSession(ctx, s.catalog.Transfers, func(ctx context.Context) {
				if decided = s.verifyAny(ctx, calls); decided {
					s.readParticipants(ctx, calls, l.Majority, true)
				}
			})
		}
		if !decided {
			s.readParticipants(ctx, calls, l.Linearizable, true)
		}
		return slices.ContainsFunc(calls, (*Call).concludes), nil
	}); err != nil {
		answerAll(calls, protocol.Unknown, err)
	}
}

// verifyAny writes to some of the calls' transfers, and reports whether one matched.
func (s *Store) verifyAny(ctx context.Context, calls []*Call) bool {
	var writes []transition.Ownership
	written := map[string]bool{}
	for _, call := range calls {
		t := &call.Attempt.Transfer
		if written[t.ID] || len(writes) == maxVerified {
			continue
		}
		written[t.ID] = true
		writes = append(writes, call.Attempt.ownership(t.Epoch, ""))
	}
	return wire.UpdateAll(ctx, s.catalog.Transfers, writes).Matched
}

// readParticipants reads participants of one collection and answers with the facts.
// Whether a document is as an effect requires is asked only by a deciding read.
func (s *Store) readParticipants(ctx context.Context, calls []*Call, from *mongo.Collection, deciding bool) {
	documents, err := s.findParticipants(ctx, calls, from)
	for _, call := range calls {
		p := call.participant()
		stored, answered := documents[p.subject]
		if !answered {
			call.answer(protocol.Unknown, err)
			continue
		}
		facts := s.facts(call.Attempt, p, stored)
		if deciding {
			p.garbled = facts.Found && facts.Trace == protocol.Illegible
		}
		call.Answer = protocol.Answer{Result: protocol.Applied, Facts: facts}
		s.learnFence(call, stored)
	}
	if deciding {
		judgeRequirements(ctx, calls, from)
	}
	for _, call := range calls {
		if call.Answer.Result == protocol.Applied {
			call.participant().noteRefusal(call.Answer.Facts)
		}
	}
}

// learnFence remembers the fence of an account that a call has read. Those of documents,
// most of which change once, would only crowd out those of accounts.
func (s *Store) learnFence(call *Call, stored bson.Raw) {
	p, facts := call.participant(), call.Answer.Facts
	switch {
	case p.effect != nil:
	case facts.Found && facts.Kind:
		inFlight := p.view(stored).Markers(call.Attempt.Transfer.ID).Count
		s.fences.Learn(p.subject, facts.Fence, p.floor, inFlight)
	default:
		s.fences.Forget(p.subject)
	}
}

// findParticipants reads the calls' participants, which are of one collection.
// A document that does not exist is nil. Where the read fails, the documents that it has
// not reached are missing from the result.
func (s *Store) findParticipants(ctx context.Context, calls []*Call, from *mongo.Collection) (map[collections.Subject]bson.Raw, error) {
	participants := make([]*participant, 0, len(calls))
	asked := make(map[collections.Subject]bool, len(calls))
	for _, call := range calls {
		if p := call.participant(); !asked[p.subject] {
			asked[p.subject] = true
			participants = append(participants, p)
		}
	}
	l := participants[0].subject.Collection
	documents := make(map[collections.Subject]bson.Raw, len(participants))
	size := func(*participant) int { return wire.ParticipantBytes }
	for some := range wire.Portions(participants, wire.MaxAnswerBytes, size) {
		ids := make(bson.A, len(some))
		for i, p := range some {
			ids[i] = p.id
		}
		found, err := wire.FindByID(ctx, from, ids, options.Find().SetProjection(l.Projection()))
		if err != nil {
			return documents, err
		}
		for _, p := range some {
			documents[p.subject] = nil
		}
		for _, doc := range found {
			documents[l.Subject(doc.Lookup("_id"))] = doc
		}
	}
	return documents, nil
}
