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

// findSuspect marks the requests at whose document a command was held up. The server
// performs statements in their order, and waits where somebody's open transaction has
// written to the document: so it is the first one that would have changed its document
// and has not. That is a hint about what to send apart and decides nothing, so a plain
// read will do; where it fails, or names nobody, all are marked.
func (s *Store) findSuspect(ctx context.Context, l *collections.Collection, units []*mergedUpdate) {
	suspects := units
	if len(units) > 1 {
		if found := s.firstUndone(ctx, l, units); found != nil {
			suspects = []*mergedUpdate{found}
		}
	}
	for _, u := range suspects {
		for _, r := range u.requests {
			r.Suspect = true
		}
	}
}

// firstUndone returns the first unit of a command that could have been done and was not,
// nil if none is found.
func (s *Store) firstUndone(ctx context.Context, l *collections.Collection, units []*mergedUpdate) *mergedUpdate {
	var requests []*Call
	for _, u := range units {
		requests = append(requests, u.requests...)
	}
	documents, err := s.find(ctx, requests, wire.ForReads(l.Commands, readconcern.Local()))
	if err != nil {
		return nil
	}
	for _, u := range units {
		document := documents[u.requests[0].participant().key]
		if !slices.ContainsFunc(u.requests, func(r *Call) bool { return !s.waits(r, document) }) {
			return u
		}
	}
	return nil
}

// waits reports whether a request of a unit would still change its document.
func (s *Store) waits(r *Call, document bson.Raw) bool {
	facts := s.facts(r.Attempt, r.participant(), document)
	switch r.Op.Kind {
	case protocol.Prepare:
		return !facts.Marker && facts.Fence == r.Op.Fence && facts.Refusal() == 0
	case protocol.Settle, protocol.Undo:
		return facts.Marker
	case protocol.FenceOnly:
		return facts.Found && !facts.Marker && !s.drawnLately(facts.Fence)
	case protocol.Claim, protocol.ReadFence, protocol.ReadTransfer, protocol.LookTransfer, protocol.Verify, protocol.Look,
		protocol.MarkHeld, protocol.Decide, protocol.Finish:
	}
	return false
}

// drawnLately guesses whether a fence was drawn since a command was sent that is given up
// now.
func (s *Store) drawnLately(fence protocol.Fence) bool {
	drawn, _, ok := document.StoredFence(fence).TimestampOK()
	now, _ := s.Clock.Estimate()
	return ok && int64(drawn) >= now.Add(-2*wire.CommandLimit).Unix()
}
