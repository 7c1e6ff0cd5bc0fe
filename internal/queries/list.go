package queries

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
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
	// Unfinished selects only transfers that are not final.
	Unfinished bool
	// IdleFor selects only unfinished transfers that were not modified for so long, by
	// the server's clock. Zero selects all.
	IdleFor time.Duration
	// Stuck selects only transfers that could not be finished when that was last tried.
	Stuck bool
	// Holds selects only holds that are held now.
	Holds bool
	// ExpiresBefore selects only holds that are held now and expire before it. Zero is no
	// limit.
	ExpiresBefore time.Time
	// Reverses selects only the reversals of a transfer; any transfers where it is "".
	Reverses string
	// Undelivered selects only transfers with an event that was not delivered.
	Undelivered bool
	// Beyond leaves out what comes before a place in the list, and what is there. Nil
	// leaves nothing out.
	Beyond *Place
	// Limit is how many transfers are returned at most; 0: all of them.
	Limit int
}

// Place is the place of a transfer in a list.
type Place struct {
	// Created is when the transfer was created, and ID its ID.
	Created time.Time
	ID      string
}

// filter returns what a query selects, given how account IDs are stored.
func (q Query) filter(ids document.IDCodec) bson.D {
	filter := q.byState()
	if q.Account != "" {
		filter = append(filter, document.OfAccount(q.Ledger, ids.Canonical(q.Account)))
	} else if q.ByLedger {
		filter = append(filter, document.WithLeg(bson.D{{Key: "ledger", Value: q.Ledger}}))
	}
	filter = append(filter, document.WithMetadata(q.Metadata)...)
	if q.Reverses != "" {
		filter = append(filter, document.Reverses(q.Reverses))
	}
	if q.Undelivered {
		filter = append(filter, document.HasUndelivered())
	}
	if q.Stuck {
		filter = append(filter, document.IsStuck())
	}
	if q.IdleFor > 0 {
		filter = append(filter, document.IdleFor(q.IdleFor))
	}
	return filter
}

// byState returns the conditions on the state and on holds.
//
// Most transfers are final, and have not failed. Where none of these is selected, the
// filter says so: there are indexes of the others.
func (q Query) byState() bson.D {
	if q.Holds || !q.ExpiresBefore.IsZero() {
		return q.heldNow()
	}
	filter, given := bson.D{}, len(q.States) > 0
	if given {
		filter = append(filter, document.StateIn(q.States...))
	}
	switch final := slices.ContainsFunc(q.States, protocol.State.Final); {
	case q.Unfinished, q.Stuck, q.IdleFor > 0, given && !final:
		return append(filter, document.Unfinished()...)
	case given && !slices.ContainsFunc(q.States, isNotBack):
		return append(filter, document.HasFailed())
	}
	return filter
}

func isNotBack(s protocol.State) bool { return !s.Back() }

// heldNow returns the conditions for holds that are held, which are in Preparing.
func (q Query) heldNow() bson.D {
	states := []protocol.State{protocol.Preparing}
	if len(q.States) > 0 && !slices.Contains(q.States, protocol.Preparing) {
		states = states[:0] // none of them is held
	}
	filter := append(document.IsHeld(), document.StateIn(states...))
	if !q.ExpiresBefore.IsZero() {
		filter = append(filter, document.ExpiresBefore(q.ExpiresBefore))
	}
	return filter
}

// parts returns the filters of a list's parts, which follow one another. Behind a place
// there are two: the rest of its millisecond, and what was created before. So each is one
// range of an index, no matter how many transfers share a millisecond.
func (q Query) parts(ids document.IDCodec) []bson.D {
	filter := append(q.filter(ids), document.HasPlace())
	if q.Beyond == nil {
		return []bson.D{append(filter, document.CreatedBetween(q.After, q.Before)...)}
	}
	var parts []bson.D
	at := q.Beyond.Created
	if at.After(q.After) && (q.Before.IsZero() || at.Before(q.Before)) {
		parts = append(parts, append(slices.Clone(filter), document.CreatedWith(at, q.Beyond.ID)...))
	}
	before := at
	if !q.Before.IsZero() && q.Before.Before(at) {
		before = q.Before
	}
	return append(parts, append(filter, document.CreatedBetween(q.After, before)...))
}

// List yields the transfers that a query selects, newest first, and those of one
// millisecond in the opposite order of their IDs.
func (q *Queries) List(ctx context.Context, query Query) iter.Seq2[document.Transfer, error] {
	newestFirst := bson.D{{Key: "createdAt", Value: -1}, {Key: "_id", Value: -1}}
	return func(yield func(document.Transfer, error) bool) {
		left := query.Limit
		for _, part := range query.parts(q.catalog.IDs) {
			find := options.Find().SetSort(newestFirst).SetLimit(int64(left))
			for t, err := range q.find(ctx, part, find, 0) {
				if !yield(t, err) || err != nil && !errors.Is(err, document.ErrUnreadable) {
					return
				}
				left--
			}
			if query.Limit > 0 && left == 0 {
				return
			}
		}
	}
}

// PlaceOf returns the place of a transfer in every list, and whether there is such a
// transfer.
func (q *Queries) PlaceOf(ctx context.Context, id string) (place Place, found bool, err error) {
	created := options.FindOne().SetProjection(bson.D{{Key: "createdAt", Value: 1}})
	stored, err := wire.FindOne(wire.Detached(ctx), q.catalog.Majority, bson.D{{Key: "_id", Value: id}}, created)
	if wire.NotFound(err) {
		return place, false, nil
	}
	if err != nil {
		return place, false, err
	}
	at, isTime := stored.Lookup("createdAt").TimeOK()
	if !isTime || at.IsZero() {
		return place, true, fmt.Errorf("%w: its createdAt is no time", document.ErrUnreadable)
	}
	return Place{at, id}, true, nil
}

// Count returns how many transfers a query selects, wherever a page of them begins or
// ends.
func (q *Queries) Count(ctx context.Context, query Query) (int64, error) {
	selected := append(query.filter(q.catalog.IDs), document.CreatedBetween(query.After, query.Before)...)
	pipeline := bson.A{
		bson.D{{Key: "$match", Value: selected}},
		bson.D{{Key: "$count", Value: "n"}},
	}
	ctx = wire.Detached(ctx)
	counted, err := connecting(ctx, func() ([]bson.Raw, error) {
		return wire.Aggregate(ctx, q.catalog.Majority, pipeline)
	})
	if err != nil || len(counted) == 0 {
		return 0, err
	}
	n, _ := counted[0].Lookup("n").AsInt64OK()
	return n, nil
}

// maxConnects is how often a read is begun again because another connection has failed.
// The next one shows why.
const maxConnects = 6

// connecting begins a read, and again where another connection has failed.
func connecting[T any](ctx context.Context, read func() (T, error)) (T, error) {
	result, err := read()
	for n := 0; wire.Cleared(err) && n < maxConnects && collections.Pause(ctx, document.Tick<<n) == nil; n++ {
		result, err = read()
	}
	return result, err
}

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
		cursor, err := connecting(begun, func() (*mongo.Cursor, error) {
			return majority.Find(begun, filter, find.SetAllowDiskUse(true))
		})
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
