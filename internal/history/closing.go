package history

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/wire"
)

// ErrKind is returned for an account that is none: its balance is no exact number, or not of the kind that was moved.
var ErrKind = errors.New("as it is stored")

// Balance is the posted balance of an account at an instant: all that was committed
// before is in it, and nothing else. The past is closed there: no transfer is committed
// before that instant any more, whatever is still on its way.
type Balance struct {
	At       time.Time
	Balance  money.Amount
	CutShort error // why it is earlier than what was asked for, nil if it isn't
}

// BalanceAsOf closes the account's past, late enough for what is asked for: up to an instant
// that is over, or up to now, the zero instant, and then behind everything that had
// answered before the call. It finds false if there is no such account.
//
// A commit takes its time from the server's clock first and shows later: when the server
// has stored it, which is as late as its machine likes. So no time that has passed says
// that the past is closed. What the server shows does. Close asks for its clock, and only
// then reads the account:
//
//   - A transfer without a marker there that is not committed is prepared later, and its
//     commit is sent later still, when the marker is stored for good. So it takes a time
//     that is not before the clock's.
//   - A transfer with a marker there that is decided shows the time of its commit, or has
//     none.
//   - A transfer with a marker there that is not decided may be in the middle of its
//     commit, with a time that was taken long ago. It is outstanding: see decided.
//
// The balance is counted back from the stored one. Debits in flight are off that one
// already, as its markers show; credits come on when they are settled. So a committed
// transfer is in balance + debits in flight exactly if it was settled here, which is when
// its marker goes:
//
//   - Committed before the account was read, and no marker: it is in. Its marker was
//     there when it was committed.
//   - Committed before the account was read, and a marker: it is not in, and counts all
//     the same, for it will be.
//   - Committed after the account was read: it is not in, whether it had a marker already
//     or not.
//
// What has to be told is the first from the last, where there is no marker.
//
// Who has no right to write to the transfers gets less of the past where one of them is
// not decided: see decided. What there is of it is as true, and Short says why it ends.
func (h *History) BalanceAsOf(ctx context.Context, before time.Time) (Balance, bool, error) {
	ctx = wire.Detached(ctx)
	for {
		closing, found, err := h.balanceOnce(ctx, before)
		var open openError
		switch {
		case errors.As(err, &open): // each time it is earlier
			h.open = &open
		case !errors.Is(err, errUnordered):
			if h.open != nil && (before.IsZero() || before.After(closing.At)) {
				closing.CutShort = *h.open
			}
			return closing, found, err
		}
		if ctx.Err() != nil {
			return closing, found, fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

func (h *History) balanceOnce(ctx context.Context, before time.Time) (Balance, bool, error) {
	if h.Ledger.SameClient {
		return h.balanceInOneRead(ctx, before)
	}
	return h.balanceInSeparateReads(ctx, before)
}

// balanceInOneRead reads the account and the transfers as they were at one time of their
// cluster, which the primary has reached after it has shown its clock. What is committed
// there, and has no marker there, is in.
func (h *History) balanceInOneRead(ctx context.Context, before time.Time) (Balance, bool, error) {
	asked, err := h.end(ctx, before)
	if err != nil {
		return Balance{}, false, err
	}
	end := h.closable(asked)
	if h.seen, err = h.reached(ctx); err != nil {
		return Balance{}, false, err
	}
	session, err := h.session(options.Session().SetSnapshot(true).SetSnapshotTime(*h.seen))
	if err != nil {
		return Balance{}, false, err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	ctx = mongo.NewSessionContext(ctx, session)
	seen, found, err := h.Look(ctx, h.Ledger.Majority)
	if err != nil || !found {
		return Balance{}, found, err
	}
	balance, err := h.count(ctx, seen, end, func(Entry) (bool, error) { return true, nil })
	return Balance{At: end, Balance: balance}, true, err
}

// errUnordered is returned where the reads of an account and of the transfers can't be put in order.
var errUnordered = errors.New("transfers on the account are committed faster than it can be read")

// balanceInSeparateReads reads an account that may be in another cluster than the transfers, so that
// there is no time as of which both can be read. It looks at the transfers' clock before
// and after it reads the account. What took its time before the first look was prepared
// before the account was read, which no replaced primary can answer, for the read is
// linearizable: without a marker, it is in. What took its time after the second look is
// not. In between, a marker tells that it is not in; but none may mean either:
//
//	the clock · prepared · committed · settled · the account is read · the clock: it is in
//	the clock · the account is read · prepared · committed · the clock: it is not
//
// So then nothing is decided, and Close begins anew. The time between the looks is that
// of one read; a transfer that was prepared before, or is settled after, leaves a marker
// to be seen.
//
// Whatever is in was committed, and acknowledged by a majority, before the account was
// read. The transfers are read afterwards, from the true primary, as a linearizable read
// has made sure: so what is in shows.
func (h *History) balanceInSeparateReads(ctx context.Context, before time.Time) (Balance, bool, error) {
	asked, err := h.end(ctx, before)
	if err != nil {
		return Balance{}, false, err
	}
	end := h.closable(asked)
	seen, found, err := h.Look(ctx, h.Ledger.Linearizable)
	if err != nil || !found {
		return Balance{}, found, err
	}
	second, err := h.store.Clocks(ctx)
	if err != nil {
		return Balance{}, true, err
	}
	session, err := h.session(options.Session().SetCausalConsistency(true))
	if err != nil {
		return Balance{}, true, err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	ctx = mongo.NewSessionContext(ctx, session)
	nothing := bson.D{{Key: "_id", Value: ""}} // no transfer has this ID
	if _, err := wire.FindOne(ctx, h.store.Linearizable, nothing); err != nil && !wire.NotFound(err) {
		return Balance{}, true, err
	}
	if h.seen, err = clusterTime(session); err != nil {
		return Balance{}, true, err
	}
	balance, err := h.count(ctx, seen, end, func(e Entry) (bool, error) {
		if e.At.Before(asked) {
			return true, nil
		}
		if !e.At.After(second.Latest) {
			return false, errUnordered
		}
		return false, nil
	})
	return Balance{At: end, Balance: balance}, true, err
}

// end returns the instant of a closing, which the clock has shown to be reached. Where
// the past is to be closed up to now, it comes after the millisecond in which it was
// asked for: a transfer may have been committed in that one, and answered, before the
// call.
func (h *History) end(ctx context.Context, before time.Time) (time.Time, error) {
	asked, err := h.store.Clocks(ctx)
	if err != nil || !before.IsZero() && !before.After(asked.Earliest) {
		return asked.Earliest, err
	}
	for {
		if err := collections.Pause(ctx, document.Tick); err != nil {
			return time.Time{}, err
		}
		now, err := h.store.Clocks(ctx)
		if err != nil || now.Passed(asked) {
			return now.Earliest, err
		}
	}
}

// closable returns how much of a past that ends at an instant can be closed.
func (h *History) closable(end time.Time) time.Time {
	if h.open != nil && h.open.until.Before(end) {
		return h.open.until
	}
	return end
}

// view is what an account's document shows.
type view struct {
	posted   money.Amount // the balance, and the debits in flight
	inFlight []string     // the transfers with a marker
}

// Look reads the account.
func (h *History) Look(ctx context.Context, from *mongo.Collection) (view, bool, error) {
	doc, err := wire.FindOne(ctx, from, bson.D{{Key: "_id", Value: h.key}})
	if wire.NotFound(err) {
		return view{}, false, nil
	}
	if err != nil {
		return view{}, false, err
	}
	stored := h.store.Fields.View(doc)
	account, err := stored.Account(h.store.IDs)
	if err != nil {
		return view{}, true, fmt.Errorf("%w: %w", ErrKind, err)
	}
	posted, err := Plus(account.Balance, account.Reserved)
	return view{posted, stored.InFlight()}, true, err
}

// Plus adds up two amounts of an account; the error is ErrKind.
func Plus(a, b money.Amount) (money.Amount, error) {
	sum, err := a.Add(b)
	if err != nil {
		return sum, fmt.Errorf("%w: %w", ErrKind, err)
	}
	return sum, nil
}

// count returns the balance that an account which was seen had at the end, an instant
// before. Of what has committed since then, and has no marker, settled tells whether it
// is in what was seen.
func (h *History) count(
	ctx context.Context, seen view, end time.Time, settled func(Entry) (bool, error),
) (money.Amount, error) {
	balance := seen.posted
	marked := make(map[string]bool, len(seen.inFlight))
	for _, id := range seen.inFlight {
		marked[id] = true
	}
	var failed error
	since := bson.D{{Key: "$gte", Value: end}}
	err := h.find(ctx, since, options.Find(), func(e Entry) bool {
		if marked[e.TransferID] {
			return true
		}
		in, err := settled(e)
		if err == nil && in {
			balance, err = Plus(balance, e.Amount.Neg())
		}
		failed = err
		return err == nil
	})
	if err = errors.Join(failed, err); err != nil {
		return balance, err
	}
	return h.addMarked(ctx, balance, seen.inFlight, end)
}

// addMarked adds to a balance what transfers whose markers were seen have moved before
// the end.
func (h *History) addMarked(
	ctx context.Context, balance money.Amount, ids []string, end time.Time,
) (money.Amount, error) {
	if len(ids) == 0 {
		return balance, nil
	}
	documents, err := h.awaitDecisions(ctx, ids, end)
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
