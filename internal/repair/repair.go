// Package repair writes what the audit advises: it removes markers, makes the markers a
// map again, and sets the flag open. It also takes the ID of a transfer whose document is
// lost.
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

// Repairs writes what the audit advises.
// It is safe for many goroutines.
type Repairs struct {
	catalog  *collections.Catalog
	accounts *accounts.Accounts
}

// New returns the repairs of a catalog.
func New(c *collections.Catalog) *Repairs { return &Repairs{c, accounts.New(c)} }

// InsertTombstone stores a transfer that moves nothing and is final, so that its ID is
// taken.
// The result is NotMatched if it is taken already.
func (r *Repairs) InsertTombstone(ctx context.Context, t document.Transfer) (protocol.Result, error) {
	ctx = wire.Detached(ctx)
	now, err := r.catalog.ReachedTime(ctx)
	if err != nil {
		return protocol.NotSent, err
	}
	t.State, t.Epoch, t.Legs = protocol.Fail, 1, []document.Leg{}
	t.CreatedAt, t.LastModified = now, now
	return wire.InsertOne(ctx, r.catalog.Transfers, t)
}

// MarkerRepair says which marker or done mark to remove, and what to add to the balance.
type MarkerRepair struct {
	// Ledger and Account name the account, and Transfer the marker's transfer.
	Ledger, Account, Transfer string
	// Done says that it is the done mark that is removed.
	Done bool
	// Amount is the marker's amount.
	Amount money.Amount
	// Pay is added to the balance.
	Pay money.Amount
	// Token is the new fence.
	Token bson.ObjectID
}

// RemoveMarker removes a marker if it has the given amount, and replaces the fence in the
// same update.
func (r *Repairs) RemoveMarker(ctx context.Context, m MarkerRepair) (protocol.Result, error) {
	fields := r.catalog.Fields
	marker := fields.Pending + "." + m.key()
	noArray := bson.E{Key: "$not", Value: bson.D{{Key: "$type", Value: "array"}}}
	condition := bson.D{
		{Key: fields.Pending, Value: bson.D{noArray}},
		{Key: marker, Value: bson.D{{Key: "$eq", Value: m.Amount}, noArray}},
	}
	update := bson.D{
		{Key: "$unset", Value: bson.D{{Key: marker, Value: ""}}},
		{Key: "$set", Value: bson.D{{Key: fields.Fence, Value: m.Token}}},
	}
	if m.Pay.Sign() != 0 {
		low, high, err := payable(m.Pay)
		if err != nil {
			return protocol.NotSent, err
		}
		if m.Pay.Kind() == money.Decimal {
			exact, err := document.ExactBalance(fields.Balance)
			if err != nil {
				return protocol.NotSent, err
			}
			condition = append(condition, bson.E{Key: "$expr", Value: exact})
		}
		condition = append(condition, bson.E{Key: fields.Balance, Value: bson.D{
			{Key: "$type", Value: document.NumberTypes(m.Pay.Kind())},
			{Key: "$gte", Value: low}, {Key: "$lte", Value: high}, noArray,
		}})
		update = append(update, bson.E{Key: "$inc", Value: bson.D{{Key: fields.Balance, Value: m.Pay}}})
	}
	return r.accounts.Update(ctx, m.Ledger, m.Account, condition, update)
}

// key returns the key of what is removed.
func (m MarkerRepair) key() string {
	if m.Done {
		return document.DoneKey(m.Transfer)
	}
	return document.MarkerKey(m.Transfer)
}

// payable returns the least and the largest balance to which an amount can be added so
// that the sum can be stored exactly.
func payable(amount money.Amount) (low, high money.Amount, err error) {
	high, err = money.MaxExact(amount.Kind()).Add(amount.Neg())
	return money.MaxBalance(amount.Kind()).Neg(), high, err
}

// MarkerState is what a read shows of an account whose marker is to be removed.
type MarkerState struct {
	// Found says that there is a document with the account's ID.
	Found bool
	// Amount is the marker's amount.
	// It is nil if there is no such marker, or if its value is no exact number.
	Amount *money.Amount
	// Paid is the done mark's amount.
	// It is nil if there is no such mark, or if its value is no exact number.
	Paid *money.Amount
	// SameKind says that the balance is an exact number of the kind of the amount to pay
	// in.
	SameKind bool
	// WithinLimits says that the balance stays within the limits when the amount is paid
	// in.
	WithinLimits bool
	// HasMap says that the markers are a map, or missing.
	HasMap bool
	// Fence is the account's fence.
	Fence protocol.Fence
}

// ReadMarker reads an account, and its marker and its done mark of a transfer, by a
// linearizable read, and checks whether an amount can be paid in.
func (r *Repairs) ReadMarker(ctx context.Context, ledger, account, transfer string, pay money.Amount) (MarkerState, error) {
	stored, err := r.accounts.ReadDeciding(ctx, ledger, account)
	if err != nil || !stored.Found() {
		return MarkerState{}, err
	}
	m := MarkerState{Found: true, HasMap: stored.HasMap(), Fence: stored.Fence()}
	if amount, err := money.FromBSON(stored.Marker(transfer)); err == nil {
		m.Amount = &amount
	}
	for _, paid := range stored.Paid() {
		if amount, err := money.FromBSON(paid.Amount); err == nil && paid.Transfer == transfer {
			m.Paid = &amount
		}
	}
	balance, err := stored.Balance()
	m.SameKind = err == nil && balance.Kind() == pay.Kind() && balance.Places() <= money.MaxPlaces
	if low, high, err := payable(pay); m.SameKind && err == nil {
		m.WithinLimits = balance.Cmp(low) >= 0 && balance.Cmp(high) <= 0
	}
	return m, nil
}

// ClearPending makes null, or an empty array of markers, a map, and replaces the fence.
// An array that has null in it is of type null, too, for a filter.
func (r *Repairs) ClearPending(ctx context.Context, ledger, account string) (protocol.Result, error) {
	fields := r.catalog.Fields
	return r.accounts.Update(ctx, ledger, account,
		bson.D{{Key: "$or", Value: bson.A{
			bson.D{{Key: fields.Pending, Value: bson.D{{Key: "$type", Value: "array"}, {Key: "$size", Value: 0}}}},
			bson.D{{Key: fields.Pending, Value: bson.D{
				{Key: "$type", Value: "null"}, {Key: "$not", Value: bson.D{{Key: "$type", Value: "array"}}},
			}}},
		}}},
		bson.D{
			{Key: "$set", Value: bson.D{{Key: fields.Pending, Value: bson.D{}}}},
			{Key: "$currentDate", Value: bson.D{{Key: fields.Fence, Value: bson.D{{Key: "$type", Value: "timestamp"}}}}},
		})
}

// SetOpen makes a transfer's flag open what its state says, if it still is in the state
// in which it was read.
// The result is NotMatched if it isn't.
func (r *Repairs) SetOpen(ctx context.Context, t document.Transfer) (protocol.Result, error) {
	update := bson.D{{Key: "$set", Value: bson.D{{Key: "open", Value: true}}}}
	if t.State.Final() {
		update = bson.D{{Key: "$unset", Value: bson.D{{Key: "open", Value: ""}}}}
	}
	filter := bson.D{{Key: "_id", Value: t.ID}, {Key: "state", Value: t.State}}
	return wire.UpdateOne(wire.Detached(ctx), r.catalog.Transfers, filter, update)
}
