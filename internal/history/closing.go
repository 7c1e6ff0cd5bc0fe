package history

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Balance is the posted balance of an account at an instant.
// Everything that was committed before that instant is in it, and nothing else. The past
// is closed there: no transfer on the account is committed before that instant any more,
// even if its commit is on the way.
type Balance struct {
	// At is the instant.
	At time.Time
	// Balance is the posted balance.
	Balance money.Amount
	// CutShort says why the instant is earlier than what was asked for, nil if it isn't.
	CutShort error
}

// BalanceAsOf closes the past of the account and returns the balance at the instant up to
// which it is closed.
// If the instant before is over, the past is closed there or later.
// Otherwise, and for the zero instant, it is closed now, and contains everything that had
// answered before the call.
// The account is not found if no document has its ID.
//
// # When the past is closed
//
// A commit takes its time from the server's clock first, and can be read later, when the
// server has stored it. That may take as long as the machine likes. So the past is not
// closed because some time has passed. What the server shows can close it. BalanceAsOf
// reads the server's clock, and only then the account. Now consider every transfer on the
// account:
//
//   - It has no trace there, neither a marker nor a done mark, and is not committed. Then
//     it is prepared after the account was read: a trace goes away only once the decision
//     is stored for good. Its commit is sent after that, when the marker is stored for
//     good. So the commit takes a time that is not before the clock's.
//   - It has a trace there, and is decided. Then its document shows the time of the
//     commit, or that there is none.
//   - It has a trace there, and is not decided. Then it may be in the middle of its
//     commit, with a time that it took long ago. Such transfers are waited for, or
//     barred: see awaitDecisions.
//
// The commit is the record, which the server stores with a time of its own. A transfer
// may be committed by fact before that, and can't be rolled back any more. Its caller may
// know that; a statement does from the record on. Barring changes nothing about the fact.
// It only makes the record take a later time.
//
// # What is in the balance
//
// The balance is counted back from the stored one. Stored balances don't contain the
// debits in flight, and the markers show how much these are. A credit is added when it is
// paid in: then its marker becomes a done mark, or goes. So a transfer is contained in
// balance + debits in flight exactly if it has no marker and was prepared before:
//
//   - It was committed before the account was read, and has no trace. Then it is in: its
//     marker was there when it was committed.
//   - It has a marker. Then it is not in, but counts if it was committed before the end,
//     because it will be settled.
//   - It has a done mark. Then it is in, even if its record is not stored yet. It counts
//     only if it was committed before the end, and otherwise it is taken off.
//   - It was committed after the account was read, and has no trace. Then it is not in.
//
// For a transfer without a trace, the first case must be distinguished from the last. The
// two ways to do that are balanceInOneRead and balanceInSeparateReads.
//
// # Without the right to write
//
// A caller who has no right to write to the transfers can't bar them. The past is then
// closed less far where a transfer is not decided: see awaitDecisions. What is returned
// is as certain as otherwise, and CutShort says why it ends there.
func (h *History) BalanceAsOf(ctx context.Context, before time.Time) (balance Balance, found bool, err error) {
	ctx = wire.Detached(ctx)
	read := h.balanceInSeparateReads
	if h.ledger.SameClient {
		read = h.balanceInOneRead
	}
	unordered := false
	for n := 0; ; n++ {
		balance, found, err = read(ctx, before)
		var open openError
		switch {
		case errors.As(err, &open): // each time at an earlier instant
			h.open = &open
		case errors.Is(err, errUnordered):
			unordered = true
			_ = collections.Pause(ctx, document.Tick<<min(n, pauseDoublings))
		default:
			if h.open != nil && (before.IsZero() || before.After(balance.At)) {
				balance.CutShort = *h.open
			}
			if err != nil && unordered {
				err = fmt.Errorf("%w: %w", errUnordered, err)
			}
			return balance, found, err
		}
		if ctx.Err() != nil {
			return balance, found, fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

// balanceInOneRead reads the account and the transfers as they were at one time of their
// cluster. The primary has reached that time after it has shown its clock. A transfer
// that is committed in this snapshot, and has no trace in it, was committed before the
// account was read: it is in.
func (h *History) balanceInOneRead(ctx context.Context, before time.Time) (balance Balance, found bool, err error) {
	clock, err := h.readClock(ctx, before)
	if err != nil {
		return Balance{}, false, err
	}
	end := h.closable(clock)
	if h.seen, err = h.storedTime(ctx); err != nil {
		return Balance{}, false, err
	}
	session, err := h.session(options.Session().SetSnapshot(true).SetSnapshotTime(*h.seen))
	if err != nil {
		return Balance{}, false, err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	ctx = mongo.NewSessionContext(ctx, session)
	stored, err := h.readAccount(ctx, h.ledger.Majority)
	if err != nil || !stored.found {
		return Balance{}, stored.found, err
	}
	if err := h.readNames(ctx, readconcern.Majority()); err != nil {
		return Balance{}, true, err
	}
	posted, err := h.countBack(ctx, stored, end, func(Entry) (bool, error) { return true, nil })
	return Balance{At: end, Balance: posted}, true, err
}

// errUnordered is returned where the read of an account and the commit of a transfer
// can't be put in order.
var errUnordered = errors.New("transfers on the account are committed faster than it can be read")

// balanceInSeparateReads reads an account that may be in another cluster than the
// transfers.
// No single time can be used to read both. So it reads the transfers' clock before and
// after it reads the account:
//
//   - A commit that took its time before the first reading of the clock was sent before
//     the account was read. Its transfer was prepared even earlier, and no replaced
//     primary can show the account without its trace, because the read is linearizable.
//     So without a trace it was settled: it is in.
//   - A commit that took its time after the second reading is not in without a trace. If
//     it has paid in before, the done mark is there until the record is stored.
//   - A commit that took its time in between is shown by its trace, if there is one.
//
// Without a trace, a commit that took its time in between may be either:
//
//	the clock · prepared · committed · settled · the account is read · the clock: in
//	the clock · the account is read · prepared · committed · the clock: not in
//
// Then nothing is decided, and BalanceAsOf begins again.
// The time between the readings is that of one read.
// A transfer that was prepared before it, or is cleared after it, leaves a trace to be
// seen.
// On a busy account far away there is always another one. So from the second time on
// these are ordered by the changes of the account: see changes. A user without the right
// to watch the ledger goes on as before.
//
// Every transfer that is in, and has no trace, was committed, and acknowledged by a
// majority, before the account was read.
// The transfers are read after that, from the true primary, as the linearizable read of
// the ledger's names has made sure.
// So the reads of the transfers show everything that is in.
func (h *History) balanceInSeparateReads(ctx context.Context, before time.Time) (balance Balance, found bool, err error) {
	first, err := h.readClock(ctx, before)
	if err != nil {
		return Balance{}, false, err
	}
	end := h.closable(first)
	stored, changes, err := h.readApart(ctx)
	if err != nil || !stored.found {
		return Balance{}, stored.found, err
	}
	second, err := h.catalog.Clocks(ctx)
	if err != nil {
		return Balance{}, true, err
	}
	session, err := h.session(options.Session().SetCausalConsistency(true))
	if err != nil {
		return Balance{}, true, err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	ctx = mongo.NewSessionContext(ctx, session)
	if err := h.readNames(ctx, readconcern.Linearizable()); err != nil {
		return Balance{}, true, err
	}
	if h.seen, err = operationTime(session); err != nil {
		return Balance{}, true, err
	}
	posted, err := h.countBack(ctx, stored, end, func(e Entry) (in bool, err error) {
		if e.At.Before(first) {
			return true, nil
		}
		if !e.At.After(second.Latest) {
			return false, changes.add(e)
		}
		return false, nil
	})
	if err == nil {
		posted, err = changes.takeOff(ctx, posted)
	}
	return Balance{At: end, Balance: posted}, true, err
}

// readClock returns an instant that the server's clock has reached. If the past is to be
// closed now, the instant comes after the millisecond of the call: a transfer may have
// been committed in that millisecond, and answered, before the call.
func (h *History) readClock(ctx context.Context, before time.Time) (time.Time, error) {
	called, err := h.catalog.Clocks(ctx)
	if err != nil || !before.IsZero() && !before.After(called.Earliest) {
		return called.Earliest, err
	}
	for {
		if err := collections.Pause(ctx, document.Tick); err != nil {
			return time.Time{}, err
		}
		now, err := h.catalog.Clocks(ctx)
		if err != nil || now.Passed(called) {
			return now.Earliest, err
		}
	}
}

// closable returns up to where a past that ends at an instant can be closed.
func (h *History) closable(end time.Time) time.Time {
	if h.open != nil && h.open.until.Before(end) {
		return h.open.until
	}
	return end
}
