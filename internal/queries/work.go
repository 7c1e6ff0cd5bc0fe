package queries

import (
	"context"
	"iter"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

// searchPage is how many transfers a search for work reads at once. A caller that can't
// begin with those ends the search, and has read no more in vain.
const searchPage = 256

func sortedBy(field string) *options.FindOptionsBuilder {
	return options.Find().SetSort(bson.D{{Key: field, Value: 1}}).SetBatchSize(searchPage)
}

// Initiated yields transfers that wait for a worker and whose time has come, by the
// server's clock. First come those that had to wait for it, in that order, then the
// others, oldest first. Each kind is searched in its own part of the index, so transfers
// that are scheduled for later are not read, even a hundred thousand of them. It leaves
// out transfers on the given routes and, if recent is positive, those that could have
// been found for longer.
func (q *Queries) Initiated(ctx context.Context, recent time.Duration, without ...Route) iter.Seq2[document.Transfer, error] {
	due := q.search(ctx, document.InitiatedAndDue(recent), "notBefore", without)
	atOnce := q.search(ctx, document.InitiatedAtOnce(recent), "createdAt", without)
	return func(yield func(document.Transfer, error) bool) {
		for _, found := range []iter.Seq2[document.Transfer, error]{due, atOnce} {
			for t, err := range found {
				if !yield(t, err) {
					return
				}
			}
		}
	}
}

// Stalled yields the transfers that a takeover with this threshold would get, oldest
// first. It leaves out those on the given routes.
func (q *Queries) Stalled(ctx context.Context, threshold time.Duration, without ...Route) iter.Seq2[document.Transfer, error] {
	return q.search(ctx, bson.D{document.ClaimedUnfinished(threshold)}, "lastModified", without)
}

// Expired yields the holds that have expired and are not decided, oldest first. It leaves
// out those on the given routes.
func (q *Queries) Expired(ctx context.Context, without ...Route) iter.Seq2[document.Transfer, error] {
	return q.search(ctx, document.ExpiredHolds(), "expiresAt", without)
}

// search yields work in the order of a field, except what is on the given routes.
func (q *Queries) search(ctx context.Context, filter bson.D, by string, without []Route) iter.Seq2[document.Transfer, error] {
	return q.find(ctx, append(filter, q.excluding(without)...), sortedBy(by), wire.CommandLimit)
}

// UnfinishedIDs returns the IDs of transfers that a process has claimed and none has
// finished, at most limit, in the order of the IDs and beyond the given one. It leaves
// out holds that may still be decided and, if while is positive, transfers that were
// created within it by the server's clock.
func (q *Queries) UnfinishedIDs(ctx context.Context, beyond string, while time.Duration, limit int) ([]string, error) {
	filter := bson.D{document.ClaimedUnfinished(0), {Key: "_id", Value: bson.D{{Key: "$gt", Value: beyond}}}}
	if while > 0 {
		filter = append(filter, document.CreatedBefore(while))
	}
	return q.findIDs(ctx, filter, sortedBy("_id").SetLimit(int64(limit)))
}

// StillUnfinished returns those of the given transfers that are not final, and not known
// to be stuck.
func (q *Queries) StillUnfinished(ctx context.Context, ids []string) ([]string, error) {
	return q.findIDs(ctx, document.StillUnfinished(ids), options.Find())
}

// Deliverable returns the IDs of transfers with an event that a worker may take in hand
// at an instant: at most limit, beyond as many as are passed over. The index has them in
// the order in which they come to be due. To ask for that order would have the server
// read all of them first, because the field is in an array.
func (q *Queries) Deliverable(ctx context.Context, at time.Time, beyond, limit int) ([]string, error) {
	find := options.Find().SetBatchSize(searchPage).SetSkip(int64(beyond)).SetLimit(int64(limit))
	return q.findIDs(ctx, document.Deliverable(at), find)
}

// findIDs returns the IDs of the transfers that a filter selects.
func (q *Queries) findIDs(ctx context.Context, filter bson.D, find *options.FindOptionsBuilder) ([]string, error) {
	find.SetProjection(bson.D{{Key: "_id", Value: 1}}).SetAllowDiskUse(true)
	var documents []struct {
		ID any `bson:"_id"`
	}
	if err := wire.FindAll(wire.Detached(ctx), q.catalog.Majority, filter, &documents, find); err != nil {
		return nil, err
	}
	ids := make([]string, 0, len(documents))
	for _, d := range documents {
		if id, ok := d.ID.(string); ok { // a document with any other ID is no transfer
			ids = append(ids, id)
		}
	}
	return ids, nil
}
