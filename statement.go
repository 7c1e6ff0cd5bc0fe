package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/history"
	"github.com/mongotransfer/transfer/internal/money"
)

// StatementQuery selects entries of a statement.
// Its zero value selects all.
type StatementQuery struct {
	// After selects what was committed after it.
	// A day from begin on, and before end, has begin.Add(-1) as After and end as Before.
	// BalanceAt of begin.Add(-1) and of end.Add(-1) are its opening and its closing
	// balance.
	// Defaults to the zero time: no bound.
	After time.Time
	// Before selects what was committed before it.
	// Defaults to the zero time: no bound.
	Before time.Time
	// Limit selects only the first of these entries, in the order of the statement.
	// Defaults to 0: no limit.
	Limit int
	// NewestFirst goes from the newest entry back.
	// Defaults to false: from the oldest entry on.
	NewestFirst bool
	// Beyond goes on behind an entry, the last of another page, even among those that
	// were committed in the same millisecond.
	// Only its TransferID and At are used.
	// Defaults to the zero value: from the beginning.
	Beyond Entry
}

// check refuses a query that can't be answered.
// A page that goes on behind an entry, and doesn't say when that was committed, would
// begin with the oldest one again.
func (q StatementQuery) check() error {
	switch {
	case q.Limit < 0:
		return invalid("the Limit is negative")
	case q.Beyond.TransferID == "" && q.Beyond.At.IsZero():
		return checkTimes(q.After, q.Before)
	case q.Beyond.At.IsZero():
		return invalid("Beyond names an entry by its ID and its time, and the time, At, is missing")
	case q.Beyond.TransferID == "":
		return invalid("Beyond names an entry by its ID and its time, and the TransferID is missing")
	}
	if err := document.CheckID(q.Beyond.TransferID); err != nil {
		return invalid("Beyond: %w", err)
	}
	return cmp.Or(checkTimes(q.After, q.Before), checkTime("the time of Beyond", q.Beyond.At))
}

// within moves the bounds to the millisecond of Beyond, which may have other entries.
func (q StatementQuery) within() (after, before time.Time) {
	after, before = q.After.Truncate(time.Millisecond), roundUp(q.Before)
	if q.Beyond.TransferID == "" {
		return after, before
	}
	at := q.Beyond.At.Truncate(time.Millisecond)
	switch from, to := at.Add(-time.Millisecond), at.Add(time.Millisecond); {
	case !q.NewestFirst && from.After(after):
		after = from
	case q.NewestFirst && (before.IsZero() || to.Before(before)):
		before = to
	}
	return after, before
}

// passes reports whether an entry is not behind Beyond yet.
func (q StatementQuery) passes(e history.Entry) bool {
	if q.Beyond.TransferID == "" {
		return false
	}
	order := cmp.Or(e.At.Compare(q.Beyond.At.Truncate(time.Millisecond)), cmp.Compare(e.TransferID, q.Beyond.TransferID))
	if q.NewestFirst {
		return order >= 0
	}
	return order <= 0
}

// Entry is what one transfer has moved on an account.
type Entry struct {
	// TransferID is the ID of the transfer.
	TransferID string
	// Amount is what was moved, negative where it was taken.
	// Of a hold that was posted in part, it is what was posted.
	Amount Amount
	// Balance is the balance after the entry.
	Balance Amount
	// At is when the transfer was committed, by the server's clock.
	At time.Time
	// Reverses is the ID of the transfer that this one reverses.
	Reverses string
	// Legs are all movements of the transfer, one per account, this one among them.
	// Each has the name that its ledger had in the process that made the transfer.
	// Of a hold that was posted in part, they are what was posted.
	Legs []Leg
	// Metadata is what was stored with the transfer, as in [Record].Metadata.
	Metadata map[string]any
}

// Statement yields what was moved on an account of the default ledger: the transfers that
// were committed, in the order of their commits, and those of one millisecond in the
// order of their IDs.
// A transfer is an entry from its commit on, even while its money is still on the way.
// Holds, and whatever else may yet fail, are no entries.
// The entries are those of the ledger's collection, under whatever names other processes
// know it or have known it, and none of another collection of the same name.
//
// Balance is what the account had after the entry, counted back from what is posted now.
// Balance less Amount is the Balance of the entry before, and for the first entry what
// the account was opened with.
// A change that other code makes to the balance shows in all balances, as if it had
// always been there.
//
// Each range over a statement begins anew.
// It includes all transfers whose calls had returned before, except those that answered
// ErrUnsettled, or AtCommit (see [WithReturnAt]).
// What it has yielded stays.
// A Before that is past gives the same entries with the same balances at any time, to all
// callers, no matter how many transfers are under way.
//
// A statement does not rely on waiting times.
// A commit takes its time from the server's clock first, and can be read later, when the
// server has stored it.
// A statement waits for the commits on its account that are between the two, for as long
// as the server needs, and for nothing else.
// It doesn't wait for what is merely undecided, such as a hold.
// It makes a small write to each such transfer, after which the server stores no commit
// of it with a time from before.
// So it needs the right to write to the transfers.
// Without that right nothing is written, and a statement ends where the first undecided
// transfer was last modified, for nothing later is certain.
// Once a hold is decided the rest shows.
//
// The order rests on the clock of the server that commits.
// While a primary is being replaced, the newest entries may be missing.
// An entry may show later where a clock is set back, or where that of a new primary is
// behind the old one's by more than its election took.
// The same holds in a sharded cluster where transfers move to a shard whose clock is
// behind.
//
// It reads page by page, and may be ranged over slowly.
// To count back it reads all later entries, once, before the first entry.
// For the newest entries NewestFirst is quicker: it reads what it yields, and what came
// after Before or Beyond.
// To get one page after another, use Limit, and Beyond with the last entry of the page
// before.
//
// It ends after yielding an error:
//
//   - ErrHistoryGone: the statement begins before what is kept; with NewestFirst it comes
//     after the entries that are kept.
//     Ask for later times.
//   - ErrUnauthorized, after entries: the right to write to the transfers is missing, and
//     more was asked for than is certain without it.
//     Ask for less, or have the right granted.
//   - ErrAccountNotFound: there is no such account.
//   - ErrAmountKind: the balance is no exact number, or not of the kind that was moved.
//     An operator sets it right: see [Coordinator.Audit].
//   - ErrInvalidRequest: the text says what is malformed in the query.
//   - all others: as [Coordinator.Get].
//     The entries before it are right: go on with Beyond.
//
// If an account was opened within the time that is kept, the library can't know that
// nothing came before: begin with After, the time at which it was opened.
// A range that lies five minutes or more before any retention was first used, and has no
// entries, is empty, not gone.
func (c *Coordinator) Statement(ctx context.Context, id string, q StatementQuery) iter.Seq2[Entry, error] {
	return c.defaultLedger().Statement(ctx, id, q)
}

// BalanceAt returns what was posted on an account of the default ledger at an instant.
// That is the Balance of the last entry of its statement that was committed then or
// before, or the opening balance if there is none.
// An instant in the future stands for now.
// It counts back from now, so it has to read the entries that came since.
// What it has returned stays, as with [Coordinator.Statement].
//
//   - nil: the amount.
//   - ErrInvalidRequest: the instant is the zero time, or can't be stored.
//   - all others: as [Coordinator.Statement].
func (c *Coordinator) BalanceAt(ctx context.Context, id string, at time.Time) (Amount, error) {
	return c.defaultLedger().BalanceAt(ctx, id, at)
}

// Statement yields what was moved on an account of this ledger: see
// [Coordinator.Statement].
func (l *Ledger) Statement(ctx context.Context, id string, q StatementQuery) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if err := l.statement(ctx, id, q, func(e Entry) bool { return yield(e, nil) }); err != nil {
			yield(Entry{}, nothingStored(aboutAccount(id, err)))
		}
	}
}

func (l *Ledger) statement(ctx context.Context, id string, q StatementQuery, yield func(Entry) bool) error {
	if err := q.check(); err != nil {
		return err
	}
	after, before := q.within()
	past, err := l.past(ctx, id, before)
	if err == nil {
		err = l.walk(ctx, past, q, after, yield)
	}
	if errors.Is(err, ErrHistoryGone) && past != nil {
		return past.orNothing(ctx, after, before, err)
	}
	return err
}

// walk yields what a query selects.
func (l *Ledger) walk(
	ctx context.Context, past *past, q StatementQuery, after time.Time, yield func(Entry) bool,
) error {
	walk := past.forth
	if q.NewestFirst {
		walk = past.back
	}
	size, left := historyPage, q.Limit
	if left > 0 {
		size = min(left, size)
	}
	stopped := false
	err := walk(ctx, after, size, func(e history.Entry) bool {
		if q.passes(e) {
			return true
		}
		entry := Entry{
			TransferID: e.TransferID, Amount: Amount{e.Amount}, Balance: Amount{past.balance}, At: e.At, Reverses: e.Reverses,
			Legs: legsFrom(e.Legs), Metadata: decodeMetadata(e.Metadata),
		}
		left--
		stopped = !yield(entry)
		return !stopped && left != 0
	})
	if err != nil || stopped || left == 0 && q.Limit > 0 && !q.NewestFirst {
		return err
	}
	return past.short
}

// BalanceAt returns what was posted on an account of this ledger at an instant: see
// [Coordinator.BalanceAt].
func (l *Ledger) BalanceAt(ctx context.Context, id string, at time.Time) (Amount, error) {
	if at.IsZero() {
		return Amount{}, invalid(
			"the zero time is no instant: give the one whose balance is wanted, time.Now() for the latest")
	}
	if err := checkTime("the instant", at); err != nil {
		return Amount{}, err
	}
	past, err := l.past(ctx, id, roundUp(at.Add(1)))
	if err != nil {
		return Amount{}, nothingStored(aboutAccount(id, err))
	}
	if past.short != nil {
		return Amount{}, aboutAccount(id, past.short)
	}
	return Amount{past.balance}, nil
}

// historyPage is how many entries are read at once, at most.
// Those of one millisecond are read together, no matter how many there are.
const historyPage = 1000

// past is a way through an account's history.
type past struct {
	coordinator *Coordinator
	ledger      string
	history     *history.History
	at          time.Time    // where it is: on the way back, only earlier commits are left
	balance     money.Amount // then; when an entry is visited, after that
	short       error        // why it begins earlier than it should
}

// past begins a way back at an instant, or now if that is zero or in the future.
func (l *Ledger) past(ctx context.Context, id string, before time.Time) (*past, error) {
	c := l.coordinator
	if err := l.checkID(id); err != nil {
		return nil, err
	}
	if err := c.readyToRead(ctx, document.Address{Name: l.name}); err != nil {
		return nil, err
	}
	entries, err := c.histories.History(l.name, id)
	if err != nil {
		return nil, err
	}
	var closing history.Balance
	var found bool
	err = c.read(ctx, func(ctx context.Context) (done bool, err error) {
		closing, found, err = entries.BalanceAsOf(ctx, before)
		return err == nil || malformed(err), err
	})
	switch {
	case err != nil:
		return nil, accountError(err)
	case !found:
		return nil, ErrAccountNotFound
	}
	p := &past{c, l.name, entries, closing.At, closing.Balance, nil}
	if closing.CutShort != nil {
		p.short = fmt.Errorf("nothing is certain from %s on, when a transfer that is not decided was last modified: %w",
			closing.At.Format(time.RFC3339Nano), asUnauthorized(closing.CutShort))
	}
	if before.IsZero() || !before.Before(closing.At) {
		return p, nil
	}
	return p, p.passBack(ctx, before.Add(-time.Millisecond))
}

// passBack goes back over what was committed after an instant, and reads the amounts
// alone.
//
// The server could add them up.
// But it would take what is no exact number for zero, and round decimals beyond 34 digits
// on the way; and it would have to read the same documents.
func (p *past) passBack(ctx context.Context, after time.Time) error {
	return p.backBy(ctx, p.history.Amounts, after, historyPage, func(history.Entry) bool { return true })
}

// back goes back over what was committed after an instant, or over everything for the
// zero instant, for as long as visit asks for more.
func (p *past) back(ctx context.Context, after time.Time, size int, visit func(history.Entry) bool) error {
	return p.backBy(ctx, p.history.Page, after, size, visit)
}

func (p *past) backBy(
	ctx context.Context, pages pages, after time.Time, size int, visit func(history.Entry) bool,
) error {
	for more := true; more; {
		page, err := p.read(ctx, pages, history.NewestFirst, after, p.at, size)
		if err != nil {
			return err
		}
		for _, e := range page.entries {
			if e.At.Before(page.wholeFrom) {
				return ErrHistoryGone
			}
			if !visit(e) {
				return nil
			}
			if p.balance, err = history.Plus(p.balance, e.Amount.Neg()); err != nil {
				return accountError(err)
			}
			p.at = e.At
		}
		if !page.more && page.mayLack(after) {
			return ErrHistoryGone
		}
		more = page.more
	}
	return nil
}

// forth goes back to an instant, and forward again to where it was.
func (p *past) forth(ctx context.Context, after time.Time, size int, visit func(history.Entry) bool) error {
	end := p.at
	if err := p.passBack(ctx, after); err != nil {
		return err
	}
	for more := true; more; {
		page, err := p.read(ctx, p.history.Page, history.OldestFirst, after, end, size)
		switch {
		case err != nil:
			return err
		case page.mayLack(after):
			return ErrHistoryGone
		}
		for _, e := range page.entries {
			if p.balance, err = history.Plus(p.balance, e.Amount); err != nil {
				return accountError(err)
			}
			if !visit(e) {
				return nil
			}
			after = e.At
		}
		more = page.more
	}
	return nil
}

// orNothing returns nil in place of an error that says that history is gone, where
// nothing is selected and nothing of that can be gone: all of it lies before the first
// use of any retention, so what had been there would still be there.
// Its balances are not known, but there are none to return.
func (p *past) orNothing(ctx context.Context, after, before time.Time, gone error) error {
	if before.IsZero() {
		return gone
	}
	var untouched time.Time
	err := p.coordinator.read(ctx, func(ctx context.Context) (done bool, err error) {
		untouched, err = p.coordinator.retention.NeverPurgedBefore(ctx)
		return err == nil, err
	})
	if err != nil || before.After(untouched) {
		return withCause(gone, err)
	}
	page, err := p.read(ctx, p.history.Amounts, history.OldestFirst, after, before, 1)
	if err != nil || len(page.entries) > 0 {
		return withCause(gone, err)
	}
	return nil
}

// pages reads a page: history.History.Page, or Amounts where the rest isn't needed.
type pages func(
	ctx context.Context, order history.Order, after, before time.Time, n int,
) (entries []history.Entry, more bool, err error)

// page is a part of an account's history.
type page struct {
	entries   []history.Entry
	more      bool      // other entries follow
	wholeFrom time.Time // no entry from then on is gone
}

// mayLack reports whether something that was committed after an instant may be gone.
func (p page) mayLack(after time.Time) bool {
	return after.Add(time.Millisecond).Before(p.wholeFrom)
}

// read returns a page of a size.
// It asks afterwards from when on the history is whole: what is removed meanwhile is in
// the page, or before that time.
func (p *past) read(
	ctx context.Context, pages pages, order history.Order, after, before time.Time, size int,
) (page page, err error) {
	err = p.coordinator.read(ctx, func(ctx context.Context) (done bool, err error) {
		page.entries, page.more, err = pages(ctx, order, after, before, size)
		return err == nil || malformed(err), err
	})
	if err != nil {
		return page, accountError(err)
	}
	err = p.coordinator.read(ctx, func(ctx context.Context) (done bool, err error) {
		page.wholeFrom, err = p.coordinator.historyFrom(ctx)
		return err == nil, err
	})
	return page, err
}
