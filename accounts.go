package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/accounts"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
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
//   - ErrAmountKind, with an ID and a Ledger: that document is no account, or its _id is
//     too long for an account's ID, and the rest follows.
//     Its ID can be the Beyond of another walk.
//     An operator sets it right: see [Coordinator.Audit].
//     Documents whose _id is empty, or of another kind than [WithAccountIDs] says, are
//     left out; the audit finds them.
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
	if w.after, err = document.IDCodec(c.settings.ids).Place(q.Beyond); err != nil {
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
//     Call again: the same change, made twice, is the same, but for what others have
//     changed between.
//   - all others: as [Coordinator.OpenAccount].
//     Where other processes change the same account all the time, one of them says after
//     30 s that they were first each time.
//     Calls of one process take turns.
//
// Of several calls at once each is whole, and the last one counts.
// A call makes its change once.
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
	u.judge = func(_ context.Context, view document.View) (done bool, err error) {
		err = u.check(view)
		return err != nil, err
	}
	var shown document.Account
	err = l.inTurn(ctx, id, func(ctx context.Context) (t try) {
		if t = u.once(ctx); t.result == protocol.Applied {
			shown, t = u.show(ctx)
		}
		return t
	})
	if err != nil {
		return Account{}, err
	}
	return l.account(shown, decodeMetadata(shown.Metadata)), nil
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
		return planned, invalid("account %s would have a Floor and NoFloor: give one of them", words.Quote(id))
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

// turnPatience is how long a caller waits for its turn to change an account.
// Where a server is away, each of those who wait has to learn that in its own time.
const turnPatience = 5 * time.Second

// inTurn is untilKnown for one of those at a time who change the account in this process.
// Without turns each would have to find a moment in which nobody else changes it.
func (l *Ledger) inTurn(ctx context.Context, id string, write func(context.Context) try) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	c := l.coordinator
	turn := c.newTurn(&c.changed, l.name+" "+document.IDCodec(c.settings.ids).Canonical(id))
	defer turn.leave()
	if !turn.isFree() {
		patient, cancel := context.WithTimeout(ctx, turnPatience)
		_ = turn.await(patient)
		cancel()
	}
	return l.untilKnown(ctx, id, write)
}

// updating is a change of an account under way.
type updating struct {
	ledger *Ledger
	id     string
	change accounts.Change
	// judge reports whether a document that was read answers the call.
	judge func(context.Context, document.View) (done bool, err error)
	// stands reports whether a document shows what is wanted already; nil: it never does.
	stands func(document.View) bool
	begun  bool             // it was tried by a majority read
	sent   []protocol.Fence // the new fences of what was sent so far
	unsure *protocol.Fence  // what the latest change expected whose answer is not known
	made   *document.View   // as it is after the change, once that is known to be stored
}

// errChangedSince means that nothing shows any more whether a change was made.
var errChangedSince = errors.New("others have changed it since")

// once reads the account's fence and changes the account where it still has that.
// A fence that was sent shows that the account was changed, and the answer lost.
// The result is Applied once the change is known to be stored.
//
// Most often a majority read does for that: the write makes sure of what it has shown.
// Whatever speaks against the change needs a deciding read, which may take 100 ms.
//
// The change takes effect once.
// Where the answer is lost, it is made again only while the account has the fence that it
// had before:
//
//  1. A unfreezes alice, and the answer is lost.
//  2. B sees that she is not frozen, freezes her for good, and is answered.
//  3. A finds B's fence. To unfreeze her again would undo what B was answered.
func (u *updating) once(ctx context.Context) try {
	if u.made != nil {
		return try{true, protocol.Applied, nil}
	}
	stored := u.ledger.coordinator.accounts
	if !u.begun {
		u.begun = true
		if t := u.guess(ctx); t.result != protocol.NotMatched {
			return t
		}
	}
	view, err := stored.ReadDeciding(ctx, u.ledger.name, u.id)
	switch {
	case err != nil:
		return try{false, protocol.NotSent, err}
	case !view.Found():
		return try{true, protocol.Failed, ErrAccountNotFound}
	case slices.Contains(u.sent, view.Fence()):
		u.made = &view
		return try{true, protocol.Applied, nil}
	}
	if done, err := u.judge(ctx, view); done || err != nil {
		return try{done, protocol.NotMatched, err}
	}
	if u.unsure != nil && view.Fence() != *u.unsure && (u.stands == nil || !u.stands(view)) {
		return try{true, protocol.Unknown, withCause(ErrInDoubt, errChangedSince)}
	}
	return u.write(ctx, view.Fence())
}

// guess changes the account by a majority read.
// Where anything speaks against that the result is NotMatched, and nothing is known.
func (u *updating) guess(ctx context.Context) try {
	view, err := u.ledger.coordinator.accounts.Read(ctx, u.ledger.name, u.id)
	if err != nil || !view.Found() {
		return try{result: protocol.NotMatched}
	}
	if done, err := u.judge(ctx, view); done || err != nil {
		return try{result: protocol.NotMatched}
	}
	return u.write(ctx, view.Fence())
}

// write changes the account where it has the given fence.
func (u *updating) write(ctx context.Context, fence protocol.Fence) try {
	token := bson.NewObjectID()
	u.sent = append(u.sent, document.FenceOfToken(token))
	after, result, err := u.ledger.coordinator.accounts.Change(ctx, u.ledger.name, u.id, fence, u.change, token)
	if result == protocol.Applied {
		u.made = &after
	}
	if result == protocol.Unknown {
		u.unsure = &fence
	}
	return try{result == protocol.Applied, result, err}
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

// show reads what is in flight on the account as it was read after the change.
// The change is stored: it is not made again, and a failure leaves doubt.
func (u *updating) show(ctx context.Context) (document.Account, try) {
	account, answered, err := u.ledger.coordinator.accounts.Shown(ctx, *u.made)
	switch {
	case err == nil:
		return account, try{answered, protocol.Unknown, nil}
	case answered:
		return account, try{true, protocol.Unknown, withCause(ErrInDoubt, fmt.Errorf("%w: %w", ErrAmountKind, err))}
	case lasting(err):
		return account, try{true, protocol.Unknown, withCause(ErrInDoubt, err)}
	}
	return account, try{false, protocol.Unknown, err}
}
