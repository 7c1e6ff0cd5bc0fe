package accounts

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Listed is an account of a page.
type Listed struct {
	// ID is the account's ID.
	ID string
	// Account is the account, as Get returns it.
	Account document.Account
	// Err says why the document can't be read as an account, nil if it can.
	Err error
}

// Page is a number of accounts in the order of their IDs.
type Page struct {
	// Accounts are those of the page that have the currency.
	Accounts []Listed
	// Next is the _id behind which the next page begins, the zero value where nothing
	// follows.
	Next bson.RawValue
}

// Page reads up to a number of accounts behind an _id, or from the first one on for the
// zero value, and returns those that have a currency; "" stands for any.
//
// The server reads no more than the page, by the index of _id. There is no index of the
// currency, and so that each read is short it is judged here. Like Get, a page shows what
// was stored at one time, if one client reaches both collections.
func (a *Accounts) Page(ctx context.Context, ledger string, after bson.RawValue, currency string, size int) (page Page, err error) {
	from := a.catalog.Ledgers[ledger]
	find := options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetLimit(int64(size)).
		SetProjection(append(a.catalog.Fields.Projection(), bson.E{Key: "metadata", Value: 1}))
	behind := a.catalog.IDs.All()
	if after.Type != 0 {
		behind = bson.D{{Key: "$gt", Value: after}}
	}
	err = atOneTime(wire.Detached(ctx), from, func(ctx context.Context) error {
		var found []bson.Raw
		if err := wire.FindAll(ctx, from.Majority, bson.D{{Key: "_id", Value: behind}}, &found, find); err != nil {
			return err
		}
		page = Page{}
		if len(found) == size {
			page.Next = found[size-1].Lookup("_id")
		}
		for _, stored := range found {
			if view := a.catalog.Fields.View(stored); currency == "" || view.HasCurrency(currency) {
				page.Accounts = append(page.Accounts, a.listed(view))
			}
		}
		return a.concludeAll(ctx, page.Accounts)
	})
	return page, err
}

// listed decodes an account.
func (a *Accounts) listed(view document.View) Listed {
	account, err := view.Account(a.catalog.IDs)
	if err == nil {
		_, err = a.catalog.IDs.Encode(account.ID)
	}
	if err != nil {
		return Listed{ID: document.IDText(view.ID()), Err: err}
	}
	return Listed{ID: account.ID, Account: account}
}

// concludeAll counts the debits of transfers that are committed as no longer in flight.
func (a *Accounts) concludeAll(ctx context.Context, listed []Listed) error {
	var debited []*Listed
	var ids []string
	for i := range listed {
		if debits := listed[i].Account.Debits; len(debits) > 0 {
			debited = append(debited, &listed[i])
			ids = append(ids, transfersOf(debits)...)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	committed, err := a.committed(ctx, ids)
	if err != nil {
		return err
	}
	for _, l := range debited {
		l.Err = concludeBy(committed, &l.Account)
	}
	return nil
}
