package queries

import (
	"context"
	"iter"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Expired yields the holds that have expired and are not decided, the oldest first, but for those on
// the given routes.
func (s *Queries) Expired(ctx context.Context, without ...Route) iter.Seq2[document.Transfer, error] {
	filter := append(bson.D{{Key: "open", Value: true}}, document.Expired()...)
	return s.list(ctx, append(filter, s.off(without)...), searching("expiresAt"), wire.CommandLimit)
}

// Query selects transfers; its zero value selects all of them.
type Query struct {
	States          []protocol.State
	Ledger, Account string
	ByLedger        bool // whether Ledger counts where Account is ""
	After, Before   time.Time
	Metadata        bson.Raw // equal values of these keys
	Stuck           bool     // only what could not be finished when it was last tried
	Limit           int
}

// ReadTransfer reads what a majority has stored; false: there is no such transfer.
func (s *Queries) ReadTransfer(ctx context.Context, id string) (document.Transfer, bool, error) {
	return getTransfer(ctx, s.Majority, id)
}

// ReadTransferLinearizable is GetTransfer by a deciding read.
func (s *Queries) ReadTransferLinearizable(ctx context.Context, id string) (document.Transfer, bool, error) {
	return getTransfer(ctx, s.Linearizable, id)
}

func getTransfer(ctx context.Context, from *mongo.Collection, id string) (document.Transfer, bool, error) {
	doc, err := wire.FindOne(wire.Detached(ctx), from, bson.D{{Key: "_id", Value: id}})
	if wire.NotFound(err) {
		return document.Transfer{}, false, nil
	}
	if err != nil {
		return document.Transfer{}, false, err
	}
	t, err := document.DecodeTransfer(doc)
	return t, true, err
}

// ConfirmMissing reports, by a deciding read, that there is no such transfer.
func (s *Queries) ConfirmMissing(ctx context.Context, id string) (bool, error) {
	_, err := wire.FindOne(wire.Detached(ctx), s.Linearizable, bson.D{{Key: "_id", Value: id}})
	if wire.NotFound(err) {
		return true, nil
	}
	return false, err
}

// List yields the transfers that a query selects, newest first.
func (s *Queries) List(ctx context.Context, q Query) iter.Seq2[document.Transfer, error] {
	filter := bson.D{}
	if len(q.States) > 0 {
		filter = append(filter, document.StateIn(q.States...))
	}
	if q.Account != "" {
		filter = append(filter, document.OfAccount(q.Ledger, s.IDs.Canonical(q.Account)))
	} else if q.ByLedger {
		filter = append(filter, document.WithLeg(bson.D{{Key: "ledger", Value: q.Ledger}}))
	}
	created := bson.D{}
	if !q.After.IsZero() {
		created = append(created, bson.E{Key: "$gt", Value: q.After})
	}
	if !q.Before.IsZero() {
		created = append(created, bson.E{Key: "$lt", Value: q.Before})
	}
	if len(created) > 0 {
		filter = append(filter, bson.E{Key: "createdAt", Value: created})
	}
	if elements, err := q.Metadata.Elements(); err == nil {
		for _, e := range elements {
			is := bson.D{{Key: "$eq", Value: e.Value()}}
			if e.Value().Type == bson.TypeNull { // which a missing one is equal to
				is = append(is, bson.E{Key: "$exists", Value: true})
			}
			filter = append(filter, bson.E{Key: "metadata." + e.Key(), Value: is})
		}
	}
	if q.Stuck {
		filter = append(filter, document.IsStuck()...)
	}
	newestFirst := bson.D{{Key: "createdAt", Value: -1}, {Key: "_id", Value: -1}}
	return s.list(ctx, filter, options.Find().SetSort(newestFirst).SetLimit(int64(q.Limit)), 0)
}

// searchPage is how many transfers a search for work reads at once. Who finds that it can't begin
// with them ends the search, and has read no more than that in vain.
const searchPage = 256

func searching(by string) *options.FindOptionsBuilder {
	return options.Find().SetSort(bson.D{{Key: by, Value: 1}}).SetBatchSize(searchPage)
}

// Stalled yields the transfers that a takeover with this threshold would get, the oldest first, but
// for those on the given routes.
func (s *Queries) Stalled(ctx context.Context, threshold time.Duration, without ...Route) iter.Seq2[document.Transfer, error] {
	open := bson.E{Key: "open", Value: true}
	plain := bson.D{open, document.NoHold(), {Key: "epoch", Value: bson.D{{Key: "$ne", Value: 0}}}}
	hold := bson.D{open, {Key: "hold", Value: true}, document.StateIn(protocol.Committed, protocol.Rollback)} // of holds that live there may be many
	either := bson.D{{Key: "$or", Value: bson.A{append(plain, document.Stalled(threshold)...), append(hold, document.StandingStill(threshold)...)}}}
	return s.list(ctx, append(either, s.off(without)...), searching("lastModified"), wire.CommandLimit)
}

// Initiated yields transfers that wait for a worker and whose time has come, by the server's clock: first those that had to wait for
// it, in that order, then the others, the oldest first. They are looked for apart, each in a part of the index: what is scheduled for
// later, be it a hundred thousand, is not looked at. Those on the given routes are left out, and, if recent is positive, those that could
// have been found for longer.
func (s *Queries) Initiated(ctx context.Context, recent time.Duration, without ...Route) iter.Seq2[document.Transfer, error] {
	waiting := func(notBefore any, since string, more ...bson.D) bson.D {
		if recent > 0 {
			from := bson.D{{Key: "$subtract", Value: bson.A{"$$NOW", recent.Milliseconds()}}}
			more = append(more, bson.D{{Key: "$gte", Value: bson.A{since, from}}})
		}
		filter := bson.D{
			{Key: "open", Value: true}, document.NoHold(), {Key: "epoch", Value: 0}, {Key: "state", Value: protocol.Initiated},
			{Key: "notBefore", Value: notBefore},
		}
		if len(more) > 0 {
			filter = append(filter, bson.E{Key: "$expr", Value: bson.D{{Key: "$and", Value: more}}})
		}
		return append(filter, s.off(without)...)
	}
	isDue := bson.D{{Key: "$lte", Value: bson.A{"$notBefore", "$$NOW"}}}
	due := waiting(bson.D{{Key: "$type", Value: "date"}}, "$notBefore", isDue)
	atOnce := waiting(nil, "$createdAt")
	return func(yield func(document.Transfer, error) bool) {
		for t, err := range s.list(ctx, due, searching("notBefore"), wire.CommandLimit) {
			if !yield(t, err) {
				return
			}
		}
		for t, err := range s.list(ctx, atOnce, searching("createdAt"), wire.CommandLimit) {
			if !yield(t, err) {
				return
			}
		}
	}
}

// maxConnects is how often a list is begun again because another connection has failed. The
// next one tells why.
const maxConnects = 6

// list yields transfers page by page. After a document that can't be read the rest follows; any other error ends it. A limit, where
// positive, is that of each command.
func (s *Queries) list(
	ctx context.Context, filter bson.D, find *options.FindOptionsBuilder, limit time.Duration,
) iter.Seq2[document.Transfer, error] {
	return func(yield func(document.Transfer, error) bool) {
		ctx := wire.Detached(ctx)
		begun, cancel := wire.WithTimeout(ctx, limit)
		cursor, err := s.Majority.Find(begun, filter, find.SetAllowDiskUse(true))
		for n := 0; wire.Cleared(err) && n < maxConnects && collections.Pause(begun, document.Tick<<n) == nil; n++ {
			cursor, err = s.Majority.Find(begun, filter, find)
		}
		cancel()
		if err != nil {
			yield(document.Transfer{}, wire.ServerErrorOf(err, wire.RightFind, wire.NamespaceOf(s.Majority)))
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
			yield(document.Transfer{}, wire.ServerErrorOf(err, wire.RightFind, wire.NamespaceOf(s.Majority)))
		}
	}
}
