// Package accounts opens, closes, reopens and reads accounts.
package accounts

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Status is what a look at an account shows to those who open, close or reopen it.
type Status struct {
	Found     bool
	Closed    bool
	Markers   int
	Empty     bool // the balance is zero
	Malformed bool // the balance is no exact number, or the markers are no map: this is no account
	Fence     protocol.Fence
}

// Get reads what a majority has stored; false: there is no such account.
func (s *Accounts) Get(ctx context.Context, ledger, id string) (document.Account, bool, error) {
	key, err := s.IDs.Encode(id)
	if err != nil {
		return document.Account{}, false, err
	}
	doc, err := wire.FindOne(wire.Detached(ctx), s.Ledgers[ledger].Majority, bson.D{{Key: "_id", Value: key}})
	if wire.NotFound(err) {
		return document.Account{}, false, nil
	}
	if err != nil {
		return document.Account{}, false, err
	}
	account, err := s.Fields.DecodeAccount(s.IDs, doc)
	return account, true, err
}

// Spendable returns what a debit may take off an account as a majority has it stored; false: it is no account, or none that can pay.
func (s *Accounts) Spendable(ctx context.Context, ledger, id string) (money.Amount, bool, error) {
	key, err := s.IDs.Encode(id)
	if err != nil {
		return money.Amount{}, false, err
	}
	document, err := wire.FindOne(wire.Detached(ctx), s.Ledgers[ledger].Majority, bson.D{{Key: "_id", Value: key}})
	if wire.NotFound(err) {
		return money.Amount{}, false, nil
	}
	if err != nil {
		return money.Amount{}, false, err
	}
	balance, err := money.FromBSON(document.Lookup(s.Fields.Balance))
	if err != nil {
		return money.Amount{}, false, nil
	}
	least, err := s.Fields.FloorOf(document).Above(money.MaxBalance(balance.Kind()).Neg())
	if err != nil {
		return money.Amount{}, false, nil
	}
	spendable, err := balance.Add(least.Neg())
	return spendable, err == nil && spendable.Places() <= money.MaxPlaces, nil
}

// Open stores a new account under a fresh fence, which it returns: it tells whose insert it was, should the answer be
// lost. NotMatched: the ID is taken.
func (s *Accounts) Open(ctx context.Context, ledger string, a document.Account, token bson.ObjectID) (protocol.Result, error) {
	key, err := s.IDs.Encode(a.ID)
	if err != nil {
		return protocol.NotSent, err
	}
	doc := bson.D{
		{Key: "_id", Value: key},
		{Key: s.Fields.Balance, Value: a.Balance},
		{Key: s.Fields.Pending, Value: bson.D{}},
		{Key: s.Fields.Fence, Value: token},
	}
	switch {
	case a.NoFloor:
		doc = append(doc, bson.E{Key: s.Fields.Floor, Value: document.NoFloor()})
	case a.Floor.Sign() != 0:
		doc = append(doc, bson.E{Key: s.Fields.Floor, Value: a.Floor})
	}
	if a.Currency != "" {
		doc = append(doc, bson.E{Key: s.Fields.Currency, Value: a.Currency})
	}
	if a.Metadata != nil {
		doc = append(doc, bson.E{Key: "metadata", Value: a.Metadata})
	}
	return wire.InsertOne(wire.Detached(ctx), s.Ledgers[ledger].Commands, doc)
}

// OpenedWith reports whether an account's fence is the one that an OpenAccount of this process gave it.
func (a Status) OpenedWith(token bson.ObjectID) bool {
	return a.Fence == protocol.Fence(append([]byte{byte(bson.TypeObjectID)}, token[:]...))
}

// Close closes an open account with no marker and no money.
func (s *Accounts) Close(ctx context.Context, ledger, id string) (protocol.Result, error) {
	return s.Update(ctx, ledger, id,
		bson.D{
			{Key: s.Fields.Closed, Value: bson.D{{Key: "$ne", Value: true}}},
			{Key: s.Fields.Pending, Value: bson.D{
				{Key: "$in", Value: bson.A{nil, bson.D{}}}, {Key: "$not", Value: bson.D{{Key: "$type", Value: "array"}}},
			}},
			{Key: s.Fields.Balance, Value: bson.D{
				{Key: "$type", Value: bson.A{"int", "long", "decimal"}}, {Key: "$eq", Value: int64(0)},
				{Key: "$not", Value: bson.D{{Key: "$type", Value: "array"}}},
			}},
		},
		bson.D{{Key: "$set", Value: bson.D{{Key: s.Fields.Closed, Value: true}}}})
}

// Reopen opens a closed account again.
func (s *Accounts) Reopen(ctx context.Context, ledger, id string) (protocol.Result, error) {
	return s.Update(ctx, ledger, id,
		bson.D{{Key: s.Fields.Closed, Value: true}},
		bson.D{{Key: "$unset", Value: bson.D{{Key: s.Fields.Closed, Value: ""}}}})
}

func (s *Accounts) Update(ctx context.Context, ledger, id string, condition, update bson.D) (protocol.Result, error) {
	key, err := s.IDs.Encode(id)
	if err != nil {
		return protocol.NotSent, err
	}
	filter := append(bson.D{{Key: "_id", Value: key}}, condition...)
	return wire.UpdateOne(wire.Detached(ctx), s.Ledgers[ledger].Commands, filter, update)
}

// Status is a deciding read.
func (s *Accounts) Status(ctx context.Context, ledger, id string) (Status, error) {
	key, err := s.IDs.Encode(id)
	if err != nil {
		return Status{}, err
	}
	document, err := wire.FindOne(wire.Detached(ctx), s.Ledgers[ledger].Linearizable, bson.D{{Key: "_id", Value: key}})
	if wire.NotFound(err) {
		return Status{}, nil
	}
	if err != nil {
		return Status{}, err
	}
	markers, _ := s.Fields.Markers(document, "")
	balance, err := money.FromBSON(document.Lookup(s.Fields.Balance))
	return Status{
		Found:     true,
		Closed:    s.Fields.IsClosed(document),
		Markers:   markers,
		Empty:     err == nil && balance.Sign() == 0,
		Malformed: err != nil || !s.Fields.HasMap(document),
		Fence:     s.Fields.FenceOf(document),
	}, nil
}

// Accounts opens, closes and reads accounts. It is safe for many goroutines.
type Accounts struct{ *collections.Catalog }

// New returns the accounts of a catalog.
func New(c *collections.Catalog) *Accounts { return &Accounts{c} }
