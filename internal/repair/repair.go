// Package repair writes what an audit advises.
package repair

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/accounts"
	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// InsertTombstone stores a transfer that moves nothing and is final, so that its ID is taken. NotMatched: it is taken already.
func (s *Repairs) InsertTombstone(ctx context.Context, t document.Transfer) (protocol.Result, error) {
	ctx = wire.Detached(ctx)
	now, err := s.ReachedTime(ctx)
	if err != nil {
		return protocol.NotSent, err
	}
	t.State, t.Epoch, t.Legs = protocol.Fail, 1, []document.Leg{}
	t.CreatedAt, t.LastModified = now, now
	return wire.InsertOne(ctx, s.Transfers, t)
}

// MarkerRepair says which marker is to be removed, and what of its amount is to be added to the balance.
type MarkerRepair struct {
	Ledger, Account, Transfer string
	Amount                    money.Amount  // of the marker
	Pay                       money.Amount  // zero: the balance stays as it is
	Token                     bson.ObjectID // the new fence
}

// RemoveMarker removes a marker where it is as it was seen, and replaces the fence in the same update.
func (s *Repairs) RemoveMarker(ctx context.Context, r MarkerRepair) (protocol.Result, error) {
	key, err := s.IDs.Encode(r.Account)
	if err != nil {
		return protocol.NotSent, err
	}
	marker := s.Fields.Pending + "." + document.MarkerKey(r.Transfer)
	noArray := bson.E{Key: "$not", Value: bson.D{{Key: "$type", Value: "array"}}}
	filter := bson.D{
		{Key: "_id", Value: key},
		{Key: s.Fields.Pending, Value: bson.D{noArray}},
		{Key: marker, Value: bson.D{{Key: "$eq", Value: r.Amount}, noArray}},
	}
	update := bson.D{
		{Key: "$unset", Value: bson.D{{Key: marker, Value: ""}}},
		{Key: "$set", Value: bson.D{{Key: s.Fields.Fence, Value: r.Token}}},
	}
	if r.Pay.Sign() != 0 {
		low, high, err := payable(r.Pay)
		if err != nil {
			return protocol.NotSent, err
		}
		types := bson.A{"int", "long"}
		if r.Pay.Kind() == money.Decimal {
			types = bson.A{"decimal"}
			exact, err := document.ExactBalance(s.Fields.Balance)
			if err != nil {
				return protocol.NotSent, err
			}
			filter = append(filter, bson.E{Key: "$expr", Value: exact})
		}
		filter = append(filter, bson.E{Key: s.Fields.Balance, Value: bson.D{
			{Key: "$type", Value: types}, {Key: "$gte", Value: low}, {Key: "$lte", Value: high}, noArray,
		}})
		update = append(update, bson.E{Key: "$inc", Value: bson.D{{Key: s.Fields.Balance, Value: r.Pay}}})
	}
	return wire.UpdateOne(wire.Detached(ctx), s.Ledgers[r.Ledger].Commands, filter, update)
}

// payable returns the least and the largest balance that an amount can be added to, so that the sum is exact and within the limits.
func payable(amount money.Amount) (low, high money.Amount, err error) {
	limit := money.MaxBalance(amount.Kind())
	high, err = limit.Add(amount.Neg())
	return limit.Neg(), high, err
}

// MarkerState is what a deciding read of an account shows to those who repair it.
type MarkerState struct {
	Found        bool
	Amount       *money.Amount // of the marker; nil: there is none, or it is no exact number
	SameKind     bool          // the balance is an exact number of the kind of the amount to be paid in
	WithinLimits bool          // and with that amount stays within the limits
	HasMap       bool          // the markers are a map
	Fence        protocol.Fence
}

// ReadMarker is a deciding read of an account and its marker of a transfer, with an amount that might be paid in.
func (s *Repairs) ReadMarker(ctx context.Context, ledger, account, transfer string, pay money.Amount) (MarkerState, error) {
	key, err := s.IDs.Encode(account)
	if err != nil {
		return MarkerState{}, err
	}
	doc, err := wire.FindOne(wire.Detached(ctx), s.Ledgers[ledger].Linearizable, bson.D{{Key: "_id", Value: key}})
	if wire.NotFound(err) {
		return MarkerState{}, nil
	}
	if err != nil {
		return MarkerState{}, err
	}
	seen := MarkerState{Found: true, HasMap: s.Fields.HasMap(doc), Fence: s.Fields.FenceOf(doc)}
	if pending, ok := doc.Lookup(s.Fields.Pending).DocumentOK(); ok {
		if amount, err := money.FromBSON(pending.Lookup(document.MarkerKey(transfer))); err == nil {
			seen.Amount = &amount
		}
	}
	balance, err := money.FromBSON(doc.Lookup(s.Fields.Balance))
	seen.SameKind = err == nil && balance.Kind() == pay.Kind() && balance.Places() <= money.MaxPlaces
	if low, high, err := payable(pay); seen.SameKind && err == nil {
		seen.WithinLimits = balance.Cmp(low) >= 0 && balance.Cmp(high) <= 0
	}
	return seen, nil
}

// ClearPending makes an empty array of markers a map, and replaces the fence.
func (s *Repairs) ClearPending(ctx context.Context, ledger, account string) (protocol.Result, error) {
	return accounts.New(s.Catalog).Update(ctx, ledger, account,
		bson.D{{Key: s.Fields.Pending, Value: bson.D{{Key: "$type", Value: "array"}, {Key: "$size", Value: 0}}}},
		bson.D{
			{Key: "$set", Value: bson.D{{Key: s.Fields.Pending, Value: bson.D{}}}},
			{Key: "$currentDate", Value: bson.D{{Key: s.Fields.Fence, Value: bson.D{{Key: "$type", Value: "timestamp"}}}}},
		})
}

// SetOpen makes a transfer's flag what its state says, where the state is as it was seen. NotMatched: it is another one.
func (s *Repairs) SetOpen(ctx context.Context, seen document.Transfer) (protocol.Result, error) {
	update := bson.D{{Key: "$set", Value: bson.D{{Key: "open", Value: true}}}}
	if seen.State.Final() {
		update = bson.D{{Key: "$unset", Value: bson.D{{Key: "open", Value: ""}}}}
	}
	return wire.UpdateOne(wire.Detached(ctx), s.Transfers, bson.D{{Key: "_id", Value: seen.ID}, {Key: "state", Value: seen.State}}, update)
}

// Repairs writes what an audit advises. It is safe for many goroutines.
type Repairs struct{ *collections.Catalog }

// New returns the repairs of a catalog.
func New(c *collections.Catalog) *Repairs { return &Repairs{c} }
