package deployment

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// sampleSize is how many transfers in flight are read, of each kind, before the first
// note about a collection is written.
const sampleSize = 32

// participant is a participant of a transfer in flight.
type participant struct {
	transfer, account string
	id                bson.RawValue
	amount            money.Amount
	held              bool // the transfer is a hold that is held: the marker exists for certain
}

// participantsInFlight returns participants in one collection, of transfers that may have
// prepared them. Holds that are held come first: they have prepared all of theirs.
func (d *Deployment) participantsInFlight(ctx context.Context, c *collections.Collection) ([]participant, error) {
	here := bson.E{Key: "legs.ledger", Value: c.Name}
	if c.Documents {
		here.Key = "effects.documents"
	}
	begun := bson.E{Key: "epoch", Value: bson.D{{Key: "$gte", Value: int64(1)}}}
	open := bson.E{Key: "open", Value: true}
	anyKind := bson.E{Key: "hold", Value: bson.D{{Key: "$in", Value: bson.A{true, nil}}}}
	var all []participant
	seen := map[string]bool{}
	for _, filter := range []bson.D{
		{open, {Key: "hold", Value: true}, begun, {Key: "held", Value: true}, {Key: "state", Value: protocol.Preparing}, here},
		{open, anyKind, begun, here},
	} {
		transfers, err := d.sampleTransfers(ctx, filter)
		if err != nil {
			return nil, err
		}
		for _, t := range transfers {
			if seen[t.ID] {
				continue
			}
			seen[t.ID] = true
			some, err := d.participantsOf(t, c)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
	}
	return all, nil
}

// sampleTransfers reads a few transfers. It leaves those that can't be decoded to the
// audit.
func (d *Deployment) sampleTransfers(ctx context.Context, filter bson.D) ([]document.Transfer, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	documents, err := wire.Sample(ctx, d.catalog.Majority, filter, sampleSize)
	if err != nil {
		return nil, err
	}
	var transfers []document.Transfer
	for _, stored := range documents {
		if t, err := document.DecodeTransfer(stored); err == nil {
			transfers = append(transfers, t)
		}
	}
	return transfers, nil
}

// participantsOf returns a transfer's participants in one collection.
func (d *Deployment) participantsOf(t document.Transfer, c *collections.Collection) ([]participant, error) {
	var all []participant
	if c.Documents {
		for _, e := range t.Effects {
			if e.Documents == c.Name && e.Namespace == c.Namespace {
				all = append(all, participant{t.ID, document.IDText(e.ID), e.ID, money.Zero(money.Whole), t.HeldNow()})
			}
		}
		return all, nil
	}
	for _, leg := range t.Legs {
		if leg.Ledger != c.Name || leg.Namespace != c.Namespace {
			continue
		}
		id, err := d.catalog.IDs.Encode(leg.Account)
		if err != nil {
			return nil, fmt.Errorf("%w: transfer %s is in flight on account %s of %s, which is no ID by WithAccountIDs(%s): %s",
				collections.ErrUnsupported, words.Quote(t.ID), words.Quote(leg.Account), c.Namespace, d.catalog.IDs, asBefore)
		}
		all = append(all, participant{t.ID, leg.Account, id, leg.Amount, t.HeldNow()})
	}
	return all, nil
}
