package deployment

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// flightSample is how many transfers in flight are looked at, of each kind, before the first
// note about a collection is written.
const flightSample = 32

// inFlight makes sure that what is in flight was begun under the names that the first notes
// are going to tell. A release from before there were notes has left none, and what it has
// prepared is the only sign of how it was configured. A few show it: all of them were begun
// by the same configuration, or the collection is in a bad way already.
func (s *Deployment) inFlight(ctx context.Context, missing []*collections.Collection) error {
	for _, l := range missing {
		some, err := s.flights(ctx, l)
		if err != nil {
			return err
		}
		if err := s.sameNames(ctx, l, some); err != nil {
			return err
		}
	}
	return nil
}

// flight is a participant of a transfer that is in flight.
type flight struct {
	transfer, account string
	id                bson.RawValue
	amount            money.Amount
	held              bool // the transfer is a hold that is held: it has a marker for certain
}

// flights returns participants, in one collection, of transfers that may have prepared them:
// first of holds that are held, which all have.
func (s *Deployment) flights(ctx context.Context, l *collections.Collection) ([]flight, error) {
	place := bson.E{Key: "legs.ledger", Value: l.Name}
	if l.Documents {
		place.Key = "effects.documents"
	}
	begun := bson.E{Key: "epoch", Value: bson.D{{Key: "$gte", Value: int64(1)}}}
	open := bson.E{Key: "open", Value: true}
	var all []flight
	seen := map[string]bool{}
	for _, filter := range []bson.D{
		{open, {Key: "hold", Value: true}, begun, {Key: "held", Value: true}, {Key: "state", Value: protocol.Preparing}, place},
		{open, {Key: "hold", Value: bson.D{{Key: "$in", Value: bson.A{true, nil}}}}, begun, place},
	} {
		transfers, err := s.some(ctx, filter)
		if err != nil {
			return nil, err
		}
		for _, t := range transfers {
			if seen[t.ID] {
				continue
			}
			seen[t.ID] = true
			of, err := s.flightsOf(t, l)
			if err != nil {
				return nil, err
			}
			all = append(all, of...)
		}
	}
	return all, nil
}

// some reads a few transfers. What can't be read is left to the audit.
func (s *Deployment) some(ctx context.Context, filter bson.D) ([]document.Transfer, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	documents, err := listed(ctx, s.Majority, filter, flightSample)
	if err != nil {
		return nil, err
	}
	var transfers []document.Transfer
	for _, doc := range documents {
		if t, err := document.DecodeTransfer(doc); err == nil {
			transfers = append(transfers, t)
		}
	}
	return transfers, nil
}

// listed reads up to so many documents, by an aggregation: see one.
func listed(ctx context.Context, c *mongo.Collection, filter bson.D, limit int) ([]bson.Raw, error) {
	pipeline := bson.A{bson.D{{Key: "$match", Value: filter}}, bson.D{{Key: "$limit", Value: int64(limit)}}}
	cursor, err := c.Aggregate(ctx, pipeline, options.Aggregate().SetBatchSize(int32(limit+1)))
	if err != nil {
		return nil, wire.ServerErrorOf(err, "find", wire.NamespaceOf(c))
	}
	var documents []bson.Raw
	if err := cursor.All(ctx, &documents); err != nil {
		return nil, wire.ServerErrorOf(err, "find", wire.NamespaceOf(c))
	}
	return documents, nil
}

// flightsOf returns a transfer's participants in one collection.
func (s *Deployment) flightsOf(t document.Transfer, l *collections.Collection) ([]flight, error) {
	var all []flight
	if l.Documents {
		for _, e := range t.Effects {
			if e.Documents == l.Name && e.Namespace == l.Namespace {
				all = append(all, flight{t.ID, document.IDText(e.ID), e.ID, money.Zero(money.Whole), t.HeldNow()})
			}
		}
		return all, nil
	}
	for _, leg := range t.Legs {
		if leg.Ledger != l.Name || leg.Namespace != l.Namespace {
			continue
		}
		id, err := s.IDs.Encode(leg.Account)
		if err != nil {
			return nil, fmt.Errorf("%w: transfer %s is in flight on account %s of %s, which is no ID by WithAccountIDs(%s): %s",
				collections.ErrUnsupported, words.Quote(t.ID), words.Quote(leg.Account), l.Namespace, s.IDs, asBefore)
		}
		all = append(all, flight{t.ID, leg.Account, id, leg.Amount, t.HeldNow()})
	}
	return all, nil
}

const asBefore = "give this coordinator the options under which it was begun, and let it come to its end"

// sameNames looks at documents that transfers in flight may have prepared. A marker that is
// under another field than ours, of just that transfer and with just its amount, shows that
// the field had another name when it was made:
//
//  1. A hold was made under pending, by a release that left no note.
//  2. This one is told that markers are under reserved. By Post it would find none, and take
//     that for the sign that the money was moved already.
func (s *Deployment) sameNames(ctx context.Context, l *collections.Collection, flights []flight) error {
	documents, err := s.documentsOf(ctx, l, flights)
	if err != nil {
		return err
	}
	confirmed := slices.ContainsFunc(flights, func(f flight) bool {
		return l.Fields.View(documents[l.Subject(f.id)]).Markers(f.transfer).Own
	})
	for _, f := range flights {
		document, there := documents[l.Subject(f.id)]
		if !there {
			if err := s.otherID(ctx, l, f); err != nil {
				return err
			}
			continue
		}
		if !l.Fields.View(document).Markers(f.transfer).Own {
			// A map of the user's may look like markers. Who has no marker need not have one,
			// and the name is right where somebody else's is under it.
			if field := f.markerIn(document); field != "" && (f.held || !confirmed) {
				return fmt.Errorf("%w: transfer %s is in flight, with its marker on %s of %s in the field %s, "+
					"and WithFields says %q: %s", collections.ErrUnsupported, words.Quote(f.transfer), words.Quote(f.account),
					l.Namespace, words.Quote(field), l.Fields.Pending, asBefore)
			}
			continue
		}
		if _, err := document.LookupErr(l.Fields.Balance); err != nil && !l.Documents {
			return fmt.Errorf("%w: transfer %s is in flight on account %s of %s, where there is no field %q for the balance: %s",
				collections.ErrUnsupported, words.Quote(f.transfer), words.Quote(f.account), l.Namespace, l.Fields.Balance, asBefore)
		}
	}
	return s.elsewhere(ctx, l, flights, documents)
}

// documentsOf reads the documents of flights.
func (s *Deployment) documentsOf(ctx context.Context, l *collections.Collection, flights []flight) (map[collections.Subject]bson.Raw, error) {
	documents := map[collections.Subject]bson.Raw{}
	if len(flights) == 0 {
		return documents, nil
	}
	ids := bson.A{}
	for _, f := range flights {
		ids = append(ids, f.id)
	}
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	found, err := listed(ctx, l.Majority, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}, len(ids))
	for _, document := range found {
		documents[l.Subject(document.Lookup("_id"))] = document
	}
	return documents, err
}

// otherID refuses a transfer in flight on an account that is there under an ObjectId, where
// IDs are said to be stored as strings.
func (s *Deployment) otherID(ctx context.Context, l *collections.Collection, f flight) error {
	id, err := document.ObjectIDs.Encode(f.account)
	if l.Documents || s.IDs == document.ObjectIDs || err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	found, err := listed(ctx, l.Majority, bson.D{{Key: "_id", Value: id}}, 1)
	if err != nil || len(found) == 0 {
		return err
	}
	return fmt.Errorf("%w: transfer %s is in flight on account %s of %s, which is stored under an ObjectId, "+
		"and WithAccountIDs says %s: %s", collections.ErrUnsupported, words.Quote(f.transfer), words.Quote(f.account), l.Namespace, s.IDs, asBefore)
}

// markerIn returns the top-level field of a document under which there is what looks like
// the transfer's marker, "" if there is none.
func (f flight) markerIn(doc bson.Raw) string {
	for _, e := range wire.Elements(doc) {
		markers, isMap := e.Value().DocumentOK()
		if !isMap {
			continue
		}
		value, err := markers.LookupErr(document.MarkerKey(f.transfer))
		if err != nil {
			continue
		}
		if amount, err := money.FromBSON(value); err == nil && amount.Kind() == f.amount.Kind() && amount.Cmp(f.amount) == 0 {
			return e.Key()
		}
	}
	return ""
}
