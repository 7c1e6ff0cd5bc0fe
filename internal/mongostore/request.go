package mongostore

import (
	"context"
	"slices"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Call is one operation of one execution, and what became of it.
type Call struct {
	Attempt *Attempt
	Op      protocol.Operation
	Answer  protocol.Answer
	Cause   error // the error that made the answer less than Applied, if there was one
	// Alone asks for this work's operations to be performed one by one from now on: the server has refused a whole command, and this
	// one may be why.
	Alone bool
	// Suspect says that the document which the operation writes to may be locked: the server has given up a
	// command that it did not come to the end of, and this may be where it waited.
	Suspect bool
}

func (r *Call) answer(result protocol.Result, err error) {
	r.Answer, r.Cause = protocol.Answer{Result: result}, err
}

// take takes over a verdict.
func (r *Call) take(v wire.Verdict, many bool) {
	r.answer(v.Result, v.Err)
	r.Alone = many && refusedWhole(v.Err)
}

// refusedWhole reports whether an error is the server's refusal of a command that can't be carried out as it is, whoever asks.
func refusedWhole(err error) bool {
	code := wire.CommandCode(err)
	return code == wire.CodeOverflow || code != 0 && wire.IsRefusal(code)
}

func answerAll(requests []*Call, result protocol.Result, err error) {
	for _, r := range requests {
		r.answer(result, err)
	}
}

// Lane is what operations have in common that can go out in one command. It can be compared.
type Lane struct {
	ledger *collections.Collection // nil: the transfers
	kind   laneKind
}

type laneKind uint8

const (
	laneInsert laneKind = iota + 1
	laneClaim           // what is stored already
	laneChange
	laneRead  // by majority: fences, or transfers
	laneLook  // deciding
	laneWrite // to participants
)

// LaneOf returns the lane of an operation.
func LaneOf(w *Attempt, op protocol.Operation) Lane {
	switch op.Kind {
	case protocol.Claim:
		if op.Claim == protocol.Insert {
			return Lane{kind: laneInsert}
		}
		return Lane{kind: laneClaim}
	case protocol.Verify, protocol.MarkHeld, protocol.Decide, protocol.Finish:
		return Lane{kind: laneChange}
	case protocol.ReadTransfer:
		return Lane{kind: laneRead}
	case protocol.LookTransfer:
		return Lane{kind: laneLook}
	case protocol.ReadFence:
		return Lane{w.participants[op.Participant].key.Collection, laneRead}
	case protocol.Look:
		return Lane{w.participants[op.Participant].key.Collection, laneLook}
	case protocol.Prepare, protocol.Settle, protocol.Undo, protocol.FenceOnly:
	}
	return Lane{w.participants[op.Participant].key.Collection, laneWrite}
}

// ClusterOf returns where a lane's commands go.
func (s *Store) ClusterOf(lane Lane) collections.Cluster {
	c := s.Transfers
	if lane.ledger != nil {
		c = lane.ledger.Commands
	}
	return collections.Cluster{c.Database().Client()}
}

// ClusterCount returns how many clusters are registered.
func (s *Store) ClusterCount() int { return len(s.Catalog.Clusters) }

// ClustersOf returns the clusters that a work's participants are in, always in the same order. Every work
// needs that of the transfers: it is named only where there are no others.
func (s *Store) ClustersOf(w *Attempt) []collections.Cluster {
	var touched []collections.Cluster
	for _, c := range s.Catalog.Clusters[1:] {
		if slices.ContainsFunc(w.participants, func(p participant) bool { return p.key.Collection.Cluster() == c }) {
			touched = append(touched, c)
		}
	}
	if len(touched) == 0 {
		return s.Catalog.Clusters[:1:1]
	}
	return touched
}

// SubjectOf returns the document that an operation writes to, or reads.
func SubjectOf(w *Attempt, op protocol.Operation) collections.Subject {
	if op.Participant == protocol.NoParticipant {
		return collections.Subject{ID: w.Transfer.ID}
	}
	return w.participants[op.Participant].key
}

// Perform performs the requests of one lane, in as few commands as it takes, and answers each as if it were alone: those on one
// document in the order in which they stand.
func (s *Store) Perform(ctx context.Context, lane Lane, requests []*Call) {
	ctx = wire.Detached(ctx)
	switch lane.kind {
	case laneInsert:
		s.insertClaimed(ctx, requests)
	case laneClaim:
		s.claim(ctx, requests)
	case laneChange:
		s.changeTransfers(ctx, requests)
	case laneWrite:
		s.write(ctx, lane.ledger, requests)
	case laneRead, laneLook:
		switch {
		case lane.ledger == nil && lane.kind == laneRead:
			s.readTransfers(ctx, requests, s.Majority)
		case lane.ledger == nil:
			s.readTransfers(ctx, requests, s.Linearizable)
		case lane.kind == laneRead:
			s.read(ctx, requests, lane.ledger.Majority, false)
		default:
			s.look(ctx, lane.ledger, requests)
		}
	}
}

// AnswerFromCache answers an operation from what is known, if it can be. Nothing is known of whether there is enough money; who is to reserve a
// document looks for that first, lest it keep the document from somebody who could have paid.
func (s *Store) AnswerFromCache(w *Attempt, op protocol.Operation) (protocol.Answer, bool) {
	if op.Kind != protocol.ReadFence || w.reserves() > 0 {
		return protocol.Answer{}, false
	}
	p := &w.participants[op.Participant]
	known, ok := s.fences.get(p.key, s.markerLimit)
	if !ok {
		return protocol.Answer{}, false
	}
	p.floor = known.floor
	return protocol.Answer{Result: protocol.Applied, Facts: protocol.Facts{
		Found: true, Fence: known.fence, Open: true, Currency: true, Kind: true, BelowMarkerLimit: true, Funds: true, WithinLimits: true,
	}}, true
}
