package transfer

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/accounts"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/words"
)

// AccountChange is what [Coordinator.UpdateAccount] changes of an account.
// A field that is nil leaves a thing as it is.
type AccountChange struct {
	// Floor is the new floor, of the balance's kind.
	// It may lie above the balance: then nothing can be debited until there is more.
	Floor *Amount
	// NoFloor says whether the balance may be as low as a balance can be.
	// With false, and without a Floor, the floor is 0.
	// With true there can't be a Floor.
	NoFloor *bool
	// Frozen freezes the account, or unfreezes it.
	Frozen *bool
	// Metadata replaces the whole of the metadata.
	// An empty map removes it.
	Metadata map[string]any
}

// UpdateAccount changes an account of the default ledger, also a closed one, and returns
// it as it is then.
//
// A change counts for each transfer that is prepared on the account after it, by whatever
// process: a floor that was raised for each debit, and Frozen for each transfer.
// What was prepared before is not asked again: a debit in flight may leave less than the
// new floor, and what is due on a frozen account is paid into it and taken from it.
// That goes for transfers that are committed or rolled back, and for a hold, which may be
// posted.
//
//   - nil: the account as it is after the change.
//   - ErrInvalidRequest: the change is malformed; nothing has changed.
//   - ErrAccountNotFound: there is no such account.
//   - ErrAmountKind: the floor is not of the balance's kind, or the document is no
//     account; nothing has changed.
//   - ErrInDoubt: it is not known whether the account was changed.
//     Call again: the same change, made twice, is the same.
//   - all others: as [Coordinator.OpenAccount].
//
// Of several calls at once each is whole, and the last one counts.
// A message of a call that has returned changes nothing once a later call has returned,
// however late it arrives.
func (c *Coordinator) UpdateAccount(ctx context.Context, id string, change AccountChange) (Account, error) {
	return c.defaultLedger().Update(ctx, id, change)
}

// Update changes an account of this ledger: see [Coordinator.UpdateAccount].
func (l *Ledger) Update(ctx context.Context, id string, change AccountChange) (Account, error) {
	planned, err := change.plan(id)
	if err == nil {
		err = l.checkID(id)
	}
	if err != nil {
		return Account{}, err
	}
	if change.empty() {
		return l.Get(ctx, id)
	}
	u := updating{ledger: l, id: id, change: planned}
	if err := l.untilKnown(ctx, id, u.try); err != nil {
		return Account{}, err
	}
	return l.account(u.account, decodeMetadata(u.account.Metadata)), nil
}

// empty reports whether the change leaves everything as it is.
func (c AccountChange) empty() bool {
	return c.Floor == nil && c.NoFloor == nil && c.Frozen == nil && c.Metadata == nil
}

// plan checks a change.
func (c AccountChange) plan(id string) (accounts.Change, error) {
	planned := accounts.Change{Frozen: c.Frozen, Replaces: c.Metadata != nil}
	switch {
	case c.NoFloor != nil && *c.NoFloor && c.Floor != nil:
		return planned, invalid("account %s would have a floor and none", words.Quote(id))
	case c.NoFloor != nil && *c.NoFloor:
		planned.NoFloor = true
	case c.Floor != nil:
		floor := c.Floor.exact
		planned.Floor = &floor
	case c.NoFloor != nil:
		planned.Floor = &money.Amount{}
	}
	if floor := planned.Floor; floor != nil {
		if err := checkFloor(id, *floor); err != nil {
			return planned, err
		}
	}
	var err error
	planned.Metadata, err = encodeMetadata(c.Metadata)
	return planned, err
}

// checkFloor refuses a floor that is beyond what can be stored.
func checkFloor(id string, floor money.Amount) error {
	switch limit := money.MaxBalance(floor.Kind()); {
	case !floor.Within(limit):
		return invalid("the floor of account %s must lie within ±%s", words.Quote(id), limit)
	case floor.Places() > money.MaxPlaces:
		return invalid("the floor of account %s has at most %d digits behind the point", words.Quote(id), money.MaxPlaces)
	}
	return nil
}

// updating is an UpdateAccount under way.
type updating struct {
	ledger  *Ledger
	id      string
	change  accounts.Change
	sent    []protocol.Fence // the new fences of what was sent so far
	account document.Account // as it is after the change
}

// try reads the account's fence and changes the account where it still has that.
// A fence that was sent shows that the account was changed, and the answer lost.
// Otherwise the change is made again, over whatever others have done meanwhile.
func (u *updating) try(ctx context.Context) try {
	stored := u.ledger.coordinator.accounts
	view, err := stored.ReadDeciding(ctx, u.ledger.name, u.id)
	switch {
	case err != nil:
		return try{false, protocol.NotSent, err}
	case !view.Found():
		return try{true, protocol.Failed, ErrAccountNotFound}
	case slices.Contains(u.sent, view.Fence()):
		return u.changed(ctx, view)
	}
	if err := u.check(view); err != nil {
		return try{true, protocol.Failed, err}
	}
	token := bson.NewObjectID()
	u.sent = append(u.sent, document.FenceOfToken(token))
	after, result, err := stored.Change(ctx, u.ledger.name, u.id, view.Fence(), u.change, token)
	if result != protocol.Applied {
		return try{false, result, err}
	}
	return u.changed(ctx, after)
}

// check refuses a document that is no account, or whose balance is of another kind than
// the floor.
func (u *updating) check(view document.View) error {
	account, err := view.Account(document.IDCodec(u.ledger.coordinator.settings.ids))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAmountKind, err)
	}
	if !u.change.Suits(account.Balance.Kind()) {
		return fmt.Errorf("%w: the floor is of %s, and the balance of %s",
			ErrAmountKind, document.KindOf(*u.change.Floor), document.KindOf(account.Balance))
	}
	return nil
}

// changed answers with the account as it was read after the change.
// The change is stored, so that a failure to read what is in flight leaves doubt.
func (u *updating) changed(ctx context.Context, view document.View) try {
	account, answered, err := u.ledger.coordinator.accounts.Shown(ctx, view)
	switch {
	case err == nil:
		u.account = account
	case answered:
		err = withCause(ErrInDoubt, fmt.Errorf("%w: %w", ErrAmountKind, err))
	case lasting(err):
		return try{true, protocol.Unknown, withCause(ErrInDoubt, err)}
	}
	return try{answered, protocol.Unknown, err}
}
