package transfer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/accounts"
	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/repair"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// ErrNotRepairable means that what was to be repaired is not, or no longer, as the call
// described it.
// Nothing was changed: audit again.
var ErrNotRepairable = errors.New("not as it was audited (audit again)")

// MarkerDecision says what becomes of the balance when a marker is removed.
type MarkerDecision uint8

const (
	// KeepBalance leaves the balance as it is.
	// For a debit that means: the money has reached the payees.
	// For a credit: it has arrived already, or never will.
	KeepBalance MarkerDecision = iota + 1
	// PayIn adds the marker's amount to the balance.
	// For a debit that means: the money has gone nowhere, and is given back.
	// For a credit: it was taken from its account, and arrives now.
	PayIn
)

// MarkerRepair says which marker to remove, as the audit's [Finding] describes it.
type MarkerRepair struct {
	// Ledger is that of the account.
	// Defaults to "", the default ledger.
	Ledger string
	// Account is the ID of the account that has the marker.
	Account string
	// TransferID is the transfer that has left the marker.
	TransferID string
	// Amount is the marker's, with its sign.
	Amount Amount
	// Decision says what becomes of the balance.
	Decision MarkerDecision
	// Reason is stored for later readers, 4 KB at most.
	// Defaults to "".
	Reason string
}

// RepairMarker removes a marker that no transfer will ever settle: that of a transfer
// which does not exist, or is final, or does not touch this account under any name of its
// ledger.
// The stored documents do not show whether the marker's amount belongs to this account:
// find out, and decide.
// A done mark says that its amount was paid in: it is removed by KeepBalance, where there
// is no marker of the transfer as well.
// Total and InTransit of the audit, and the sum that they should have, show how much is
// missing or too much in all.
//
// A transfer that doesn't exist gets a document in its place, in StateFail with the
// failure code repaired, which says what is to be done with this marker, and why.
// From then on the ID is taken, and a request with it gets ErrIDConflict.
// The marker is removed only while it is there with exactly this amount.
//
//   - nil: it was removed, by this call.
//   - ErrNotRepairable: it is not there, or has another amount, or its transfer is under
//     way and will settle it; or it is a done mark, and PayIn would pay a second time.
//     Or the document in the place of a lost transfer says the other decision about this
//     marker: it stands, and only it is carried out.
//     This call has stored nothing, unless ErrInDoubt comes with it: then the marker is
//     gone, by this call or by somebody else.
//   - ErrAmountKind, ErrOverflow: the amount can't be added to the balance.
//   - ErrAccountNotFound, ErrInvalidRequest, ErrClosed.
//   - ErrInDoubt: the ID of a lost transfer may be taken, and the marker removed.
//     Audit again, and repeat the call if the marker is there.
//
// Why this can't move money wrongly, no matter who else is at work:
//
//   - A request with the ID of a lost transfer arrives after the marker was read, and
//     takes the marker for its own preparation.
//     So the ID is taken before the marker is touched, by an insert: one of the two comes
//     first.
//     If the request does, there is a transfer under way, and nothing is repaired.
//   - A prepare of the lost or final transfer is still on its way.
//     It requires that there is neither a marker nor a done mark, so it is refused as
//     long as one of them stands.
//     The update that removes it replaces the fence, so the prepare is refused from then
//     on.
//   - A payment, settle or undo is still on its way, or a write that clears a done mark.
//     Both require the entry that they remove, so only one of them finds it.
//     A payment that comes first leaves its done mark, and nothing more is paid in.
//   - The repair itself is sent again because its answer was lost, or by another
//     operator.
//     It requires the marker, which never comes back.
func (c *Coordinator) RepairMarker(ctx context.Context, r MarkerRepair) error {
	if err := c.checkRepair(r); err != nil {
		return err
	}
	l := &Ledger{coordinator: c, name: r.Ledger}
	repair := markerRepair{
		MarkerRepair: r, coordinator: c, token: bson.NewObjectID(), pay: money.Zero(r.Amount.exact.Kind()),
	}
	if r.Decision == PayIn {
		repair.pay = r.Amount.exact
		if repair.pay.Sign() < 0 {
			repair.pay = repair.pay.Neg()
		}
	}
	err := l.untilKnown(ctx, r.Account, repair.attempt)
	if err == nil {
		c.log.LogAttrs(ctx, slog.LevelWarn, "a marker was removed by hand",
			slog.String(words.KeyLedger, words.Clip(r.Ledger)),
			slog.String(words.KeyAccount, words.Clip(r.Account)),
			slog.String(words.KeyTransfer, words.Clip(r.TransferID)))
	}
	return err
}

func (c *Coordinator) checkRepair(r MarkerRepair) error {
	if !c.catalog.HasLedger(r.Ledger) {
		return invalid("the ledger %s is not registered: see WithLedger", words.Quote(r.Ledger))
	}
	if err := document.CheckID(r.TransferID); err != nil {
		return invalid("transfer: %w", err)
	}
	if err := c.checkAccount(r.Account); err != nil {
		return invalid("account: %w", err)
	}
	amount := r.Amount.exact
	switch {
	case r.Decision != KeepBalance && r.Decision != PayIn:
		return invalid("a repair wants a decision: KeepBalance or PayIn")
	case len(r.Reason) > maxReasonBytes || !utf8.ValidString(r.Reason):
		return invalid("a reason has at most %d bytes of UTF-8", maxReasonBytes)
	case !amount.Within(money.Max(amount.Kind())) || amount.Places() > money.MaxPlaces:
		return invalid("no transfer leaves a marker of that amount: it has to be looked at by hand")
	}
	return nil
}

// markerRepair is a RepairMarker under way.
type markerRepair struct {
	MarkerRepair
	coordinator *Coordinator
	token       bson.ObjectID // of the new fence: it shows which write is the repair's own
	pay         money.Amount
	mark        string // what is removed, and its amount, as it is stored
	settled     bool   // the transfer is known never to touch the marker
	sent        bool   // a removal of the marker was sent whose answer is not known
	cleared     bool   // one of the done mark was
}

// attempt makes one try.
// Each step rests on a deciding read.
// The marker is read first: otherwise an ID that was misspelt would be taken, with the
// story of a repair that never was.
func (r *markerRepair) attempt(ctx context.Context) try {
	repairs := r.coordinator.repairs
	seen, err := repairs.ReadMarker(ctx, r.Ledger, r.Account, r.TransferID, r.pay)
	if err != nil {
		return try{false, protocol.NotSent, err}
	}
	if done, err := r.judge(seen); done {
		return try{true, protocol.NotMatched, err}
	}
	paid := seen.Amount == nil
	if paid {
		r.mark = "done mark of " + seen.Paid.String()
	} else {
		r.mark = "marker of " + seen.Amount.String()
	}
	if !r.settled {
		if t := r.settle(ctx); t.done || !r.settled {
			return t
		}
	}
	result, err := repairs.RemoveMarker(ctx, repair.MarkerRepair{
		Ledger: r.Ledger, Account: r.Account, Transfer: r.TransferID, Done: paid,
		Amount: r.Amount.exact, Pay: r.pay, Token: r.token,
	})
	if result == protocol.Unknown || result == protocol.NotMatched { // the driver may send it twice
		r.sent, r.cleared = r.sent || !paid, r.cleared || paid
	}
	return try{result == protocol.Applied, result, err}
}

// settle makes sure that the transfer never touches the marker.
// It is final, or has no leg here, which never changes; or it doesn't exist, and never
// will.
func (r *markerRepair) settle(ctx context.Context) try {
	c := r.coordinator
	found, err := audit.NewReader(c.catalog).DecideTransfers(ctx, []string{r.TransferID})
	if err != nil {
		return try{false, protocol.NotSent, err}
	}
	t, there := found[r.TransferID]
	switch {
	case !there:
		return r.bury(ctx)
	case t.Err != nil || !t.State.Known():
		return unrepairable("its transfer can't be read")
	case t.State.Final():
		if r.decidedOtherwise(t.Failure) {
			return unrepairable("the other decision is stored in the place of its transfer, and stands")
		}
	case sound(t.Transfer) != nil:
		// Legs that were changed by hand may be set right again, and be these.
		return unrepairable("its transfer is not what was asked for, which has to be set right first")
	case r.touches(t.Transfer):
		return unrepairable("its transfer is %s, and settles it by itself", t.State)
	}
	r.settled = true
	return try{result: protocol.NotMatched}
}

// unrepairable ends a repair with ErrNotRepairable and a reason.
func unrepairable(format string, args ...any) try {
	return try{true, protocol.NotMatched, fmt.Errorf("%w: %w", ErrNotRepairable, fmt.Errorf(format, args...))}
}

// touches reports whether a transfer has a leg on the account, even if another service,
// which works on the same transfers, has another name for its ledger.
func (r *markerRepair) touches(t document.Transfer) bool {
	account := document.IDCodec(r.coordinator.settings.ids).Canonical(r.Account)
	namespace := r.coordinator.catalog.Namespace(r.Ledger)
	return slices.ContainsFunc(t.Legs, func(leg document.Leg) bool {
		return leg.Account == account && (leg.Ledger == r.Ledger || leg.Namespace == namespace)
	})
}

// bury takes the ID of a transfer that doesn't exist.
// The next try reads what is there then.
func (r *markerRepair) bury(ctx context.Context) try {
	c := r.coordinator
	t := document.Transfer{ID: r.TransferID, Owner: c.settings.owner, Failure: &document.Failure{
		Code: document.RepairedCode, Ledger: r.Ledger, Account: r.Account, Message: r.story(r.Decision) + r.Reason,
	}}
	t.Digest = digest(t)
	result, err := c.repairs.InsertTombstone(ctx, t)
	return try{false, result, err}
}

// story says what is to be done: it is stored before that is done.
func (r *markerRepair) story(d MarkerDecision) string {
	end := "the balance kept"
	if d == PayIn {
		end = "its amount paid in"
	}
	return fmt.Sprintf("its document was lost; a %s is to be removed, and %s: ", r.mark, end)
}

// decidedOtherwise reports whether what has taken the place of a lost transfer says the
// other decision about this very marker.
// If this one were carried out, that would be a false story.
func (r *markerRepair) decidedOtherwise(f *document.Failure) bool {
	canonical := document.IDCodec(r.coordinator.settings.ids).Canonical
	other := KeepBalance + PayIn - r.Decision
	return f != nil && f.Code == document.RepairedCode &&
		f.Ledger == r.Ledger && canonical(f.Account) == canonical(r.Account) &&
		strings.HasPrefix(f.Message, r.story(other))
}

// judge reports whether the repair is over, by what was read.
// Where there is no marker, it is about the done mark.
func (r *markerRepair) judge(seen repair.MarkerState) (done bool, err error) {
	amount, gone := seen.Amount, seen.Amount == nil
	if gone {
		amount = seen.Paid
	}
	switch {
	case !seen.Found:
		return true, ErrAccountNotFound
	case gone && (accounts.Status{Fence: seen.Fence}).OpenedWith(r.token):
		return true, nil // by an attempt whose answer was lost
	case gone && (r.sent || r.cleared && amount == nil):
		return true, fmt.Errorf("%w: the marker is gone, by this repair or by somebody else: %w", ErrNotRepairable, ErrInDoubt)
	case amount == nil || amount.Cmp(r.Amount.exact) != 0 || !seen.HasMap:
		return true, fmt.Errorf("%w: it has no marker of that amount", ErrNotRepairable)
	case r.pay.Sign() != 0:
		err = payable(seen)
		return err != nil, err
	}
	return false, nil
}

// payable returns why a marker's amount can't be paid in.
func payable(seen repair.MarkerState) error {
	switch {
	case seen.Amount == nil:
		return fmt.Errorf("%w: the amount was paid in when the done mark was set: KeepBalance removes the mark", ErrNotRepairable)
	case !seen.SameKind:
		return ErrAmountKind
	case !seen.WithinLimits:
		return ErrOverflow
	}
	return nil
}

// RepairPending makes an account's markers the empty map that they should be, where they
// are null or an empty array.
// Other code may have stored that: a Go struct with a nil map stores null.
// No transfer can move money on such an account, so nothing is lost.
// A map is left as it is.
//
//   - nil: it is a map.
//   - ErrNotRepairable: it is something else, or not empty.
//   - ErrAccountNotFound, ErrInvalidRequest, ErrClosed, ErrInDoubt.
func (c *Coordinator) RepairPending(ctx context.Context, ledger, account string) error {
	l, err := c.Ledger(ledger)
	if err != nil {
		return err
	}
	if err := l.checkID(account); err != nil {
		return err
	}
	return l.untilKnown(ctx, account, func(ctx context.Context) try {
		result, err := c.repairs.ClearPending(ctx, ledger, account)
		if result != protocol.NotMatched {
			return try{result == protocol.Applied, result, err}
		}
		seen, err := c.repairs.ReadMarker(ctx, ledger, account, "", money.Units(0))
		switch {
		case err != nil:
			return try{false, protocol.NotSent, err}
		case !seen.Found:
			return try{true, protocol.Failed, ErrAccountNotFound}
		case !seen.HasMap:
			return unrepairable("the markers are neither null nor an empty array")
		}
		return try{true, protocol.NotMatched, nil}
	})
}

// RepairOpen makes a transfer's flag open what its state says, so that recovery finds the
// transfer as long as it is unfinished.
// The flag is set and unset together with the state, so it can have no other value.
//
//   - nil: it is right.
//   - ErrTransferNotFound, ErrInvalidRequest, ErrClosed, ErrInDoubt.
//   - ErrNotRepairable: it can't be read as a transfer, or its state does not belong to
//     what is stored with it.
//     That has to be set right first: with the flag, recovery would move the money once
//     more.
func (c *Coordinator) RepairOpen(ctx context.Context, id string) error {
	if err := document.CheckID(id); err != nil {
		return invalid("transfer: %w", err)
	}
	if err := c.readyForAny(ctx); err != nil {
		return err
	}
	end, err := c.begin()
	if err != nil {
		return aboutTransfer(id, err)
	}
	defer end()
	var tries retry
	for tries.next(ctx, c) {
		limited, cancel := c.store.WithLimit(ctx, wire.CommandLimit)
		t := c.repairOpenOnce(limited, id)
		cancel()
		if t.done {
			return t.err
		}
		tries.record(t)
	}
	return aboutTransfer(id, tries.err(nil))
}

func (c *Coordinator) repairOpenOnce(ctx context.Context, id string) try {
	found, err := audit.NewReader(c.catalog).DecideTransfers(ctx, []string{id})
	t, there := found[id]
	switch {
	case err != nil:
		return try{false, protocol.NotSent, err}
	case !there:
		return try{true, protocol.NotMatched, aboutTransfer(id, ErrTransferNotFound)}
	case t.Err != nil || !t.State.Known() || sound(t.Transfer) != nil || !t.SoundDecision():
		end := unrepairable("see what else the audit finds about it")
		end.err = aboutTransfer(id, end.err)
		return end
	case t.Odd["open"] == "" && t.Opened != t.State.Final():
		return try{true, protocol.NotMatched, nil}
	}
	result, err := c.repairs.SetOpen(ctx, t.Transfer)
	return try{result == protocol.Applied, result, err}
}
