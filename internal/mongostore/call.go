package mongostore

import (
	"context"

	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Call is one operation of one attempt, and what became of it.
type Call struct {
	// Attempt is the execution that the operation is performed for.
	Attempt *Attempt
	// Op is the operation.
	Op protocol.Operation
	// Answer is what the server answered. Perform sets it.
	Answer protocol.Answer
	// Cause is the error that made the answer less than Applied, if there was one.
	Cause error
	// Alone asks that this attempt's operations are performed one by one from now on.
	// The server has refused a whole command, and this one may be the reason.
	Alone bool
	// Suspect says that the document that the operation writes to may be locked.
	// The server gave up a command that it did not complete, and may have waited here.
	Suspect bool
}

// Perform performs the calls of one lane in as few commands as possible.
// It answers each call as if it were alone.
// Calls on one document are performed in the order in which they stand.
func (s *Store) Perform(ctx context.Context, lane Lane, calls []*Call) {
	ctx = wire.Detached(ctx)
	switch lane.kind {
	case laneInsert:
		s.insertClaimed(ctx, calls)
	case laneClaim:
		s.claim(ctx, calls)
	case laneChange:
		s.changeTransfers(ctx, calls)
	case laneWrite:
		s.writeParticipants(ctx, lane.ledger, calls)
	case laneRead, laneLook:
		switch {
		case lane.ledger == nil && lane.kind == laneRead:
			s.readTransfers(ctx, calls, s.catalog.Majority)
		case lane.ledger == nil:
			s.readTransfers(ctx, calls, s.catalog.Linearizable)
		case lane.kind == laneRead:
			s.readParticipants(ctx, calls, lane.ledger.Majority, false)
		default:
			s.lookAtParticipants(ctx, lane.ledger, calls)
		}
	}
}

// AnswerFromCache answers the read of a fence from the fence cache, if it can.
//
// The cache does not know whether there is enough money. An attempt that is about to
// reserve a document needs to know: otherwise it would keep the document from another one
// that can pay. So for such an attempt nothing is answered from the cache.
func (s *Store) AnswerFromCache(a *Attempt, op protocol.Operation) (protocol.Answer, bool) {
	if op.Kind != protocol.ReadFence || a.reservedDocuments() > 0 {
		return protocol.Answer{}, false
	}
	p := &a.participants[op.Participant]
	known, ok := s.fences.Get(p.subject, s.markerLimit)
	if !ok {
		return protocol.Answer{}, false
	}
	p.floor = known.Floor
	return protocol.Answer{Result: protocol.Applied, Facts: protocol.Facts{
		Found: true, Fence: known.Fence, Open: true, Unfrozen: true, Currency: true, Kind: true,
		BelowMarkerLimit: true, Funds: true, WithinLimits: true,
	}}, true
}

// participant returns the participant that the call is about.
func (c *Call) participant() *participant { return &c.Attempt.participants[c.Op.Participant] }

// concludes reports whether a look has found no trace, and that counts.
func (c *Call) concludes() bool {
	return c.Op.Concluding && c.Answer.Result == protocol.Applied && c.Answer.Facts.Trace == protocol.NoTrace
}

// currency returns the currency that a prepare requires of the account.
func (c *Call) currency() string { return c.Attempt.Transfer.CurrencyOf(c.participant().leg) }

// answer sets the answer, and its cause.
func (c *Call) answer(result protocol.Result, err error) {
	c.Answer, c.Cause = protocol.Answer{Result: result}, err
}

// take answers with the server's verdict on the call's statement.
// The option many says that the command had other calls in it.
func (c *Call) take(v wire.Verdict, many bool) {
	c.answer(v.Result, v.Err)
	c.Alone = many && wire.RefusedWhole(v.Err)
}

// answerAll gives all calls the same answer.
func answerAll(calls []*Call, result protocol.Result, err error) {
	for _, call := range calls {
		call.answer(result, err)
	}
}
