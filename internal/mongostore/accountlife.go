package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// AccountStatus is what a look at an account shows to those who open, close or reopen it.
type AccountStatus struct {
	Found   bool
	Closed  bool
	Markers int
	Empty   bool // the balance is zero
	Odd     bool // the balance is no exact number, or the markers are no map: this is no account
	Fence   protocol.Fence
}

// GetAccount reads what a majority has stored; false: there is no such account.
func (s *Accounts) GetAccount(ctx context.Context, ledger, id string) (Account, bool, error) {
	key, err := s.ids.Encode(id)
	if err != nil {
		return Account{}, false, err
	}
	document, err := findOne(detached(ctx), s.ledgers[ledger].majority, bson.D{{Key: "_id", Value: key}})
	if missing(err) {
		return Account{}, false, nil
	}
	if err != nil {
		return Account{}, false, err
	}
	account, err := s.fields.decodeAccount(s.ids, document)
	return account, true, err
}

// Spendable returns what a debit may take off an account as a majority has it stored; false: it is no account, or none that can pay.
func (s *Accounts) Spendable(ctx context.Context, ledger, id string) (money.Amount, bool, error) {
	key, err := s.ids.Encode(id)
	if err != nil {
		return money.Amount{}, false, err
	}
	document, err := findOne(detached(ctx), s.ledgers[ledger].majority, bson.D{{Key: "_id", Value: key}})
	if missing(err) {
		return money.Amount{}, false, nil
	}
	if err != nil {
		return money.Amount{}, false, err
	}
	balance, err := money.FromBSON(document.Lookup(s.fields.Balance))
	if err != nil {
		return money.Amount{}, false, nil
	}
	least, err := s.fields.floor(document).above(money.MaxBalance(balance.Kind()).Neg())
	if err != nil {
		return money.Amount{}, false, nil
	}
	spendable, err := balance.Add(least.Neg())
	return spendable, err == nil && spendable.Places() <= money.MaxPlaces, nil
}

// OpenAccount stores a new account under a fresh fence, which it returns: it tells whose insert it was, should the answer be
// lost. NotMatched: the ID is taken.
func (s *Accounts) OpenAccount(ctx context.Context, ledger string, a Account, token bson.ObjectID) (protocol.Result, error) {
	key, err := s.ids.Encode(a.ID)
	if err != nil {
		return protocol.NotSent, err
	}
	document := bson.D{
		{Key: "_id", Value: key},
		{Key: s.fields.Balance, Value: a.Balance},
		{Key: s.fields.Pending, Value: bson.D{}},
		{Key: s.fields.Fence, Value: token},
	}
	switch {
	case a.NoFloor:
		document = append(document, bson.E{Key: s.fields.Floor, Value: noFloor()})
	case a.Floor.Sign() != 0:
		document = append(document, bson.E{Key: s.fields.Floor, Value: a.Floor})
	}
	if a.Currency != "" {
		document = append(document, bson.E{Key: s.fields.Currency, Value: a.Currency})
	}
	if a.Metadata != nil {
		document = append(document, bson.E{Key: "metadata", Value: a.Metadata})
	}
	return insertOne(detached(ctx), s.ledgers[ledger].commands, document)
}

// OpenedWith reports whether an account's fence is the one that an OpenAccount of this process gave it.
func (a AccountStatus) OpenedWith(token bson.ObjectID) bool {
	return a.Fence == protocol.Fence(append([]byte{byte(bson.TypeObjectID)}, token[:]...))
}

// CloseAccount closes an open account with no marker and no money.
func (s *Accounts) CloseAccount(ctx context.Context, ledger, id string) (protocol.Result, error) {
	return s.changeAccount(ctx, ledger, id,
		bson.D{
			{Key: s.fields.Closed, Value: bson.D{{Key: "$ne", Value: true}}},
			{Key: s.fields.Pending, Value: bson.D{
				{Key: "$in", Value: bson.A{nil, bson.D{}}}, {Key: "$not", Value: bson.D{{Key: "$type", Value: "array"}}},
			}},
			{Key: s.fields.Balance, Value: bson.D{
				{Key: "$type", Value: bson.A{"int", "long", "decimal"}}, {Key: "$eq", Value: int64(0)},
				{Key: "$not", Value: bson.D{{Key: "$type", Value: "array"}}},
			}},
		},
		bson.D{{Key: "$set", Value: bson.D{{Key: s.fields.Closed, Value: true}}}})
}

// ReopenAccount opens a closed account again.
func (s *Accounts) ReopenAccount(ctx context.Context, ledger, id string) (protocol.Result, error) {
	return s.changeAccount(ctx, ledger, id,
		bson.D{{Key: s.fields.Closed, Value: true}},
		bson.D{{Key: "$unset", Value: bson.D{{Key: s.fields.Closed, Value: ""}}}})
}

func (s *Accounts) changeAccount(ctx context.Context, ledger, id string, condition, update bson.D) (protocol.Result, error) {
	key, err := s.ids.Encode(id)
	if err != nil {
		return protocol.NotSent, err
	}
	filter := append(bson.D{{Key: "_id", Value: key}}, condition...)
	return updateOne(detached(ctx), s.ledgers[ledger].commands, filter, update)
}

// LookAtAccount is a deciding read.
func (s *Accounts) LookAtAccount(ctx context.Context, ledger, id string) (AccountStatus, error) {
	key, err := s.ids.Encode(id)
	if err != nil {
		return AccountStatus{}, err
	}
	document, err := findOne(detached(ctx), s.ledgers[ledger].linearizable, bson.D{{Key: "_id", Value: key}})
	if missing(err) {
		return AccountStatus{}, nil
	}
	if err != nil {
		return AccountStatus{}, err
	}
	markers, _ := s.fields.markers(document, "")
	balance, err := money.FromBSON(document.Lookup(s.fields.Balance))
	return AccountStatus{
		Found:   true,
		Closed:  s.fields.closed(document),
		Markers: markers,
		Empty:   err == nil && balance.Sign() == 0,
		Odd:     err != nil || !s.fields.hasMap(document),
		Fence:   s.fields.fence(document),
	}, nil
}
