// Package accounts opens, closes, reopens, changes, reads and lists accounts.
package accounts

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Accounts opens, closes, changes and reads accounts.
// It is safe for many goroutines.
type Accounts struct{ catalog *collections.Catalog }

// New returns the accounts of a catalog.
func New(c *collections.Catalog) *Accounts { return &Accounts{c} }

// Spendable returns what a debit may take from an account as a majority has stored it.
// It is not known if there is no such account, or if its fields can't be understood.
func (a *Accounts) Spendable(ctx context.Context, ledger, id string) (amount money.Amount, known bool, err error) {
	stored, err := a.find(wire.Detached(ctx), a.catalog.Ledgers[ledger].Majority, id)
	if err != nil || !stored.Found() {
		return money.Amount{}, false, err
	}
	balance, err := stored.Balance()
	if err != nil {
		return money.Amount{}, false, nil
	}
	least, err := stored.Floor().Above(money.MaxBalance(balance.Kind()).Neg())
	if err != nil {
		return money.Amount{}, false, nil
	}
	amount, err = balance.Add(least.Neg())
	return amount, err == nil && amount.Places() <= money.MaxPlaces, nil
}

// Read returns the document of an account as a majority has stored it.
func (a *Accounts) Read(ctx context.Context, ledger, id string) (document.View, error) {
	return a.find(wire.Detached(ctx), a.catalog.Ledgers[ledger].Majority, id)
}

// ReadDeciding returns the document of an account by a linearizable read.
func (a *Accounts) ReadDeciding(ctx context.Context, ledger, id string) (document.View, error) {
	return a.find(wire.Detached(ctx), a.catalog.Ledgers[ledger].Linearizable, id)
}

// find reads the document of an account, in the session of the context if it has one.
func (a *Accounts) find(ctx context.Context, from *mongo.Collection, id string) (document.View, error) {
	key, err := a.catalog.IDs.Encode(id)
	if err != nil {
		return document.View{}, err
	}
	stored, err := wire.FindOne(ctx, from, bson.D{{Key: "_id", Value: key}})
	if wire.NotFound(err) {
		stored, err = nil, nil
	}
	return a.catalog.Fields.View(stored), err
}

// Status is what a read shows of an account that is to be opened, closed or reopened.
type Status struct {
	// Found says that there is a document with the account's ID.
	Found bool
	// Closed says that the account is closed.
	Closed bool
	// Markers counts the transfers in flight. Those with a done mark are not.
	Markers int
	// InFlight are their IDs, but for those whose marker names no transfer.
	InFlight []string
	// Empty says that the balance is zero.
	Empty bool
	// Malformed says that the document is no account: the balance is no exact number, or
	// the markers are no map.
	Malformed bool
	// Fence is the account's fence.
	Fence protocol.Fence
}

// Status returns an account's status by a linearizable read.
func (a *Accounts) Status(ctx context.Context, ledger, id string) (Status, error) {
	stored, err := a.ReadDeciding(ctx, ledger, id)
	return StatusOf(stored), err
}

// StatusOf returns the status that a document shows.
func StatusOf(stored document.View) Status {
	if !stored.Found() {
		return Status{}
	}
	balance, err := stored.Balance()
	return Status{
		Found:     true,
		Closed:    stored.Closed(),
		Markers:   stored.Markers("").Count,
		InFlight:  stored.InFlight(),
		Empty:     err == nil && balance.Sign() == 0,
		Malformed: err != nil || !stored.HasMap(),
		Fence:     stored.Fence(),
	}
}

// OpenedWith reports whether the account was opened with this token, and not changed
// since.
func (s Status) OpenedWith(token bson.ObjectID) bool { return s.Fence == document.FenceOfToken(token) }

// Open stores a new account, with the token as its fence.
// If the answer is lost, the fence shows whose account is stored.
// The result is NotMatched if the ID is taken.
func (a *Accounts) Open(
	ctx context.Context, ledger string, account document.Account, token bson.ObjectID,
) (protocol.Result, error) {
	key, err := a.catalog.IDs.Encode(account.ID)
	if err != nil {
		return protocol.NotSent, err
	}
	fields := a.catalog.Fields
	doc := bson.D{
		{Key: "_id", Value: key},
		{Key: fields.Balance, Value: account.Balance},
		{Key: fields.Pending, Value: bson.D{}},
		{Key: fields.Fence, Value: token},
	}
	switch {
	case account.NoFloor:
		doc = append(doc, bson.E{Key: fields.Floor, Value: document.NoFloor()})
	case account.Floor.Sign() != 0:
		doc = append(doc, bson.E{Key: fields.Floor, Value: account.Floor})
	}
	if account.Frozen {
		doc = append(doc, bson.E{Key: fields.Frozen, Value: true})
	}
	if account.Currency != "" {
		doc = append(doc, bson.E{Key: fields.Currency, Value: account.Currency})
	}
	if account.Metadata != nil {
		doc = append(doc, bson.E{Key: "metadata", Value: account.Metadata})
	}
	return wire.InsertOne(wire.Detached(ctx), a.catalog.Ledgers[ledger].Commands, doc)
}

// Update updates an account's document if it meets a condition.
func (a *Accounts) Update(ctx context.Context, ledger, id string, condition, update bson.D) (protocol.Result, error) {
	key, err := a.catalog.IDs.Encode(id)
	if err != nil {
		return protocol.NotSent, err
	}
	filter := append(bson.D{{Key: "_id", Value: key}}, condition...)
	return wire.UpdateOne(wire.Detached(ctx), a.catalog.Ledgers[ledger].Commands, filter, update)
}
