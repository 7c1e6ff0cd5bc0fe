package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Arrived reports whether all that a committed transfer pays is where it belongs, and all
// that it sets is set. It only reads.
//
// What was prepared and shows no marker any more is paid. So each read has to be later
// than the record, which is later than every prepare:
//
//  1. A cut-off old primary shows bob as he was before the transfer was prepared there.
//  2. Without a marker he would count as paid.
//
// On the transfers' own replica set that is a read in the session of a read that shows
// the record. Elsewhere it is a linearizable read.
func (s *Store) Arrived(ctx context.Context, a *Attempt) (arrived bool, err error) {
	ctx = wire.Detached(ctx)
	wire.InSession(ctx, s.catalog.Transfers, func(inSession context.Context) {
		arrived, err = s.arrived(ctx, inSession, a)
	})
	return arrived, err
}

// arrived is Arrived, with and without the session of the transfers' client.
func (s *Store) arrived(ctx, inSession context.Context, a *Attempt) (bool, error) {
	recorded := &Call{Attempt: a, Op: protocol.Operation{Kind: protocol.ReadTransfer, Participant: protocol.NoParticipant}}
	s.readTransfers(inSession, []*Call{recorded}, s.catalog.Majority)
	if recorded.Answer.Result != protocol.Applied || !recorded.Answer.Transfer.State.Forward() {
		return false, recorded.Cause
	}
	for collection, calls := range a.gainers() {
		reading, from := ctx, collection.Linearizable
		if collection.SameClient && !s.catalog.Routed(s.catalog.Transfers) {
			reading, from = inSession, collection.Majority
		}
		arrived := true
		if err := collection.Confirmed(ctx, true, func() (bool, error) {
			documents, err := s.findParticipants(reading, calls, from)
			for _, call := range calls {
				arrived = arrived && err == nil && call.participant().hasGained(documents, a.Transfer.ID)
			}
			return arrived, err
		}); err != nil || !arrived {
			return false, err
		}
	}
	return true, nil
}

// gainers returns looks at all who may gain, by collection: also the payers of a hold.
func (a *Attempt) gainers() map[*collections.Collection][]*Call {
	looks := map[*collections.Collection][]*Call{}
	for i := range a.participants {
		if p := &a.participants[i]; a.Transfer.Hold || p.leg.Amount.Sign() >= 0 {
			look := protocol.Operation{Kind: protocol.Look, Participant: i}
			looks[p.subject.Collection] = append(looks[p.subject.Collection], &Call{Attempt: a, Op: look})
		}
	}
	return looks
}

// hasGained reports whether a participant has what it gains by a committed transfer.
func (p *participant) hasGained(documents map[collections.Subject]bson.Raw, transferID string) bool {
	view := p.view(documents[p.subject])
	if !view.Found() {
		return p.effect != nil && p.effect.original
	}
	trace := view.Markers(transferID).Own
	return trace == protocol.Done || trace == protocol.NoTrace
}
