package mongostore

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// markSuspects marks the calls at whose document a command was held up.
//
// The server performs updates in their order, and waits where an open transaction has
// written to the document. So it is the first one that would have changed its
// document and has not. That is a hint about what to send alone, and decides nothing: a
// plain read will do. Where the read fails or finds no such statement, all are marked.
func (s *Store) markSuspects(ctx context.Context, l *collections.Collection, updates []*mergedUpdate) {
	if len(updates) > 1 {
		updates = s.firstUndone(ctx, l, updates)
	}
	for _, u := range updates {
		for _, call := range u.calls {
			call.Suspect = true
		}
	}
}

// firstUndone returns the first update of a command that could have been done and was
// not, or all if none is found.
func (s *Store) firstUndone(ctx context.Context, l *collections.Collection, updates []*mergedUpdate) []*mergedUpdate {
	var calls []*Call
	for _, u := range updates {
		calls = append(calls, u.calls...)
	}
	documents, err := s.findParticipants(ctx, calls, wire.ForReads(l.Commands, readconcern.Local()))
	if err != nil {
		return updates
	}
	for i, u := range updates {
		stored := documents[u.calls[0].participant().subject]
		if !slices.ContainsFunc(u.calls, func(call *Call) bool { return !s.wouldChange(call, stored) }) {
			return updates[i : i+1]
		}
	}
	return updates
}

// wouldChange reports whether a call's write would still change its document.
func (s *Store) wouldChange(call *Call, stored bson.Raw) bool {
	facts := s.facts(call.Attempt, call.participant(), stored)
	switch call.Op.Kind {
	case protocol.Prepare:
		return facts.Trace == protocol.NoTrace && facts.Fence == call.Op.Fence && facts.Refusal() == 0
	case protocol.Pay, protocol.Settle, protocol.Undo:
		return facts.Trace == protocol.Reserved || facts.Trace == protocol.Illegible
	case protocol.Clear:
		return facts.Trace == protocol.Done || facts.Trace == protocol.Illegible
	case protocol.FenceOnly:
		return facts.Found && facts.Trace == protocol.NoTrace && !s.drawnRecently(facts.Fence)
	case protocol.Claim, protocol.ReadFence, protocol.ReadTransfer, protocol.LookTransfer, protocol.Verify,
		protocol.Look, protocol.MarkHeld, protocol.Decide, protocol.Finish:
	}
	return false
}

// drawnRecently guesses whether a fence was drawn after a command was sent that is given
// up now.
func (s *Store) drawnRecently(fence protocol.Fence) bool {
	drawn, _, ok := document.StoredFence(fence).TimestampOK()
	now, _ := s.catalog.Clock.Estimate()
	return ok && int64(drawn) >= now.Add(-2*wire.CommandLimit).Unix()
}
