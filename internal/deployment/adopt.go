package deployment

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// Adopt replaces the notes by those that this process would write, where nothing is in
// flight. It is the only way to change a note. It refuses what Setup refuses, except for
// what a note says.
func (d *Deployment) Adopt(ctx context.Context) error {
	ctx = wire.Detached(ctx)
	if err := d.checkServers(ctx); err != nil {
		return err
	}
	all := d.catalog.All()
	adoptions := make([]adoption, 0, len(all))
	for _, c := range all {
		a, err := d.adoptionOf(ctx, c)
		if err != nil {
			return err
		}
		adoptions = append(adoptions, a)
	}
	if err := d.requireAllDistinct(ctx, toWork, d.catalog.Addresses()); err != nil {
		return err
	}
	if err := d.requireDelivered(ctx, adoptions); err != nil {
		return err
	}
	if !d.onlyEventsChange(adoptions) {
		if err := d.requireIdle(ctx, adoptions); err != nil {
			return err
		}
	}
	for _, a := range adoptions { // those of the transfers first
		if err := d.adoptIdentity(ctx, a); err != nil {
			return err
		}
		if err := d.adoptNote(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// adoption is a collection whose note is to be replaced.
type adoption struct {
	collection *collections.Collection
	stored     beside
	recorded   record
}

// adoptionOf reads a collection's note, and refuses what Adopt can't replace.
func (d *Deployment) adoptionOf(ctx context.Context, c *collections.Collection) (adoption, error) {
	if _, err := d.inspector.CheckCollection(ctx, c); err != nil {
		return adoption{}, err
	}
	recorded, err := d.readRecord(ctx, c)
	if err != nil {
		return adoption{}, err
	}
	stored, err := d.readBeside(ctx, c)
	if err != nil {
		return adoption{}, err
	}
	if stored.noted && !stored.note.readable() {
		return adoption{}, d.wantedNote(c).requireAgreement(stored.note, c)
	}
	return adoption{c, stored, recorded}, nil
}

// onlyEventsChange reports whether the notes and all that lies beside them change in
// nothing but the kinds of events. These say nothing of where money is: what is in flight
// may go on.
func (d *Deployment) onlyEventsChange(adoptions []adoption) bool {
	deployment := ""
	for _, a := range adoptions {
		if a.collection == d.catalog.Originals {
			deployment = a.stored.note.deployment
		}
	}
	return deployment != "" && !slices.ContainsFunc(adoptions, func(a adoption) bool {
		wanted := d.wantedNote(a.collection)
		wanted.deployment = deployment
		recorded := a.collection == d.catalog.Originals || a.recorded.found && a.recorded.identity == a.stored.identity
		return !a.stored.noted || !a.stored.note.equalsButEvents(wanted) || !recorded
	})
}

// requireDelivered refuses to switch events off while some wait: nobody would deliver
// them, and a transfer that is to be purged after that would be kept for good.
func (d *Deployment) requireDelivered(ctx context.Context, adoptions []adoption) error {
	events := func(a adoption) bool { return len(a.stored.note.events) > 0 }
	if d.catalog.Events.Any() || !slices.ContainsFunc(adoptions, events) {
		return nil
	}
	waiting, err := d.sampleTransfers(ctx, document.AwaitsDelivery())
	if err != nil || len(waiting) == 0 {
		return err
	}
	return fmt.Errorf("%w: an event of transfer %s of %s is not delivered: let a worker deliver it, or give it up",
		collections.ErrUnsupported, words.Quote(waiting[0].ID), wire.NamespaceOf(d.catalog.Transfers))
}

// requireIdle refuses a change while money is in flight. A process that continues a
// transfer afterwards would look for its markers in other fields, or for the transfer in
// another collection.
func (d *Deployment) requireIdle(ctx context.Context, adoptions []adoption) error {
	open, err := d.sampleTransfers(ctx, bson.D{{Key: "open", Value: true}})
	if err != nil {
		return err
	}
	if len(open) > 0 {
		return fmt.Errorf("%w: transfer %s of %s is unfinished: let all come to their end first", collections.ErrUnsupported,
			words.Quote(open[0].ID), wire.NamespaceOf(d.catalog.Transfers))
	}
	for _, a := range adoptions {
		fields := []string{a.collection.Fields.Pending}
		if old := a.stored.note.field("pending"); old != "" && old != fields[0] {
			fields = append(fields, old)
		}
		for _, pending := range fields {
			if err := requireUnmarked(ctx, a.collection, pending); err != nil {
				return err
			}
		}
	}
	return nil
}

// requireUnmarked refuses a collection in which a document carries a marker. It reads the
// whole collection.
func requireUnmarked(ctx context.Context, c *collections.Collection, pending string) error {
	marked := bson.D{{Key: pending, Value: bson.D{{Key: "$nin", Value: bson.A{nil, bson.D{}}}}}}
	documents, err := wire.Sample(ctx, c.Majority, marked, 1)
	if err != nil || len(documents) == 0 {
		return err
	}
	id, field := words.Clip(document.IDText(documents[0].Lookup("_id"))), words.Quote(pending)
	if _, isMap := documents[0].Lookup(pending).DocumentOK(); !isMap {
		return fmt.Errorf("%w: the field %s of %s of %s is no map of markers: if it is yours, name another one by WithFields; "+
			"otherwise put the map back, and let all transfers come to their end first", collections.ErrUnsupported, field, id, c.Namespace)
	}
	return fmt.Errorf("%w: a transfer is in flight on %s of %s, in the field %s: let all come to their end first",
		collections.ErrUnsupported, id, c.Namespace, field)
}

// adoptNote replaces a note, unless it was changed since it was read.
func (d *Deployment) adoptNote(ctx context.Context, a adoption) error {
	c := a.collection
	wanted := d.wantedNote(c)
	wanted.deployment = d.transfersIdentity()
	if c == d.catalog.Originals {
		wanted.deployment = a.stored.note.deployment
		if wanted.deployment == "" {
			wanted.deployment = newIdentity()
		}
	}
	if a.stored.noted && a.stored.note.equals(wanted) {
		return d.accept(toWork, wanted, c)
	}
	if !a.stored.noted {
		return d.writeNote(ctx, c)
	}
	update := bson.D{{Key: "$set", Value: wanted.document()}, countChange()}
	unset := bson.D{}
	if wanted.ids == "" {
		unset = append(unset, bson.E{Key: "ids", Value: ""})
	}
	if len(wanted.events) == 0 && len(a.stored.note.events) > 0 {
		unset = append(unset, bson.E{Key: "events", Value: ""})
	}
	if len(unset) > 0 {
		update = append(update, bson.E{Key: "$unset", Value: unset})
	}
	after, err := d.replace(ctx, c, collections.NoteID, a.stored.note.changes, update, "the note about "+c.Namespace)
	if err != nil {
		return err
	}
	return d.accept(toWork, decodeNote(after), c)
}

// replace changes a document beside a collection, unless it was changed since it was
// read, and returns it as it is then.
func (d *Deployment) replace(
	ctx context.Context, beside *collections.Collection, id any, changes int64, update bson.D, what string,
) (bson.Raw, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	asRead := bson.D{{Key: "_id", Value: id}, {Key: "changes", Value: changes}}
	notes := d.known[beside].notes
	after, result, err := wire.FindAndModify(ctx, notes, asRead, update)
	switch result {
	case protocol.Applied:
		return after, nil
	case protocol.NotMatched:
		return nil, fmt.Errorf("%w: %s was changed by somebody else: ask again", collections.ErrUnsupported, what)
	default:
		return nil, wire.ServerErrorOf(err, "update", wire.NamespaceOf(notes))
	}
}
