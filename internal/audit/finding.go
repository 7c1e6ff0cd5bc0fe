package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mongotransfer/transfer/internal/money"
)

// Code names a kind of finding. It is the same in all versions.
type Code string

// About markers.
const (
	OrphanMarker    Code = "orphanMarker"    // the transfer doesn't exist
	FinalMarker     Code = "finalMarker"     // the transfer is final
	EarlyMarker     Code = "earlyMarker"     // nobody has claimed the transfer yet
	ForeignMarker   Code = "foreignMarker"   // the transfer doesn't touch this document
	WrongMarker     Code = "wrongMarker"     // another amount than the transfer's
	MissingMarker   Code = "missingMarker"   // there must be one, and isn't
	MissingDocument Code = "missingDocument" // a participant that was prepared is gone
)

// About accounts.
const (
	BelowFloor    Code = "belowFloor"
	ClosedMarker  Code = "closedMarker" // a transfer in flight on a closed account
	WrongBalance  Code = "wrongBalance" // no exact number
	WrongFloor    Code = "wrongFloor"
	WrongCurrency Code = "wrongCurrency"
	WrongPending  Code = "wrongPending" // no map
	WrongClosed   Code = "wrongClosed"  // no boolean
	WrongID       Code = "wrongID"
)

// About transfers.
const (
	Unreadable    Code = "unreadable" // no transfer, or one of another version
	WrongState    Code = "wrongState" // unknown
	WrongEpoch    Code = "wrongEpoch"
	WrongOpen     Code = "wrongOpen" // the flag that recovery finds unfinished transfers by
	WrongCommit   Code = "wrongCommit"
	WrongFailure  Code = "wrongFailure"
	WrongTime     Code = "wrongTime" // no date, or one to come
	WrongDigest   Code = "wrongDigest"
	WrongLegs     Code = "wrongLegs"
	WrongHold     Code = "wrongHold"
	WrongReversal Code = "wrongReversal"
	Stalled       Code = "stalled"
	Unclaimed     Code = "unclaimed" // no worker takes it
)

// About sums.
const (
	WrongTotal Code = "wrongTotal" // not what the caller expects
	LongTotal  Code = "longTotal"  // more digits than an amount has
)

// entry is a code and what to do about it.
type entry struct {
	code   Code
	advice string
}

// Codes returns all codes.
func Codes() []Code {
	var codes []Code
	for _, e := range entries() {
		codes = append(codes, e.code)
	}
	return codes
}

// advice says what to do next.
func (c Code) advice() string {
	for _, e := range entries() {
		if e.code == c {
			return e.advice
		}
	}
	return ""
}

// byHand says what to do next with a marker that RepairMarker refuses.
func (c Code) byHand() string {
	switch c {
	case OrphanMarker, FinalMarker, ForeignMarker:
		return "No transfer leaves such a marker, and RepairMarker refuses it. Find out who has written it, and what became of the balance. " +
			"Once no process works on such a transfer any more, remove the marker by hand, by $unset, or $unsetField if its key has dots or " +
			"dollars, in an update that requires its value to be still this one."
	default:
		return c.advice()
	}
}

// elsewhere says what to do next with a document that is no account, where that is something else: the verbs that repair are for accounts.
func (c Code) elsewhere() string {
	for _, e := range aboutOthers() {
		if e.code == c {
			return e.advice
		}
	}
	return c.advice()
}

func entries() []entry {
	return slices.Concat(aboutMarkers(), aboutAccounts(), aboutTransfers(), aboutSums())
}

func aboutMarkers() []entry {
	const remove = "Then RepairMarker removes the marker, and keeps the balance or pays the marker's amount in."
	return []entry{
		{OrphanMarker, "Find out why the transfer's document is gone, and whether the transfer has happened. Until then repeat no request " +
			"with this ID. " + remove},
		{FinalMarker, "The account was restored from a backup, or changed by hand. Find out whether its balance has this transfer in it " +
			"already. " + remove},
		{EarlyMarker, "Somebody has set the marker, or has set the transfer back, by hand. Let no worker run the transfer before that is " +
			"set right."},
		{ForeignMarker, "Somebody has set the marker, or changed the transfer's legs, by hand. Find out which. If it was the marker, " +
			"RepairMarker removes it."},
		{WrongMarker, "Somebody has changed the marker, the transfer's legs, or the kind of the balance, by hand. The transfer is settled by " +
			"its legs: if they are right, set the marker to their amount, and marker and balance to their kind, int64 or Decimal128."},
		{MissingMarker, "The document was replaced, or restored from a backup, while the money was held. Compare its balance with its history " +
			"before you post or void the hold: neither does anything to a document without the marker."},
		{MissingDocument, "Bring the document back, with its marker, from where it went: recovery then finishes the transfer by itself."},
	}
}

func aboutAccounts() []entry {
	return []entry{
		{BelowFloor, "No debit does this. Find out who writes to balance or floor besides the library, and pay in what is missing."},
		{ClosedMarker, "Somebody has closed the account without CloseAccount. What is in flight is finished all the same. Use CloseAccount."},
		{WrongBalance, "Store it as int32, int64 or Decimal128, with at most 12 digits behind the point, and within 2^62 or 10^21 on either " +
			"side of zero. Until then transfers are refused with ErrAmountKind or ErrOverflow, and those in flight may not be finished."},
		{WrongFloor, "Store an exact number of the balance's kind, or MinKey for none. Until then debits are refused with ErrAmountKind."},
		{WrongCurrency, "Store a string, or nothing. Until then transfers are refused with ErrCurrencyMismatch."},
		{WrongPending, "If it is an empty array, RepairPending makes it a map. Otherwise find out who has written it, and what was there " +
			"before."},
		{WrongClosed, "Store true, or nothing. Until then the account counts as open, but for an array that has true in it."},
		{WrongID, "The library can't name this document, so that nobody can move its money: see WithAccountIDs. Move it to where it belongs."},
	}
}

func aboutOthers() []entry {
	const remove = "Once no process works on the transfer any more, remove the marker by hand, by $unset: nothing but the reservation " +
		"hangs on it."
	return []entry{
		{OrphanMarker, remove},
		{FinalMarker, remove},
		{ForeignMarker, remove},
		{WrongPending, "If it is empty, remove it by hand, by $unset. Otherwise find out who has written it, and what was there before."},
	}
}

func aboutTransfers() []entry {
	const compare = "No step of the library stores this: the document was changed by hand, or restored from a backup. " +
		"Compare it with its accounts."
	return []entry{
		{Unreadable, "It is no transfer, was damaged, or was written by another version: audit by the newest version that is in use."},
		{WrongState, "It was damaged, or was written by a newer version: audit by that one. Recovery leaves it alone."},
		{WrongEpoch, compare},
		{WrongOpen, "First set right what else is found about the transfer. Then RepairOpen makes the flag what the state says; without the " +
			"flag recovery doesn't find an unfinished transfer."},
		{WrongCommit, compare},
		{WrongFailure, compare},
		{WrongTime, "Unless the server's clock was set back, no step of the library stores this, and workers, statements, the expiry of " +
			"holds or the server's removal pass such a transfer by. Store a date: the right one, if it is known. As lastModified any past " +
			"one will do."},
		{WrongDigest, "Legs, effects or currency were changed by hand, and recovery leaves the transfer alone. Restore what was asked for."},
		{WrongLegs, "This makes or loses money, and nobody could have asked for it. Find out who has written it."},
		{WrongHold, compare},
		{WrongReversal, "One of the two was restored or changed by hand, or was removed while others are kept. Compare both with " +
			"their accounts before you reverse anything again."},
		{Stalled, "Remove what stands in its way, if anything is named. Then see that Run or Recover works in a process that knows " +
			"all its ledgers: it is taken up within 64 stall thresholds, and at once by Recover with a threshold of zero."},
		{Unclaimed, "See that a process works with Run, or call Transfer with the same request."},
	}
}

func aboutSums() []entry {
	return []entry{
		{WrongTotal, "Look at the other findings first, then at who writes to balances besides the library, and at documents that were " +
			"restored. If money was paid in or out on purpose, expect another sum."},
		{LongTotal, "Look for balances that can't be right."},
	}
}

// Finding is something that must not be.
type Finding struct {
	Code      Code
	ID        string // of the account, document or transfer that it is about
	Detail    string
	Advice    string
	Ledger    string        // of an account
	Namespace string        // of a document that is no account
	Account   string        // or other document
	Transfer  string        // of a transfer or marker
	Amount    *money.Amount // of a marker
}

// maxDetailBytes bounds what a finding tells of stored values, which may be large.
const maxDetailBytes = 1 << 10

func newFinding(code Code, format string, args ...any) Finding {
	detail := fmt.Sprintf(format, args...)
	if len(detail) > maxDetailBytes {
		detail = strings.ToValidUTF8(detail[:maxDetailBytes], "") + "…" // a character may have been cut
	}
	return Finding{Code: code, Detail: detail, Advice: code.advice()}
}

// aboutDocument is a finding about a participant.
func aboutDocument(p *Document, code Code, format string, args ...any) Finding {
	f := newFinding(code, "%s: %s", nameOf(p), fmt.Sprintf(format, args...))
	f.ID, f.Account = p.ID, p.ID
	if p.Place.Accounts {
		f.Ledger = p.Place.Name
	} else {
		f.Namespace, f.Advice = p.Place.Namespace, code.elsewhere()
	}
	return f
}

// aboutMarker is one about a participant's marker.
func aboutMarker(p *Document, m Marker, code Code, format string, args ...any) Finding {
	f := aboutDocument(p, code, "a marker of %s for transfer %q, %s%s", m.Text, m.Key, fmt.Sprintf(format, args...), balanceOf(p))
	f.Transfer, f.Amount = m.Transfer, m.Amount
	if p.Place.Accounts && !repairable(m) {
		f.Advice = code.byHand()
	}
	return f
}

// repairable reports whether RepairMarker can be told of a marker: its transfer has an ID, and its amount is one that transfers move.
func repairable(m Marker) bool {
	return m.Transfer != "" && m.Amount != nil && m.Amount.Within(money.Max(m.Amount.Kind())) && m.Amount.Places() <= money.MaxPlaces
}

// aboutTransfer is one about a transfer.
func aboutTransfer(id string, code Code, format string, args ...any) Finding {
	f := newFinding(code, "transfer %q: %s", id, fmt.Sprintf(format, args...))
	f.ID, f.Transfer = id, id
	return f
}

func nameOf(p *Document) string {
	switch {
	case !p.Place.Accounts:
		return fmt.Sprintf("document %q of %s", p.ID, p.Place.Namespace)
	case p.Place.Name == "":
		return fmt.Sprintf("account %q", p.ID)
	}
	return fmt.Sprintf("account %q of ledger %q", p.ID, p.Place.Name)
}

func balanceOf(p *Document) string {
	if !p.Counts {
		return ""
	}
	return "; the balance is " + p.Balance.String()
}
