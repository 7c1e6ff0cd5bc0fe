package transfer

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/accounts"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// Account is a document with a balance.
// A document {_id, balance} is a complete account, even if this library has not opened
// it.
type Account struct {
	// ID is the account's ID, 1 to 255 bytes of UTF-8.
	ID string
	// Ledger is the name of the account's ledger.
	// Defaults to "", the default ledger.
	Ledger string
	// Balance is the money on the account that is free: what is held, or on its way to
	// others, is off it already.
	// As read it equals Available, while statements and [Coordinator.BalanceAt] count the
	// money as Posted does.
	// Its kind is the kind of all amounts that are moved: a decimal such as 0.00 opens an
	// account for decimals.
	// Defaults to no units.
	Balance Amount
	// Floor is the least balance that a debit may leave.
	// Defaults to 0.
	Floor Amount
	// NoFloor says that the balance may be as low as a balance can be.
	// It is for an account that stands for the outside world.
	// Defaults to false: Floor is the limit.
	NoFloor bool
	// Currency is what transfers on the account must name.
	// Defaults to "": they name none.
	Currency string
	// Metadata is the user's own.
	// OpenAccount stores it, and UpdateAccount replaces it.
	// It is read back as the driver decodes it, also from OpenAccount: see
	// [Request].Metadata.
	// It has at most 65,536 bytes, and docs/limits.md says which keys.
	// Defaults to nil: none.
	Metadata map[string]any
	// Frozen says that no new transfer can touch the account: it is refused with
	// ErrAccountFrozen.
	// Transfers that are under way are finished: see [Coordinator.UpdateAccount].
	// A frozen account may have any balance, and can be closed when it is empty.
	// Defaults to false.
	Frozen bool

	// Closed says that no transfer can touch the account.
	// It is for reading only, like the fields after it: OpenAccount refuses an account
	// that is Closed, and takes no notice of the others.
	Closed bool
	// Available is Balance, from which debits in flight are subtracted already.
	// What can be spent is Available less Floor.
	Available Amount
	// Posted is Available and the debits in flight.
	// A debit is in flight until its transfer is committed.
	Posted Amount
	// Incoming are the credits in flight.
	// A credit is in flight until it is paid in.
	Incoming Amount
}

// OpenAccount creates an account in the default ledger, with the money that Balance says:
// nothing is taken from other accounts.
//
// Don't open an account anew whose document was deleted.
// A transfer may wait for it (ErrUnsettled): the new document lacks its marker, and the
// transfer would end without paying.
// docs/operations.md has the runbook.
//
//   - nil: it is open, by this call.
//   - ErrAccountExists: there is one with this ID.
//     Neither this error nor GetAccount says who has opened it.
//     If two callers may choose the same ID, let each store its name in Metadata.
//   - ErrInvalidRequest: the text says what is malformed; nothing was stored.
//   - ErrUnwritable: a validator or an index of yours refuses the document, and would
//     again; nothing was stored.
//   - ErrInDoubt: call again.
//     ErrAccountExists then means that the account is there.
//     Where ErrInDoubt wraps it, there is one, and this call may have opened it.
//   - the context's own error, ErrClosed, ErrUnauthorized, ErrUnsupportedDeployment, a
//     server that can't be reached for 30 s: this call has stored nothing.
//     Call again, once the cause is gone.
func (c *Coordinator) OpenAccount(ctx context.Context, a Account) (Account, error) {
	return c.defaultLedger().Open(ctx, a)
}

// GetAccount returns an account of the default ledger as a majority of the servers has it
// stored.
// While a primary is being replaced the answer may be stale.
//
//   - nil: the account.
//   - ErrAccountNotFound: there is no such account.
//   - ErrAmountKind: there is a document, and its balance is no exact number.
//     An operator sets it right: see [Coordinator.Audit].
//   - ErrInvalidRequest: this can't be an account's ID.
//   - all others: as [Coordinator.Get].
func (c *Coordinator) GetAccount(ctx context.Context, id string) (Account, error) {
	return c.defaultLedger().Get(ctx, id)
}

// CloseAccount closes an account of the default ledger, so that no transfer can touch it.
// A transfer that is committed, and was not cleared from the account yet, is waited for:
// that takes some hundred milliseconds.
//
//   - nil: it is closed, by this call or before.
//   - ErrAccountNotEmpty: there is money in it, or a debt: move that first.
//   - ErrAccountBusy: a transfer is in flight on it, such as a hold.
//     Call again once that is decided.
//   - ErrAccountNotFound: there is no such account.
//   - ErrAmountKind: its balance, or its floor, is no exact number.
//   - ErrInvalidRequest: this can't be an account's ID.
//   - ErrInDoubt: it is not known whether it was closed. Call again.
//     Where ErrInDoubt wraps another error, that was found after an answer was lost.
//   - all others: as [Coordinator.OpenAccount].
//
// A call closes the account once.
// A message of a call that has returned closes nothing once a later call has returned:
// see [Coordinator.UpdateAccount].
func (c *Coordinator) CloseAccount(ctx context.Context, id string) error {
	return c.defaultLedger().Close(ctx, id)
}

// ReopenAccount opens a closed account of the default ledger again.
//
//   - nil: it is open, by this call or before.
//   - all others: as [Coordinator.CloseAccount], without ErrAccountNotEmpty and
//     ErrAccountBusy.
func (c *Coordinator) ReopenAccount(ctx context.Context, id string) error {
	return c.defaultLedger().Reopen(ctx, id)
}

// Ledger is a collection of accounts.
type Ledger struct {
	coordinator *Coordinator
	name        string
}

// Ledger returns the ledger that was registered by [WithLedger], the default one for "".
// The error is ErrInvalidRequest for an unknown name.
func (c *Coordinator) Ledger(name string) (*Ledger, error) {
	if !c.catalog.HasLedger(name) {
		return nil, invalid("the ledger %s is not registered: see WithLedger", words.Quote(name))
	}
	return &Ledger{c, name}, nil
}

func (c *Coordinator) defaultLedger() *Ledger { return &Ledger{coordinator: c} }

// Open creates an account in this ledger: see [Coordinator.OpenAccount].
func (l *Ledger) Open(ctx context.Context, a Account) (Account, error) {
	stored, err := l.plan(a)
	if err != nil {
		return Account{}, err
	}
	token := bson.NewObjectID() // of this account's fence, and of this very call
	err = l.untilKnown(ctx, a.ID, func(ctx context.Context) try {
		result, err := l.coordinator.accounts.Open(ctx, l.name, stored, token)
		if result != protocol.NotMatched {
			return try{result == protocol.Applied, result, err}
		}
		status, err := l.coordinator.accounts.Status(ctx, l.name, a.ID)
		switch {
		case err != nil || !status.Found:
			return try{false, protocol.Unknown, err}
		case status.OpenedWith(token):
			return try{true, protocol.Applied, nil}
		}
		return try{true, protocol.Failed, ErrAccountExists}
	})
	if err != nil {
		return Account{}, err
	}
	return l.account(stored, decodeMetadata(stored.Metadata)), nil
}

// plan checks an account to be opened.
func (l *Ledger) plan(a Account) (document.Account, error) {
	stored := document.Account{
		ID: document.IDCodec(l.coordinator.settings.ids).Canonical(a.ID), Balance: a.Balance.exact, Floor: a.Floor.exact, NoFloor: a.NoFloor,
		Currency: a.Currency, Frozen: a.Frozen,
		Reserved: money.Zero(a.Balance.exact.Kind()), Incoming: money.Zero(a.Balance.exact.Kind()),
	}
	if err := cmp.Or(l.checkID(a.ID), checkCurrency(a.Currency)); err != nil {
		return stored, err
	}
	kind := stored.Balance.Kind()
	floored := stored.Floor.Sign() != 0
	switch limit := money.MaxBalance(kind); {
	case a.Ledger != "" && a.Ledger != l.name:
		return stored, invalid("account %s is meant for ledger %s: open it by its Ledger",
			words.Quote(a.ID), words.Quote(a.Ledger))
	case !stored.Balance.Within(limit) || !stored.Floor.Within(limit):
		return stored, invalid("balance and floor of account %s must lie within ±%s", words.Quote(a.ID), limit)
	case stored.Balance.Places() > money.MaxPlaces || stored.Floor.Places() > money.MaxPlaces:
		return stored, invalid("balance and floor of account %s have at most %d digits behind the point",
			words.Quote(a.ID), money.MaxPlaces)
	case a.Closed:
		return stored, invalid("account %s can't be opened as a closed one: open it, and close it by CloseAccount",
			words.Quote(a.ID))
	case a.NoFloor && floored:
		return stored, invalid("account %s has a Floor and NoFloor: give one of them", words.Quote(a.ID))
	case floored && stored.Floor.Kind() != kind:
		return stored, invalid("the floor of account %s is not of its balance's kind", words.Quote(a.ID))
	case !a.NoFloor && stored.Balance.Cmp(stored.Floor) < 0:
		return stored, invalid("the balance of account %s is below its floor", words.Quote(a.ID))
	}
	var err error
	stored.Metadata, err = encodeMetadata(a.Metadata)
	return stored, err
}

// Get returns an account of this ledger: see [Coordinator.GetAccount].
func (l *Ledger) Get(ctx context.Context, id string) (Account, error) {
	if err := l.checkID(id); err != nil {
		return Account{}, err
	}
	if err := l.coordinator.readyToRead(ctx, document.Address{Name: l.name}); err != nil {
		return Account{}, err
	}
	leave, err := l.coordinator.admitReader(ctx, l.coordinator.catalog.Ledgers[l.name].Cluster())
	if err != nil {
		return Account{}, aboutAccount(id, err)
	}
	defer leave()
	var stored document.Account
	var found bool
	err = l.coordinator.read(ctx, func(ctx context.Context) (done bool, err error) {
		stored, found, err = l.coordinator.accounts.Get(ctx, l.name, id)
		return err == nil || found, err
	})
	switch {
	case err != nil && found:
		return Account{}, aboutAccount(id, fmt.Errorf("%w: %w", ErrAmountKind, err))
	case err != nil:
		return Account{}, aboutAccount(id, err)
	case !found:
		return Account{}, aboutAccount(id, ErrAccountNotFound)
	}
	return l.account(stored, decodeMetadata(stored.Metadata)), nil
}

// account returns a stored account as the API shows it.
func (l *Ledger) account(stored document.Account, metadata map[string]any) Account {
	posted, err := stored.Balance.Add(stored.Reserved)
	if err != nil { // another program stored a balance that has no room for what is in flight
		posted = stored.Balance
	}
	floor := stored.Floor
	if floor.Sign() == 0 { // by default it is of units
		floor = money.Zero(stored.Balance.Kind())
	}
	return Account{
		ID: stored.ID, Ledger: l.name, Balance: Amount{stored.Balance}, Floor: Amount{floor}, NoFloor: stored.NoFloor,
		Currency: stored.Currency, Metadata: metadata, Frozen: stored.Frozen, Closed: stored.Closed,
		Available: Amount{stored.Balance}, Posted: Amount{posted}, Incoming: Amount{stored.Incoming},
	}
}

// Close closes an account of this ledger: see [Coordinator.CloseAccount].
func (l *Ledger) Close(ctx context.Context, id string) error {
	closing := closing{coordinator: l.coordinator, until: l.coordinator.now().Add(clearPatience)}
	defer closing.end()
	return l.setClosed(ctx, id, true, closing.judge)
}

// Reopen opens a closed account of this ledger again: see [Coordinator.ReopenAccount].
func (l *Ledger) Reopen(ctx context.Context, id string) error {
	return l.setClosed(ctx, id, false, func(_ context.Context, status accounts.Status) (done bool, err error) {
		switch {
		case !status.Malformed:
			return false, nil
		case status.Closed:
			return true, ErrAmountKind
		}
		return true, nil
	})
}

// setClosed closes or reopens an account, unless its status says that there is an answer
// already.
// It writes also where the account is closed, or open, already: see [accounts.Change].
func (l *Ledger) setClosed(
	ctx context.Context, id string, closed bool, judge func(context.Context, accounts.Status) (done bool, err error),
) error {
	if err := l.checkID(id); err != nil {
		return err
	}
	u := updating{ledger: l, id: id, change: accounts.Change{Closed: &closed}}
	u.stands = func(view document.View) bool { return view.Closed() == closed }
	u.judge = func(ctx context.Context, view document.View) (done bool, err error) {
		return judge(ctx, accounts.StatusOf(view))
	}
	return l.inTurn(ctx, id, u.once)
}

// untilKnown repeats a write to an account until it is done, or the server refuses it, or
// the call is given up.
//
// What speaks against the write says nothing of an earlier one whose answer was lost:
// that may have been carried out, or may be still.
// So after such a one there is doubt.
func (l *Ledger) untilKnown(ctx context.Context, id string, write func(context.Context) try) error {
	if err := l.coordinator.ready(ctx, document.Address{Name: l.name}); err != nil {
		return err
	}
	end, err := l.coordinator.begin()
	if err != nil {
		return aboutAccount(id, err)
	}
	defer end()
	var tries retry
	for tries.next(ctx, l.coordinator) {
		limited, cancel := l.coordinator.store.WithLimit(ctx, wire.CommandLimit)
		t := write(limited)
		cancel()
		switch {
		case t.done && t.err == nil:
			return nil
		case t.done:
			return aboutAccount(id, tries.doubt(t.err))
		case t.result == protocol.Failed && denied(t.err):
			return aboutAccount(id, tries.doubt(asUnauthorized(t.err)))
		case t.result == protocol.Failed:
			return aboutAccount(id, tries.doubt(withCause(ErrUnwritable, t.err)))
		}
		tries.record(t)
	}
	return aboutAccount(id, tries.err(nil))
}

func (l *Ledger) checkID(id string) error {
	if _, err := document.IDCodec(l.coordinator.settings.ids).Encode(id); err != nil {
		return invalid("account: %w", err)
	}
	return nil
}

// clearPatience is for how long CloseAccount waits for the markers of committed transfers
// to go.
// An executor that is alive removes them within a quarter of a second.
const clearPatience = 5 * time.Second

// closing is a CloseAccount under way.
type closing struct {
	coordinator *Coordinator
	until       time.Time
	hurried     map[string]func() // by transfer; they are called at the end
}

// judge judges an account that is to be closed.
//
// The marker of a payer stays for a while after the transfer has answered.
//
//  1. A transfer moves all of alice's money away, and answers.
//  2. Its caller closes alice, and is refused because of a transfer that is over.
//
// So where all that is in flight is committed, it is waited for.
// Where there is money, nothing is waited for: waiting takes none away.
func (c *closing) judge(ctx context.Context, status accounts.Status) (done bool, err error) {
	switch {
	case status.Closed: // there is nothing in it, unless other code has written to it
		return status.Malformed || status.Markers > 0 || !status.Empty, nil
	case status.Malformed:
		return true, ErrAmountKind
	case status.Markers > 0:
		committed, err := c.coordinator.accounts.OnlyCommitted(ctx, status)
		switch {
		case err != nil:
			return false, err
		case !committed || !c.coordinator.now().Before(c.until):
			return true, ErrAccountBusy
		case status.Empty:
			c.hurry(status.InFlight)
			return false, nil
		}
	}
	if !status.Empty {
		return true, ErrAccountNotEmpty
	}
	return false, nil
}

// hurry has what is deferred of the transfers sent at once.
func (c *closing) hurry(ids []string) {
	for _, id := range ids {
		if _, known := c.hurried[id]; known {
			continue
		}
		if c.hurried == nil {
			c.hurried = map[string]func(){}
		}
		c.hurried[id] = c.coordinator.hurryUp(id)
	}
}

// end says that nothing has to be hurried up any more.
func (c *closing) end() {
	for _, done := range c.hurried {
		done()
	}
}
