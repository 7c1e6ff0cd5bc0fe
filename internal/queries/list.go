package queries

import (
	"context"
	"iter"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Query selects transfers. Its zero value selects all of them.
type Query struct {
	// States selects transfers in any of these states; in any at all, by default.
	States []protocol.State
	// Ledger and Account select an account's transfers. An Account of "" selects none.
	Ledger, Account string
	// ByLedger selects a ledger's transfers by Ledger alone, where Account is "".
	ByLedger bool
	// After and Before select transfers that were created between them. Zero is no limit.
	After, Before time.Time
	// Metadata selects transfers with equal values of these keys. Nil selects all.
	Metadata bson.Raw
	// Stuck selects only transfers that could not be finished when that was last tried.
	Stuck bool
	// Limit is how many transfers are returned at most; 0: all of them.
	Limit int
}

// filter returns what a query selects, given how account IDs are stored.
func (q Query) filter(ids document.IDCodec) bson.D {
	filter := bson.D{}
	if len(q.States) > 0 {
		filter = append(filter, document.StateIn(q.States...))
	}
	if q.Account != "" {
		filter = append(filter, document.OfAccount(q.Ledger, ids.Canonical(q.Account)))
	} else if q.ByLedger {
		filter = append(filter, document.WithLeg(bson.D{{Key: "ledger", Value: q.Ledger}}))
	}
	filter = append(filter, document.CreatedBetween(q.After, q.Before)...)
	filter = append(filter, document.WithMetadata(q.Metadata)...)
	if q.Stuck {
		filter = append(filter, document.IsStuck()...)
	}
	return filter
}

// List yields the transfers that a query selects, newest first.
func (q *Queries) List(ctx context.Context, query Query) iter.Seq2[document.Transfer, error] {
	newestFirst := bson.D{{Key: "createdAt", Value: -1}, {Key: "_id", Value: -1}}
	find := options.Find().SetSort(newestFirst).SetLimit(int64(query.Limit))
	return q.find(ctx, query.filter(q.catalog.IDs), find, 0)
}

// maxConnects is how often a read is begun again because another connection has failed.
// The next one shows why.
const maxConnects = 6

// find yields transfers page by page. A document that can't be decoded is yielded with
// its error, and the rest follows; any other error ends the sequence. A positive limit is
// that of each command.
func (q *Queries) find(
	ctx context.Context, filter bson.D, find *options.FindOptionsBuilder, limit time.Duration,
) iter.Seq2[document.Transfer, error] {
	majority := q.catalog.Majority
	return func(yield func(document.Transfer, error) bool) {
		fail := func(err error) {
			yield(document.Transfer{}, wire.ServerErrorOf(err, wire.RightFind, wire.NamespaceOf(majority)))
		}
		ctx := wire.Detached(ctx)
		begun, cancel := wire.WithTimeout(ctx, limit)
		cursor, err := majority.Find(begun, filter, find.SetAllowDiskUse(true))
		for n := 0; wire.Cleared(err) && n < maxConnects && collections.Pause(begun, document.Tick<<n) == nil; n++ {
			cursor, err = majority.Find(begun, filter, find)
		}
		cancel()
		if err != nil {
			fail(err)
			return
		}
		defer func() {
			closing, cancel := wire.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = cursor.Close(closing)
		}()
		for wire.NextWithin(ctx, cursor, limit) {
			t, err := document.DecodeTransfer(cursor.Current)
			if !yield(t, err) {
				return
			}
		}
		if err := cursor.Err(); err != nil {
			fail(err)
		}
	}
}
