package deployment

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

const asBefore = "give this coordinator the options under which it was begun, and let it come to its end"

// checkBeforeFirstNote makes sure, before the first note about a collection is written,
// that what is in flight there was begun under the names that the note will say. A
// release from before there were notes has left none: what it has prepared is the only
// sign of how it was configured. A sample is enough. All transfers were begun by the same
// configuration, or the collection is damaged already.
//
// A trace, which is a marker or a done mark, shows that the field has the right name. One
// in another field than the configured one, of the same transfer and with the same
// amount, shows that the field had another name when it was made:
//
//  1. A release that left no note made a hold, with its marker in pending.
//  2. This process is configured with markers in reserved. When it posts the hold it
//     finds no marker, and takes that as the sign that the money was moved already.
func (d *Deployment) checkBeforeFirstNote(ctx context.Context, c *collections.Collection) error {
	inFlight, err := d.participantsInFlight(ctx, c)
	if err != nil {
		return err
	}
	documents, err := documentsOf(ctx, c, inFlight)
	if err != nil {
		return err
	}
	traced := func(p participant) bool {
		trace := c.Fields.View(documents[c.Subject(p.id)]).Markers(p.transfer).Own
		return trace == protocol.Reserved || trace == protocol.Done
	}
	confirmed := slices.ContainsFunc(inFlight, traced)
	for _, p := range inFlight {
		stored, exists := documents[c.Subject(p.id)]
		switch {
		case !exists:
			err = d.refuseOtherID(ctx, c, p)
		case traced(p):
			err = p.requireBalance(c, stored)
		case p.held || !confirmed:
			// A participant without a trace need not have one. Where another trace is in
			// the configured field the name is right, and what looks like a trace in
			// another field is a map of the user's.
			err = p.refuseOtherField(c, stored)
		}
		if err != nil {
			return err
		}
	}
	if confirmed {
		return nil
	}
	return d.refuseOtherServer(ctx, c, inFlight)
}

// documentsOf reads the documents of participants.
func documentsOf(ctx context.Context, c *collections.Collection, all []participant) (map[collections.Subject]bson.Raw, error) {
	documents := map[collections.Subject]bson.Raw{}
	if len(all) == 0 {
		return documents, nil
	}
	ids := bson.A{}
	for _, p := range all {
		ids = append(ids, p.id)
	}
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	found, err := wire.Sample(ctx, c.Majority, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}, len(ids))
	for _, stored := range found {
		documents[c.Subject(stored.Lookup("_id"))] = stored
	}
	return documents, err
}

// refuseOtherID refuses a participant that is stored under an ObjectId, where IDs are
// configured as strings.
func (d *Deployment) refuseOtherID(ctx context.Context, c *collections.Collection, p participant) error {
	id, err := document.ObjectIDs.Encode(p.account)
	if c.Documents || d.catalog.IDs == document.ObjectIDs || err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	found, err := wire.Sample(ctx, c.Majority, bson.D{{Key: "_id", Value: id}}, 1)
	if err != nil || len(found) == 0 {
		return err
	}
	return fmt.Errorf("%w: transfer %s is in flight on account %s of %s, which is stored under an ObjectId, and WithAccountIDs says %s: %s",
		collections.ErrUnsupported, words.Quote(p.transfer), words.Quote(p.account), c.Namespace, d.catalog.IDs, asBefore)
}

// requireBalance refuses an account with a trace that has no balance in the configured
// field.
func (p participant) requireBalance(c *collections.Collection, stored bson.Raw) error {
	if _, err := stored.LookupErr(c.Fields.Balance); err == nil || c.Documents {
		return nil
	}
	return fmt.Errorf("%w: transfer %s is in flight on account %s of %s, where there is no field %q for the balance: %s",
		collections.ErrUnsupported, words.Quote(p.transfer), words.Quote(p.account), c.Namespace, c.Fields.Balance, asBefore)
}

// refuseOtherField refuses a participant whose marker is in another field.
func (p participant) refuseOtherField(c *collections.Collection, stored bson.Raw) error {
	field := p.fieldOfTrace(stored)
	if field == "" {
		return nil
	}
	return fmt.Errorf("%w: transfer %s is in flight, with its marker on %s of %s in the field %s, and WithFields says %q: %s",
		collections.ErrUnsupported, words.Quote(p.transfer), words.Quote(p.account), c.Namespace,
		words.Quote(field), c.Fields.Pending, asBefore)
}

// fieldOfTrace returns the top-level field of a document that has what looks like the
// participant's marker or done mark, "" if there is none.
func (p participant) fieldOfTrace(stored bson.Raw) string {
	for _, e := range wire.Elements(stored) {
		traces, isMap := e.Value().DocumentOK()
		if isMap && (p.looksLikeTrace(traces, document.MarkerKey(p.transfer)) || p.looksLikeTrace(traces, document.DoneKey(p.transfer))) {
			return e.Key()
		}
	}
	return ""
}

// looksLikeTrace reports whether a map has the participant's amount under a key.
func (p participant) looksLikeTrace(traces bson.Raw, key string) bool {
	value, err := traces.LookupErr(key)
	if err != nil {
		return false
	}
	amount, err := money.FromBSON(value)
	return err == nil && amount.Kind() == p.amount.Kind() && amount.Cmp(p.amount) == 0
}
