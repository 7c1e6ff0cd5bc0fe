package history

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// Entry is what one committed transfer has moved on one account.
type Entry struct {
	// TransferID is the transfer's ID.
	TransferID string
	// Amount is what was moved; of a hold that was posted in part, that part.
	Amount money.Amount
	// At is the time of the commit by the server's clock.
	At time.Time
	// Reverses is the ID of the transfer that this one reverses, if any.
	Reverses string
	// Legs are all that the transfer has moved, and Metadata is the user's.
	// Amounts leaves them out.
	Legs     []document.Leg
	Metadata bson.Raw
}

// size returns about how many bytes an entry takes in memory.
func (e Entry) size() int {
	const entry, leg = 200, 150
	return entry + len(e.Legs)*leg + len(e.Metadata)
}

// pageBytes bounds what the entries of a page take, whatever their number: a transfer may
// have a thousand legs.
const pageBytes = 16 << 20

// Order is the order of entries, as the server's sort names it.
type Order int

const (
	// OldestFirst is the order of the commits.
	OldestFirst Order = 1
	// NewestFirst is the opposite order.
	NewestFirst Order = -1
)

// Page returns the first entries, in an order, that were committed after one time and
// before another.
// The zero time is no lower bound.
// Entries of the same time are in the order of their IDs.
//
// There are n entries, or some more: those of one millisecond are never on two pages, so
// that the next page begins beyond the time of the last entry.
// There are fewer where they are large.
// More says that there are others.
//
// A page is one of a past that BalanceAsOf has closed, so each page can be read by
// itself, at any time.
// It is read from a server that has stored what BalanceAsOf has read: a primary that was
// replaced, and doesn't know it yet, may lack entries that are in the balance.
func (h *History) Page(
	ctx context.Context, order Order, after, before time.Time, n int,
) (entries []Entry, more bool, err error) {
	return h.page(ctx, order, after, before, n, selection{h.wholeProjection(), h.wholeEntry})
}

// Amounts is Page without the legs and the metadata, of which the server sends nothing.
func (h *History) Amounts(
	ctx context.Context, order Order, after, before time.Time, n int,
) (entries []Entry, more bool, err error) {
	return h.page(ctx, order, after, before, n, h.amounts())
}

// selection is what is read of a transfer, and how that is decoded.
// What is no entry of the account is left out.
type selection struct {
	projection bson.D
	decode     func(raw bson.Raw) (e Entry, is bool, err error)
}

// amounts selects no more of a transfer than its movement on the account.
func (h *History) amounts() selection { return selection{h.projection(), h.entry} }

func (h *History) page(
	ctx context.Context, order Order, after, before time.Time, n int, of selection,
) (entries []Entry, more bool, err error) {
	session, err := h.causalSession(ctx)
	if err != nil {
		return nil, false, err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	between := bson.D{{Key: "$lt", Value: before}}
	if !after.IsZero() {
		between = append(between, bson.E{Key: "$gt", Value: after})
	}
	// An index has this order. It doesn't know that of the IDs.
	byTime := bson.D{{Key: "committedAt", Value: int(order)}}
	find := options.Find().SetSort(byTime).SetBatchSize(int32(n) + 1)
	size := 0
	err = h.find(mongo.NewSessionContext(wire.Detached(ctx), session), between, find, of, func(e Entry) bool {
		if full := len(entries) >= n || size >= pageBytes; full && !e.At.Equal(entries[len(entries)-1].At) {
			more = true
			return false
		}
		entries = append(entries, e)
		size += e.size()
		return true
	})
	slices.SortFunc(entries, func(a, b Entry) int {
		return int(order) * cmp.Or(a.At.Compare(b.At), cmp.Compare(a.TransferID, b.TransferID))
	})
	return entries, more, err
}

// find calls take for the account's entries whose time of commit meets a condition, until
// take returns false.
func (h *History) find(
	ctx context.Context, committedAt bson.D, find *options.FindOptionsBuilder, of selection, take func(Entry) bool,
) error {
	from := h.catalog.Majority
	filter := bson.D{document.WithLeg(h.leg()), {Key: "committedAt", Value: committedAt}}
	cursor, err := from.Find(ctx, filter, find.SetProjection(of.projection))
	if err != nil {
		return wire.ServerErrorOf(err, wire.RightFind, wire.NamespaceOf(from))
	}
	defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }()
	for cursor.Next(ctx) {
		e, is, err := of.decode(cursor.Current)
		if err != nil {
			return err
		}
		if is && !take(e) {
			return nil
		}
	}
	return wire.ServerErrorOf(cursor.Err(), wire.RightFind, wire.NamespaceOf(from))
}

// projection names the fields that an entry is decoded from, and of the legs only the
// account's.
func (h *History) projection() bson.D {
	return bson.D{
		{Key: "committedAt", Value: 1}, {Key: "posted", Value: 1}, {Key: "reverses", Value: 1},
		{Key: "legs", Value: bson.D{{Key: "$elemMatch", Value: h.leg()}}},
	}
}

// entry decodes a projected transfer. It is no entry of the account if it was not
// committed, or has no leg there.
func (h *History) entry(raw bson.Raw) (e Entry, is bool, err error) {
	id, _ := raw.Lookup("_id").StringValueOK()
	at, committed := raw.Lookup("committedAt").TimeOK()
	leg, has := raw.Lookup("legs", "0").DocumentOK()
	if !committed || !has {
		return Entry{}, false, nil
	}
	amount, err := moved(leg.Lookup("amount"), raw.Lookup("posted"))
	if err != nil {
		return Entry{}, false, fmt.Errorf("%w: transfer %s: %w", document.ErrUnreadable, words.Quote(id), err)
	}
	reverses, _ := raw.Lookup("reverses").StringValueOK()
	return Entry{TransferID: id, Amount: amount, At: at.UTC(), Reverses: reverses}, true, nil
}

// wholeProjection names the fields that a whole entry is decoded from.
func (h *History) wholeProjection() bson.D {
	return bson.D{
		{Key: "committedAt", Value: 1}, {Key: "posted", Value: 1}, {Key: "reverses", Value: 1},
		{Key: "legs", Value: 1}, {Key: "currency", Value: 1}, {Key: "metadata", Value: 1},
	}
}

// wholeEntry is entry with all legs, and with the metadata.
func (h *History) wholeEntry(raw bson.Raw) (e Entry, is bool, err error) {
	var t struct {
		Legs     []document.Leg `bson:"legs"`
		Currency string         `bson:"currency"`
		Posted   *money.Amount  `bson:"posted"`
	}
	id, _ := raw.Lookup("_id").StringValueOK()
	at, committed := raw.Lookup("committedAt").TimeOK()
	if !committed {
		return Entry{}, false, nil
	}
	if err := bson.Unmarshal(raw, &t); err != nil {
		return Entry{}, false, fmt.Errorf("%w: transfer %s: its legs, or what was posted", document.ErrUnreadable, words.Quote(id))
	}
	own := slices.IndexFunc(t.Legs, h.isOwn)
	if own < 0 {
		return Entry{}, false, nil
	}
	amount, err := moved(raw.Lookup("legs", strconv.Itoa(own), "amount"), raw.Lookup("posted"))
	if err != nil {
		return Entry{}, false, fmt.Errorf("%w: transfer %s: %w", document.ErrUnreadable, words.Quote(id), err)
	}
	reverses, _ := raw.Lookup("reverses").StringValueOK()
	metadata, _ := raw.Lookup("metadata").DocumentOK()
	return Entry{
		TransferID: id, Amount: amount, At: at.UTC(), Reverses: reverses,
		Legs: document.Transfer{Legs: t.Legs, Currency: t.Currency, Posted: t.Posted}.Movements(), Metadata: slices.Clone(metadata),
	}, true, nil
}

// moved returns what a committed leg has moved; of a hold that was posted in part, that
// part.
func moved(leg, posted bson.RawValue) (money.Amount, error) {
	amount, err := money.FromBSON(leg)
	if err != nil || document.Absent(posted) {
		return amount, err
	}
	part, err := money.FromBSON(posted)
	return document.Transfer{Legs: []document.Leg{{Amount: amount}}, Posted: &part}.Moved()[0].Amount, err
}
