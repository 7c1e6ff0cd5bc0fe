package transfer

import (
	"cmp"
	"context"
	"fmt"
	"iter"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/accounts"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/words"
)

// accountsPage is the number of accounts that a list reads at once.
const accountsPage = 256

// AccountQuery selects accounts of one ledger.
// Its zero value selects all accounts of the default ledger.
type AccountQuery struct {
	// Ledger is the name of the ledger.
	// Defaults to "", the default ledger.
	Ledger string
	// Currency selects the accounts with this currency.
	// Defaults to "": all accounts.
	//
	// There is no index of currencies: every account from Beyond on is read until the
	// limit is reached.
	Currency string
	// Beyond is the ID of the last account seen: the list begins with the next one.
	// There need not be such an account any more.
	// Defaults to "": the list begins with the first one.
	Beyond string
	// Limit bounds how many accounts are selected.
	// Defaults to 0: no limit.
	Limit int
}

// Accounts yields the accounts that a query selects, ordered by their IDs as the server
// orders them: texts byte by byte.
// Each is as [Coordinator.GetAccount] returns it.
//
// It reads page by page, by the index of _id, and keeps no more than a page of 256
// accounts, so that any number of them can be walked through.
// Each page shows what was stored at one time, and the pages are of different times: an
// account that is opened meanwhile is yielded if its place comes later.
// No account is yielded twice, and none is left out that is there all the time.
//
// Where a walk was cut short, another one continues it, with the ID that was seen last as
// Beyond.
//
//   - ErrAmountKind, with an ID and a Ledger: that document is no account, and the rest
//     follows.
//     An operator sets it right: see [Coordinator.Audit].
//   - ErrInvalidRequest: the text says what is malformed.
//   - all others: as [Coordinator.Get].
//     The walk ends: begin another one behind what was seen.
func (c *Coordinator) Accounts(ctx context.Context, q AccountQuery) iter.Seq2[Account, error] {
	return func(yield func(Account, error) bool) {
		w, err := c.walkAccounts(q)
		if err == nil {
			err = c.readyToRead(ctx, document.Address{Name: q.Ledger})
		}
		for err == nil && !w.over {
			var page accounts.Page
			if page, err = w.next(ctx); err == nil && !w.yield(page, yield) {
				return
			}
		}
		if err != nil {
			yield(Account{}, err)
		}
	}
}

// accountWalk is a list of accounts under way.
type accountWalk struct {
	ledger   *Ledger
	currency string
	after    bson.RawValue // the _id that was read last
	left     int           // how many may still be yielded, where there is a limit
	limited  bool
	over     bool
}

// walkAccounts checks a query, and returns its walk before the first page.
func (c *Coordinator) walkAccounts(q AccountQuery) (*accountWalk, error) {
	ledger, err := c.Ledger(q.Ledger)
	if err != nil {
		return nil, err
	}
	w := &accountWalk{ledger: ledger, currency: q.Currency, left: q.Limit, limited: q.Limit > 0}
	if err := cmp.Or(c.closedError(), checkCurrency(q.Currency)); err != nil {
		return nil, err
	}
	if q.Limit < 0 {
		return nil, invalid("the Limit is negative")
	}
	if q.Beyond == "" {
		return w, nil
	}
	if w.after, err = document.IDCodec(c.settings.ids).Encode(q.Beyond); err != nil {
		return nil, invalid("Beyond: %w", err)
	}
	return w, nil
}

// next reads the next page.
func (w *accountWalk) next(ctx context.Context) (page accounts.Page, err error) {
	size := accountsPage
	if w.limited && w.currency == "" {
		size = min(size, w.left)
	}
	c := w.ledger.coordinator
	err = c.read(ctx, func(ctx context.Context) (done bool, err error) {
		page, err = c.accounts.Page(ctx, w.ledger.name, w.after, w.currency, size)
		return err == nil, err
	})
	if err != nil {
		return page, fmt.Errorf("list accounts: %w", err)
	}
	w.after, w.over = page.Next, page.Next.Type == 0
	return page, nil
}

// yield yields a page's accounts up to the limit.
// It reports false if nobody wants more.
func (w *accountWalk) yield(page accounts.Page, yield func(Account, error) bool) bool {
	for _, listed := range page.Accounts {
		account, err := Account{ID: listed.ID, Ledger: w.ledger.name}, listed.Err
		if err == nil {
			account = w.ledger.account(listed.Account, decodeMetadata(listed.Account.Metadata))
		} else {
			err = fmt.Errorf("list accounts: account %s: %w: %w", words.Quote(listed.ID), ErrAmountKind, err)
		}
		if !yield(account, err) {
			return false
		}
		if w.left--; w.limited && w.left == 0 {
			w.over = true
			return true
		}
	}
	return true
}
