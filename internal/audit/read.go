package audit

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// Range bounds IDs: From ≤ ID < To; "" is no bound. Without From it takes in each _id that is no ID, too.
type Range struct{ From, To string }

// filter selects the documents whose _id lies in the range. The server compares an _id only with its like: $lt finds nothing of another
// type, and ranges without a gap would not find all that is there.
func (r Range) filter(ids document.IDCodec) (bson.D, error) {
	bounds := bson.D{}
	for _, bound := range []struct{ operator, id string }{{"$gte", r.From}, {"$lt", r.To}} {
		if bound.id == "" {
			continue
		}
		id, err := ids.Encode(bound.id)
		if err != nil {
			return nil, err
		}
		bounds = append(bounds, bson.E{Key: bound.operator, Value: id})
	}
	switch {
	case len(bounds) == 0:
		return bson.D{}, nil
	case r.From == "":
		bounds = bson.D{{Key: "$not", Value: bson.D{{Key: "$gte", Value: bounds[0].Value}}}}
	case r.To != "" && ids.Canonical(r.From) >= ids.Canonical(r.To):
		return nil, fmt.Errorf("from %s to %s there is nothing", words.Quote(r.From), words.Quote(r.To))
	}
	return bson.D{{Key: "_id", Value: bounds}}, nil
}

// Check refuses bounds that can't be IDs, or that nothing is between.
func (a *Reader) Check(accounts, transfers Range) error {
	if _, err := accounts.filter(a.store.IDs); err != nil {
		return err
	}
	_, err := transfers.filter(document.StringIDs)
	return err
}

// Times returns the fields of a transfer that are dates.
func Times() []string {
	return []string{"createdAt", "lastModified", "committedAt", "notBefore", "stuckAt", "expiresAt", "purgeAt"}
}

// Transfer is a stored transfer as an audit sees it.
type Transfer struct {
	document.Transfer
	ID     string            // as it is stored, whatever that is
	Err    error             // why it can't be read as a transfer
	Opened bool              // the field open is there
	Odd    map[string]string // fields that are read as what they aren't, with their values for people
	Marks  Document          // of reversals of it
}

// BackOff returns for how much longer than the threshold recovery leaves an unfinished transfer alone, because it was taken over often: up
// to 63 thresholds more.
func (t *Transfer) BackOff(threshold time.Duration) time.Duration {
	return threshold<<document.Doublings(t.Attempts, t.Stuck != nil) - threshold
}

// ReadTransfers yields the transfers of a range. An error ends it.
func (a *Reader) ReadTransfers(ctx context.Context, r Range) iter.Seq2[Transfer, error] {
	return func(yield func(Transfer, error) bool) {
		filter, err := r.filter(document.StringIDs)
		if err != nil {
			yield(Transfer{}, err)
			return
		}
		for document, err := range documents(ctx, a.store.Majority, filter, options.Find().SetProjection(typeOfMetadata())) {
			if err != nil {
				yield(Transfer{}, err)
				return
			}
			if !yield(a.auditTransfer(document.Lookup("stored").Document()), nil) {
				return
			}
		}
	}
}

// typeOfMetadata shows a document under the key stored, and in place of metadata that nobody can read its type: an audit doesn't look at
// what is in it.
func typeOfMetadata() bson.D {
	kind := bson.D{{Key: "$type", Value: "$metadata"}}
	readable := bson.D{{Key: "$in", Value: bson.A{kind, bson.A{"object", "array", "null", "undefined", "missing"}}}}
	return bson.D{{Key: "_id", Value: 0}, {Key: "stored", Value: bson.D{{Key: "$setField", Value: bson.D{
		{Key: "field", Value: "metadata"}, {Key: "input", Value: "$$ROOT"},
		{Key: "value", Value: bson.D{{Key: "$cond", Value: bson.A{readable, "$$REMOVE", kind}}}},
	}}}}}
}

// WithoutMetadata leaves out what is not looked at.
func WithoutMetadata() *options.FindOptionsBuilder {
	return options.Find().SetProjection(bson.D{{Key: "metadata", Value: 0}})
}

func (a *Reader) auditTransfer(doc bson.Raw) Transfer {
	t, err := document.DecodeTransfer(doc)
	if kind, odd := doc.Lookup("metadata").StringValueOK(); odd {
		err = fmt.Errorf("%w: the metadata is no document, but of type %s", document.ErrUnreadable, kind)
	}
	seen := Transfer{Transfer: t, ID: document.IDText(doc.Lookup("_id")), Err: err, Opened: !document.Absent(doc.Lookup("open"))}
	seen.expect(doc, "epoch", bson.TypeInt32, bson.TypeInt64)
	for _, flag := range []string{"open", "hold", "held", "clean"} {
		seen.expect(doc, flag, bson.TypeBoolean)
	}
	for _, at := range Times() {
		seen.expect(doc, at, bson.TypeDateTime)
	}
	if !document.Absent(doc.Lookup(a.Transfers.ledger.Fields.Pending)) {
		seen.Marks = a.Document(a.Transfers, doc)
	}
	return seen
}

// expect takes down a field of another type than it is stored with. 1. Somebody stores open as 1. 2. All who read the transfer take that
// for true. 3. The filter by which recovery finds it asks for true, and 1 is none. So it is with a text or Timestamp
// that all read as a time: to the server it is before all dates, or after them, and to most of its indexes nowhere.
func (t *Transfer) expect(doc bson.Raw, field string, types ...bson.Type) {
	stored := doc.Lookup(field)
	if document.Absent(stored) || slices.Contains(types, stored.Type) {
		return
	}
	if t.Odd == nil {
		t.Odd = map[string]string{}
	}
	t.Odd[field] = stored.String()
}

// ReadDocuments yields the accounts of a range; of a place without accounts, all documents that have markers. An error ends it.
func (a *Reader) ReadDocuments(ctx context.Context, p *Place, r Range) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		filter, err := r.filter(a.store.IDs)
		if err != nil {
			yield(Document{}, err)
			return
		}
		fields := p.ledger.Fields
		if !p.Accounts {
			filter = bson.D{{Key: fields.Pending, Value: bson.D{{Key: "$nin", Value: bson.A{nil, bson.D{}}}}}}
		}
		for document, err := range documents(ctx, p.ledger.Majority, filter, options.Find().SetProjection(fields.Projection())) {
			if err != nil {
				yield(Document{}, err)
				return
			}
			if !yield(a.Document(p, document), nil) {
				return
			}
		}
	}
}

// documents yields documents that are good until the next one.
func documents(ctx context.Context, c *mongo.Collection, filter bson.D, find *options.FindOptionsBuilder) iter.Seq2[bson.Raw, error] {
	return func(yield func(bson.Raw, error) bool) {
		cursor, err := c.Find(ctx, filter, find)
		if err != nil {
			yield(nil, wire.ServerErrorOf(err, wire.RightFind, wire.NamespaceOf(c)))
			return
		}
		defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }()
		for cursor.Next(ctx) {
			if !yield(cursor.Current, nil) {
				return
			}
		}
		if err := cursor.Err(); err != nil {
			yield(nil, wire.ServerErrorOf(err, wire.RightFind, wire.NamespaceOf(c)))
		}
	}
}

// FindTransfers returns those of the named transfers that are there. In a snapshot it reads what that shows, else what a majority has
// stored.
func (a *Reader) FindTransfers(ctx context.Context, ids []string) (map[string]Transfer, error) {
	return a.findTransfers(ctx, a.store.Majority, ids)
}

// DecideTransfers does so by a deciding read.
func (a *Reader) DecideTransfers(ctx context.Context, ids []string) (map[string]Transfer, error) {
	ctx, cancel := wire.WithTimeout(wire.Detached(ctx), wire.CommandLimit)
	defer cancel()
	return a.findTransfers(ctx, a.store.Linearizable, ids)
}

func (a *Reader) findTransfers(ctx context.Context, from *mongo.Collection, ids []string) (map[string]Transfer, error) {
	keys := make(bson.A, len(ids))
	for i, id := range ids {
		keys[i] = id
	}
	found, err := wire.FindByID(ctx, from, keys, WithoutMetadata())
	transfers := make(map[string]Transfer, len(found))
	for _, document := range found {
		t := a.auditTransfer(document)
		transfers[t.ID] = t
	}
	return transfers, err
}

// FindParticipants returns those of the participants, all of one place, that are there, by their keys. In a snapshot it reads what that shows,
// else what a majority has stored.
func (a *Reader) FindParticipants(ctx context.Context, p *Place, parts []Participant) (map[string]Document, error) {
	return a.findParticipants(ctx, p, p.ledger.Majority, parts)
}

// DecideParticipants does so by a deciding read.
func (a *Reader) DecideParticipants(ctx context.Context, p *Place, parts []Participant) (map[string]Document, error) {
	ctx, cancel := wire.WithTimeout(wire.Detached(ctx), wire.CommandLimit)
	defer cancel()
	return a.findParticipants(ctx, p, p.ledger.Linearizable, parts)
}

func (a *Reader) findParticipants(ctx context.Context, p *Place, from *mongo.Collection, parts []Participant) (map[string]Document, error) {
	keys := make(bson.A, len(parts))
	for i, part := range parts {
		keys[i] = part.id
	}
	found, err := wire.FindByID(ctx, from, keys, options.Find().SetProjection(p.ledger.Fields.Projection()))
	portraits := make(map[string]Document, len(found))
	for _, document := range found {
		seen := a.Document(p, document)
		portraits[seen.Key] = seen
	}
	return portraits, err
}
