package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// Entry is what one committed transfer has moved on one account.
type Entry struct {
	TransferID string
	Amount     money.Amount // of a hold that was posted in part: that part
	At         time.Time    // of the commit, by the server's clock
	Reverses   string
}

// Order is that of entries, as the server's sort has it.
type Order int

// Entries in the order of their commits, or in the opposite one.
const (
	OldestFirst Order = 1
	NewestFirst Order = -1
)

// History is the past of one account: its entries in the order in which they were committed. It is used by one goroutine at a time.
type History struct {
	store   *Reader
	Ledger  *collections.Collection
	key     bson.RawValue   // the _id of the account's document
	account string          // as the legs of transfers name it
	seen    *bson.Timestamp // what the transfers' cluster had stored by then shows in every page
	open    *openError      // why it is closed only up to then, if that is so
}

// History returns the past of an account. Nothing is read yet.
func (s *Reader) History(ledger, id string) (*History, error) {
	key, err := s.IDs.Encode(id)
	if err != nil {
		return nil, err
	}
	return &History{store: s, Ledger: s.Ledgers[ledger], key: key, account: s.IDs.Canonical(id)}, nil
}

// Page returns the first entries, in an order, that were committed after a time, the zero one of which is no bound, and before another.
// Where the time is the same the order is that of the IDs. They are n, or some more: those of one millisecond are not torn apart, so that
// the next page begins beyond the last one's time. More tells that there are others.
//
// It is a page of a past that is closed (see Close), so each can be read by itself, at any time. It is read from who has stored what
// Close has seen: a primary that was replaced and doesn't know it yet may lack what is in the balance.
func (h *History) Page(ctx context.Context, order Order, after, before time.Time, n int) (entries []Entry, more bool, err error) {
	session, err := h.session(options.Session().SetCausalConsistency(true))
	if err != nil {
		return nil, false, err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	if h.seen != nil {
		if err := session.AdvanceOperationTime(h.seen); err != nil {
			return nil, false, err
		}
	}
	between := bson.D{{Key: "$lt", Value: before}}
	if !after.IsZero() {
		between = append(between, bson.E{Key: "$gt", Value: after})
	}
	byTime := bson.D{{Key: "committedAt", Value: int(order)}} // an index gives this order; that of the IDs it doesn't know
	find := options.Find().SetSort(byTime).SetBatchSize(int32(n) + 1)
	err = h.find(mongo.NewSessionContext(wire.Detached(ctx), session), between, find, func(e Entry) bool {
		if len(entries) >= n && !e.At.Equal(entries[len(entries)-1].At) {
			more = true
			return false
		}
		entries = append(entries, e)
		return true
	})
	slices.SortFunc(entries, func(a, b Entry) int {
		return int(order) * cmp.Or(a.At.Compare(b.At), cmp.Compare(a.TransferID, b.TransferID))
	})
	return entries, more, err
}

// find hands on the account's entries whose commit lies where it should, until take has enough.
func (h *History) find(ctx context.Context, committed bson.D, find *options.FindOptionsBuilder, take func(Entry) bool) error {
	filter := bson.D{document.WithLeg(h.leg()), {Key: "committedAt", Value: committed}}
	cursor, err := h.store.Majority.Find(ctx, filter, find.SetProjection(h.projection()))
	if err != nil {
		return wire.ServerErrorOf(err, wire.RightFind, wire.NamespaceOf(h.store.Majority))
	}
	defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }()
	for cursor.Next(ctx) {
		e, is, err := h.entry(cursor.Current)
		if err != nil {
			return err
		}
		if is && !take(e) {
			return nil
		}
	}
	return wire.ServerErrorOf(cursor.Err(), wire.RightFind, wire.NamespaceOf(h.store.Majority))
}

// leg is the condition for legs on the account.
func (h *History) leg() bson.D {
	return bson.D{{Key: "account", Value: h.account}, {Key: "ledger", Value: h.Ledger.Name}}
}

// projection names what an entry is read from; of the legs, the account's alone.
func (h *History) projection() bson.D {
	return bson.D{
		{Key: "committedAt", Value: 1}, {Key: "posted", Value: 1}, {Key: "reverses", Value: 1},
		{Key: "legs", Value: bson.D{{Key: "$elemMatch", Value: h.leg()}}},
	}
}

// entry reads a projected transfer. It is none of the account's entries, and false, if it was not committed or has no leg there.
func (h *History) entry(doc bson.Raw) (Entry, bool, error) {
	id, _ := doc.Lookup("_id").StringValueOK()
	at, committed := doc.Lookup("committedAt").TimeOK()
	leg, has := doc.Lookup("legs", "0").DocumentOK()
	if !committed || !has {
		return Entry{}, false, nil
	}
	amount, err := moved(leg.Lookup("amount"), doc.Lookup("posted"))
	if err != nil {
		return Entry{}, false, fmt.Errorf("%w: transfer %s: %w", document.ErrUnreadable, words.Quote(id), err)
	}
	reverses, _ := doc.Lookup("reverses").StringValueOK()
	return Entry{TransferID: id, Amount: amount, At: at.UTC(), Reverses: reverses}, true, nil
}

// moved returns what a committed leg has moved: of a hold that was posted in part, that part.
func moved(leg, posted bson.RawValue) (money.Amount, error) {
	amount, err := money.FromBSON(leg)
	if err != nil || document.Absent(posted) {
		return amount, err
	}
	part, err := money.FromBSON(posted)
	return document.Transfer{Legs: []document.Leg{{Amount: amount}}, Posted: &part}.Moved()[0].Amount, err
}

// session starts one on the transfers' client.
func (h *History) session(opts *options.SessionOptionsBuilder) (*mongo.Session, error) {
	return h.store.Transfers.Database().Client().StartSession(opts)
}

// reached returns a time of the transfers' cluster by which it had stored all that its primaries knew of when they were asked. Only a
// local read tells: one of what a majority has stored tells the time of that.
func (h *History) reached(ctx context.Context) (*bson.Timestamp, error) {
	session, err := h.session(options.Session().SetCausalConsistency(true))
	if err != nil {
		return nil, err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	local := wire.ForReads(h.store.Transfers, readconcern.Local())
	entry := bson.D{document.WithLeg(h.leg()), {Key: "committedAt", Value: bson.D{{Key: "$exists", Value: true}}}} // a mongos asks all shards for it
	onlyID := options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})
	_, err = wire.FindOne(mongo.NewSessionContext(ctx, session), local, entry, onlyID)
	if err != nil && !wire.NotFound(err) {
		return nil, err
	}
	return clusterTime(session)
}

func clusterTime(session *mongo.Session) (*bson.Timestamp, error) {
	at := session.OperationTime()
	if at == nil {
		return nil, errors.New("the server does not tell its operation time")
	}
	return at, nil
}
