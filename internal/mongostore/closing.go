package mongostore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/money"
)

// stampDelay is how long after its committedAt a commit shows at the primary, at most: the server takes the time first and stores the
// document then, which on a busy machine may be some milliseconds later. The past of an account is closed up to this long ago.
const stampDelay = 20 * time.Millisecond

// tick is the resolution of stored times.
const tick = time.Millisecond

// ErrKind is returned for an account that is none: its balance is no exact number, or not of the kind that was moved.
var ErrKind = errors.New("the account's document has no balance of that kind")

// Closing is the posted balance of an account at an instant, with all in it that was committed before, and nothing else. The past is
// closed there: no transfer will be committed before that instant any more.
type Closing struct {
	At      time.Time
	Balance money.Amount
}

// Close closes the account's past, late enough for what is asked for: up to an instant that is over, or up to now, the zero instant, for
// which it waits a moment until now is over, too. It finds false if there is no such account.
//
// The balance is counted back from the stored one. Debits in flight are off that one already, as its markers show; credits come on when
// they are settled. So a committed transfer is in balance + debits in flight exactly if it was settled here, which is when its marker goes:
//
//   - Committed before the account was read, and no marker: it is in. Its marker was there when it was committed.
//   - Committed before the account was read, and a marker: it is not in, and counts all the same, for it will be.
//   - Committed after the account was read: it is not in, whether it had a marker already or not yet.
//
// What has to be told is the first from the last, where there is no marker.
func (h *History) Close(ctx context.Context, before time.Time) (Closing, bool, error) {
	ctx = detached(ctx)
	if h.ledger.sameClient {
		return h.closeAtOnce(ctx, before)
	}
	for {
		closing, found, err := h.closeApart(ctx, before)
		if !errors.Is(err, errUndecided) {
			return closing, found, err
		}
		if ctx.Err() != nil {
			return closing, found, fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

// closeAtOnce reads the account and the transfers as they were at one time of their cluster. What is committed there, and has no marker
// there, is in.
//
// It is a time that the primary has reached stampDelay after the instant of the closing: 1. A commit takes the time 12:00:00.000 and is
// held up. 2. Another one at 12:00:00.001 is stored at once. 3. A statement up to .002 lists the second alone. 4. The first one
// is stored: it would show up behind what was listed.
func (h *History) closeAtOnce(ctx context.Context, before time.Time) (Closing, bool, error) {
	clock, err := hello(ctx, h.store.transfers)
	if err != nil {
		return Closing{}, false, err
	}
	end, err := closed(ctx, clock.LocalTime, before)
	if err != nil {
		return Closing{}, false, err
	}
	if h.seen, err = h.reached(ctx); err != nil {
		return Closing{}, false, err
	}
	session, err := h.session(options.Session().SetSnapshot(true).SetSnapshotTime(*h.seen))
	if err != nil {
		return Closing{}, false, err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	ctx = mongo.NewSessionContext(ctx, session)
	seen, found, err := h.look(ctx, h.ledger.majority)
	if err != nil || !found {
		return Closing{}, found, err
	}
	balance, err := h.count(ctx, seen, end, func(Entry) (bool, error) { return true, nil })
	return Closing{end, balance}, true, err
}

// errUndecided is returned where the reads of an account and of the transfers can't be put in order.
var errUndecided = errors.New("transfers on the account are committed faster than it can be read")

// closeApart reads an account that may be in another cluster than the transfers, so that there is no time as of which both can be read.
// It looks at the transfers' clock before and after it reads the account. What was committed before the first look was prepared
// before the account was read, which no replaced primary can answer, for the read is linearizable: without a marker, it is in. What was
// committed after the second look is not. In between, a marker tells that it is not in; but none may mean either:
//
//	the clock · prepared · committed · settled · the account is read · the clock: it is in
//	the clock · the account is read · prepared · committed · the clock: it is not
//
// So then nothing is decided, and Close begins anew. The time between the looks is that of one read; a transfer that was prepared
// before, or is settled after, leaves a marker to be seen.
//
// Whatever is in was committed, and acknowledged by a majority, before the account was read. The transfers are read afterwards, from
// the true primary, as a linearizable read has made sure: so what is in shows.
func (h *History) closeApart(ctx context.Context, before time.Time) (Closing, bool, error) {
	first, err := hello(ctx, h.store.transfers)
	if err != nil {
		return Closing{}, false, err
	}
	seen, found, err := h.look(ctx, h.ledger.linearizable)
	if err != nil || !found {
		return Closing{}, found, err
	}
	second, err := hello(ctx, h.store.transfers)
	if err != nil {
		return Closing{}, true, err
	}
	end, err := closed(ctx, first.LocalTime, before)
	if err != nil {
		return Closing{}, true, err
	}
	session, err := h.session(options.Session().SetCausalConsistency(true))
	if err != nil {
		return Closing{}, true, err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	ctx = mongo.NewSessionContext(ctx, session)
	nothing := bson.D{{Key: "_id", Value: ""}} // no transfer has this ID
	if _, err := h.store.linearizable.FindOne(ctx, nothing).Raw(); err != nil && !missing(err) {
		return Closing{}, true, err
	}
	if h.seen, err = clusterTime(session); err != nil {
		return Closing{}, true, err
	}
	balance, err := h.count(ctx, seen, end, func(e Entry) (bool, error) {
		if !e.At.Before(first.LocalTime) && !e.At.After(second.LocalTime) {
			return false, errUndecided
		}
		return e.At.Before(first.LocalTime), nil
	})
	return Closing{end, balance}, true, err
}

// closed returns the instant up to which the past is closed, where the server's clock has just shown that it is now. Where that has
// to be now it waits until it is over.
func closed(ctx context.Context, now, before time.Time) (time.Time, error) {
	end := now.Add(-stampDelay)
	if !before.IsZero() && !before.After(end) {
		return end, nil
	}
	timer := time.NewTimer(stampDelay + tick)
	defer timer.Stop()
	select {
	case <-timer.C:
		return now.Add(tick), nil
	case <-ctx.Done():
		return end, ctx.Err()
	}
}

// view is what an account's document shows.
type view struct {
	posted   money.Amount // the balance, and the debits in flight
	inFlight []string     // the transfers with a marker
}

// look reads the account.
func (h *History) look(ctx context.Context, from *mongo.Collection) (view, bool, error) {
	document, err := from.FindOne(ctx, bson.D{{Key: "_id", Value: h.key}}).Raw()
	if missing(err) {
		return view{}, false, nil
	}
	if err != nil {
		return view{}, false, err
	}
	account, err := h.store.decodeAccount(document)
	if err != nil {
		return view{}, true, fmt.Errorf("%w: %w", ErrKind, err)
	}
	posted, err := Plus(account.Balance, account.Reserved)
	return view{posted, h.store.fields.inFlight(document)}, true, err
}

// Plus adds up two amounts of an account; the error is ErrKind.
func Plus(a, b money.Amount) (money.Amount, error) {
	sum, err := a.Add(b)
	if err != nil {
		return sum, fmt.Errorf("%w: %w", ErrKind, err)
	}
	return sum, nil
}

// inFlight returns the IDs of the transfers whose markers a document has. What is no ID's key is left out: no transfer is meant by it.
func (f Fields) inFlight(document bson.Raw) []string {
	pending, _ := document.Lookup(f.Pending).DocumentOK()
	elements, err := pending.Elements()
	if pending == nil || err != nil {
		return nil
	}
	ids := make([]string, 0, len(elements))
	for _, element := range elements {
		if id, err := url.PathUnescape(element.Key()); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// count returns the balance of an account that was seen as it was at the end, an instant before. Of what was committed since then, and
// has no marker, settled tells whether it is in what was seen; it is asked about the last tick before the end, too, for that may
// be when the account was read.
func (h *History) count(
	ctx context.Context, seen view, end time.Time, settled func(Entry) (bool, error),
) (money.Amount, error) {
	balance, err := h.withMarked(ctx, seen, end)
	if err != nil {
		return balance, err
	}
	marked := make(map[string]bool, len(seen.inFlight))
	for _, id := range seen.inFlight {
		marked[id] = true
	}
	var failed error
	err = h.find(ctx, bson.D{{Key: "$gte", Value: end.Add(-tick)}}, options.Find(), func(e Entry) bool {
		if marked[e.TransferID] {
			return true
		}
		in, err := settled(e)
		if err == nil && in && !e.At.Before(end) {
			balance, err = Plus(balance, e.Amount.Neg())
		}
		failed = err
		return err == nil
	})
	return balance, errors.Join(failed, err)
}

// withMarked returns what is posted on an account that was seen, and what was committed before the end and is not settled there.
func (h *History) withMarked(ctx context.Context, seen view, end time.Time) (money.Amount, error) {
	balance := seen.posted
	if len(seen.inFlight) == 0 {
		return balance, nil
	}
	ids := make(bson.A, len(seen.inFlight))
	for i, id := range seen.inFlight {
		ids[i] = id
	}
	documents, err := findByID(ctx, h.store.majority, ids, options.Find().SetProjection(h.projection()))
	for _, document := range documents {
		e, committed, failed := h.entry(document)
		if failed == nil && committed && e.At.Before(end) {
			balance, failed = Plus(balance, e.Amount)
		}
		if failed != nil {
			return balance, failed
		}
	}
	return balance, err
}
