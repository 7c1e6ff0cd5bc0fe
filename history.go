package transfer

import (
	"context"
	"fmt"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/history"
	"github.com/mongotransfer/transfer/internal/money"
)

// historyPage is how many entries are read at once, at most.
// Those of one millisecond are read together, no matter how many there are.
const historyPage = 1000

// past is a way through an account's history.
type past struct {
	coordinator *Coordinator
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
	p := &past{c, entries, closing.At, closing.Balance, nil}
	if closing.CutShort != nil {
		p.short = fmt.Errorf("nothing is certain from %s on, when a transfer that is not decided was last modified: %w",
			closing.At.Format(time.RFC3339Nano), named(closing.CutShort))
	}
	if before.IsZero() || !before.Before(closing.At) {
		return p, nil
	}
	return p, p.back(ctx, before.Add(-time.Millisecond), historyPage, passOver)
}

func passOver(history.Entry) bool { return true }

// back goes back over what was committed after an instant, or over everything for the
// zero instant, for as long as visit asks for more.
//
// The server could add up what is only passed over.
// But it would take what is no exact number for zero, and round decimals beyond 34 digits
// on the way; and it would have to read the same documents.
func (p *past) back(ctx context.Context, after time.Time, size int, visit func(history.Entry) bool) error {
	for more := true; more; {
		page, err := p.read(ctx, history.NewestFirst, after, p.at, size)
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
	if err := p.back(ctx, after, historyPage, passOver); err != nil {
		return err
	}
	for more := true; more; {
		page, err := p.read(ctx, history.OldestFirst, after, end, size)
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
	page, err := p.read(ctx, history.OldestFirst, after, before, 1)
	if err != nil || len(page.entries) > 0 {
		return withCause(gone, err)
	}
	return nil
}

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
	ctx context.Context, order history.Order, after, before time.Time, size int,
) (page page, err error) {
	err = p.coordinator.read(ctx, func(ctx context.Context) (done bool, err error) {
		page.entries, page.more, err = p.history.Page(ctx, order, after, before, size)
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
