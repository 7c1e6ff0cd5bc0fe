package accounts

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Change is what is to be changed of an account. Its zero value changes nothing.
type Change struct {
	// Floor is the new floor. nil leaves the floor as it is, unless NoFloor is set.
	Floor *money.Amount
	// NoFloor says that the account has no floor from now on.
	NoFloor bool
	// Frozen says whether the account is frozen. nil leaves it as it is.
	Frozen *bool
	// Closed says whether the account is closed. nil leaves it as it is.
	// An account is closed only where it has no marker and no money. It may have done
	// marks.
	Closed *bool
	// Metadata replaces the metadata where Replaces is set. nil removes it then.
	Metadata bson.Raw
	// Replaces says that the metadata is replaced.
	Replaces bool
}

// Suits reports whether the floor can stand under balances of a kind.
func (c Change) Suits(kind money.Kind) bool {
	return c.Floor == nil || c.Floor.Sign() == 0 || c.Floor.Kind() == kind
}

// kinds returns the kinds of balances that the floor can stand under.
func (c Change) kinds() []money.Kind {
	if c.Floor == nil || c.Floor.Sign() == 0 {
		return []money.Kind{money.Whole, money.Decimal}
	}
	return []money.Kind{c.Floor.Kind()}
}

// storedFloor returns the floor as it is stored. A floor of zero is a whole number, which
// stands under balances of both kinds. It is stored, although an account without one has
// the same floor: so an audit sees that somebody has set it.
func (c Change) storedFloor() any {
	switch {
	case c.NoFloor:
		return document.NoFloor()
	case c.Floor.Sign() == 0:
		return int64(0)
	}
	return *c.Floor
}

// Change changes an account that has the given fence, and a balance of the floor's kind,
// and returns its document as it is then. The token becomes the new fence.
//
// The write expects the fence, and replaces it, so that none that comes late applies:
//
//  1. A unfreezes alice. The message hangs in the network, and A gives up.
//  2. B freezes alice, for good, and is answered.
//  3. A's message arrives. It would unfreeze alice. It names the fence from before B.
//
// So it is written also where the account is as it should be already.
//
// A new fence costs those who have pinned the old one a look, as after a takeover.
func (a *Accounts) Change(
	ctx context.Context, ledger, id string, fence protocol.Fence, change Change, token bson.ObjectID,
) (document.View, protocol.Result, error) {
	key, err := a.catalog.IDs.Encode(id)
	if err != nil {
		return document.View{}, protocol.NotSent, err
	}
	filter := append(bson.D{{Key: "_id", Value: key}}, a.changeable(fence, change)...)
	from := a.catalog.Ledgers[ledger].Commands
	after, result, err := wire.FindAndModify(wire.Detached(ctx), from, filter, change.update(a.catalog.Fields, token))
	return a.catalog.Fields.View(after), result, err
}

// changeable requires a fence, a balance of a kind that suits the change, and that the
// markers are a map or missing. An account that is to be closed has nothing.
func (a *Accounts) changeable(fence protocol.Fence, change Change) bson.D {
	fields := a.catalog.Fields
	m := wire.NewMessage(512)
	document.FenceIs(m, fields.Fence, fence)
	fields.Legible(m, true)
	m.End()
	var condition bson.D
	for _, e := range wire.Elements(m.Data) {
		condition = append(condition, bson.E{Key: e.Key(), Value: e.Value()})
	}
	balance := bson.D{
		{Key: "$type", Value: document.NumberTypes(change.kinds()...)},
		{Key: "$not", Value: bson.D{{Key: "$type", Value: "array"}}},
	}
	if change.Closed != nil && *change.Closed {
		balance = append(balance, bson.E{Key: "$eq", Value: int64(0)})
		condition = append(condition, bson.E{Key: "$expr", Value: document.NothingReserved(fields.Pending)})
	}
	return append(condition, bson.E{Key: fields.Balance, Value: balance})
}

// update returns the update of a change.
func (c Change) update(fields document.Fields, token bson.ObjectID) bson.D {
	set, unset := bson.D{{Key: fields.Fence, Value: token}}, bson.D{}
	if c.NoFloor || c.Floor != nil {
		set = append(set, bson.E{Key: fields.Floor, Value: c.storedFloor()})
	}
	for name, flag := range map[string]*bool{fields.Frozen: c.Frozen, fields.Closed: c.Closed} {
		switch {
		case flag != nil && *flag:
			set = append(set, bson.E{Key: name, Value: true})
		case flag != nil:
			unset = append(unset, bson.E{Key: name, Value: ""})
		}
	}
	switch {
	case c.Replaces && c.Metadata != nil:
		set = append(set, bson.E{Key: "metadata", Value: c.Metadata})
	case c.Replaces:
		unset = append(unset, bson.E{Key: "metadata", Value: ""})
	}
	update := bson.D{{Key: "$set", Value: set}}
	if len(unset) > 0 {
		update = append(update, bson.E{Key: "$unset", Value: unset})
	}
	return update
}

// Shown returns the account of a document that was read. Its transfers are read after it,
// as in Get where they are on another cluster. It is not answered if they can't be read.
func (a *Accounts) Shown(ctx context.Context, view document.View) (account document.Account, answered bool, err error) {
	account, err = view.Account(a.catalog.IDs)
	if err != nil || len(account.Debits) == 0 {
		return account, true, err
	}
	answered, err = a.conclude(wire.Detached(ctx), &account)
	return account, answered, err
}
