package audit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Reader reads transfers and their participants, for an audit or a repair.
type Reader struct {
	// Transfers is the collection of the transfers, which reversals change.
	Transfers *collections.Collection
	// Collections are all others: the ledgers by name, then those of other documents by
	// name.
	Collections []*collections.Collection

	catalog *collections.Catalog
}

// NewReader returns the reader of a catalog.
func NewReader(catalog *collections.Catalog) *Reader {
	r := &Reader{catalog: catalog, Transfers: catalog.Originals}
	for _, byName := range []map[string]*collections.Collection{catalog.Ledgers, catalog.Documents} {
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			r.Collections = append(r.Collections, byName[name])
		}
	}
	return r
}

// otherClusters returns the collections that a snapshot of the transfers doesn't show,
// those of one cluster together.
func (r *Reader) otherClusters() [][]*collections.Collection {
	var (
		clusters [][]*collections.Collection
		index    = map[collections.Cluster]int{}
	)
	for _, c := range r.Collections {
		if c.SameClient {
			continue
		}
		i, known := index[c.Cluster()]
		if !known {
			i = len(clusters)
			index[c.Cluster()] = i
			clusters = append(clusters, nil)
		}
		clusters[i] = append(clusters[i], c)
	}
	return clusters
}

// describe names a collection in an error.
func describe(c *collections.Collection) string {
	switch {
	case !c.HoldsAccounts():
		return "collection " + c.Namespace
	case c.Name == "":
		return "the default ledger"
	}
	return fmt.Sprintf("ledger %q", c.Name)
}

// ErrSnapshotGone is returned where a server has not kept what it had stored at the
// snapshot's time for long enough.
var ErrSnapshotGone = errors.New("the server keeps no snapshot for as long as this takes")

// codeSnapshotTooOld is the server's code for it.
const codeSnapshotTooOld = 239

// inSnapshot performs reads on what a collection's cluster has stored at one moment: that
// of the first read.
// Nothing waits for it: the server keeps older versions of documents for some minutes.
func inSnapshot(ctx context.Context, c *collections.Collection, reads func(context.Context) error) error {
	session, err := c.Cluster().Client.StartSession(options.Session().SetSnapshot(true))
	if err != nil {
		return err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	err = reads(mongo.NewSessionContext(ctx, session))
	if refused := mongo.ServerError(nil); errors.As(err, &refused) && refused.HasErrorCode(codeSnapshotTooOld) {
		return fmt.Errorf("%w: %w", ErrSnapshotGone, err)
	}
	return err
}

// readTransfers yields the transfers of a range.
// An error ends it.
func (r *Reader) readTransfers(ctx context.Context, of Range) iter.Seq2[*Transfer, error] {
	filter, err := of.filter(document.StringIDs)
	if err != nil {
		return func(yield func(*Transfer, error) bool) { yield(nil, err) }
	}
	return r.transfersBy(ctx, filter)
}

// findReversals yields the reversals of some transfers.
// An error ends it.
func (r *Reader) findReversals(ctx context.Context, originals []string) iter.Seq2[*Transfer, error] {
	return r.transfersBy(ctx, bson.D{{Key: "reverses", Value: bson.D{{Key: "$in", Value: originals}}}})
}

// transfersBy yields the transfers that a filter selects.
func (r *Reader) transfersBy(ctx context.Context, filter bson.D) iter.Seq2[*Transfer, error] {
	return func(yield func(*Transfer, error) bool) {
		for raw, err := range find(ctx, r.catalog.Majority, filter, typeOfMetadata()) {
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(r.transfer(raw.Lookup("stored").Document()), nil) {
				return
			}
		}
	}
}

// ReadDocuments yields the accounts of a range.
// Of a collection without accounts it yields all documents that have markers.
// An error ends it.
func (r *Reader) ReadDocuments(ctx context.Context, c *collections.Collection, of Range) iter.Seq2[*Document, error] {
	return func(yield func(*Document, error) bool) {
		filter, err := of.filter(r.catalog.IDs)
		if err != nil {
			yield(nil, err)
			return
		}
		if !c.HoldsAccounts() {
			filter = bson.D{{Key: c.Fields.Pending, Value: bson.D{{Key: "$nin", Value: bson.A{nil, bson.D{}}}}}}
		}
		for raw, err := range find(ctx, c.Majority, filter, c.Fields.Projection()) {
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(r.document(c, raw), nil) {
				return
			}
		}
	}
}

// find yields documents. Each of them is valid until the next one.
func find(ctx context.Context, c *mongo.Collection, filter, projection bson.D) iter.Seq2[bson.Raw, error] {
	return func(yield func(bson.Raw, error) bool) {
		cursor, err := c.Find(ctx, filter, options.Find().SetProjection(projection))
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

// findTransfers returns those of the named transfers that are stored.
// In a snapshot it reads what that shows, otherwise what a majority has stored.
func (r *Reader) findTransfers(ctx context.Context, ids []string) (map[string]*Transfer, error) {
	return r.transfersFrom(ctx, r.catalog.Majority, ids)
}

// DecideTransfers returns those of the named transfers that are stored.
// It reads linearizably, outside of any snapshot.
func (r *Reader) DecideTransfers(ctx context.Context, ids []string) (map[string]*Transfer, error) {
	ctx, cancel := wire.WithTimeout(wire.Detached(ctx), wire.CommandLimit)
	defer cancel()
	return r.transfersFrom(ctx, r.catalog.Linearizable, ids)
}

func (r *Reader) transfersFrom(
	ctx context.Context, from *mongo.Collection, ids []string,
) (map[string]*Transfer, error) {
	keys := make(bson.A, len(ids))
	for i, id := range ids {
		keys[i] = id
	}
	found, err := wire.FindByID(ctx, from, keys, options.Find().SetProjection(bson.D{{Key: "metadata", Value: 0}}))
	transfers := make(map[string]*Transfer, len(found))
	for _, raw := range found {
		t := r.transfer(raw)
		transfers[t.ID] = t
	}
	return transfers, err
}

// findParticipants returns those of the participants, all of one collection, that are
// stored, by their keys.
// In a snapshot it reads what that shows, otherwise what a majority has stored.
func (r *Reader) findParticipants(
	ctx context.Context, c *collections.Collection, participants []Participant,
) (map[string]*Document, error) {
	return r.participantsFrom(ctx, c, c.Majority, participants)
}

// decideParticipants is findParticipants by a linearizable read.
func (r *Reader) decideParticipants(
	ctx context.Context, c *collections.Collection, participants []Participant,
) (map[string]*Document, error) {
	ctx, cancel := wire.WithTimeout(wire.Detached(ctx), wire.CommandLimit)
	defer cancel()
	return r.participantsFrom(ctx, c, c.Linearizable, participants)
}

func (r *Reader) participantsFrom(
	ctx context.Context, c *collections.Collection, from *mongo.Collection, participants []Participant,
) (map[string]*Document, error) {
	keys := make(bson.A, len(participants))
	for i, p := range participants {
		keys[i] = p.id
	}
	found, err := wire.FindByID(ctx, from, keys, options.Find().SetProjection(c.Fields.Projection()))
	documents := make(map[string]*Document, len(found))
	for _, raw := range found {
		d := r.document(c, raw)
		documents[d.Key] = d
	}
	return documents, err
}

// committedSince reports whether a transfer with a leg on the ledger was committed since
// a time.
func (r *Reader) committedSince(ctx context.Context, since time.Time, ledger string) (bool, error) {
	filter := bson.D{
		{Key: "committedAt", Value: bson.D{{Key: "$gte", Value: since}}},
		document.WithLeg(bson.D{{Key: "ledger", Value: ledger}}),
	}
	_, err := wire.FindOne(wire.Detached(ctx), r.catalog.Majority, filter)
	if wire.NotFound(err) {
		return false, nil
	}
	return err == nil, err
}
