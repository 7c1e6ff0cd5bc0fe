package audit

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// CheckAccount finds what is wrong with a stored account of the default ledger by itself.
func CheckAccount(fields document.Fields, ids document.IDCodec, stored bson.Raw) []Finding {
	r := Reader{catalog: &collections.Catalog{IDs: ids}}
	return checkDocument(r.document(&collections.Collection{Fields: fields}, stored))
}

// checkDocument finds what is wrong with a participant's document by itself.
func checkDocument(d *Document) []Finding {
	var found []Finding
	for _, field := range []struct {
		code Code
		bad  string
		name string
	}{
		{WrongID, d.BadID, "_id"}, {WrongBalance, d.BadBalance, "balance"}, {WrongFloor, d.BadFloor, "floor"},
		{WrongCurrency, d.BadCurrency, "currency"}, {WrongPending, d.BadPending, "map of markers"},
		{WrongClosed, d.BadClosed, "flag closed"}, {WrongFrozen, d.BadFrozen, "flag frozen"},
	} {
		if field.bad != "" {
			found = append(found, aboutDocument(d, field.code, "the %s: %s", field.name, field.bad))
		}
	}
	// A floor that is stored may have been raised above the balance.
	if d.Counts && !d.SetFloor && d.Collection.HoldsAccounts() && d.Balance.Sign() < 0 {
		found = append(found, aboutDocument(d, BelowFloor, "the balance is %s, and no floor is stored", d.Balance))
	}
	if reserved := d.reserved(); d.Closed && len(reserved) > 0 {
		found = append(found, aboutDocument(d, ClosedMarker, "it is closed, and has %d markers, like that of transfer %q",
			len(reserved), reserved[0].Key))
	}
	return found
}

// checkMarker finds what is wrong with a marker or a done mark, given its transfer at the
// same moment.
// The transfer is nil if it doesn't exist. Whether it can be read at all is checked where
// transfers are.
func checkMarker(r *Reader, d *Document, m Marker, t *Transfer) (f Finding, wrong bool) {
	switch {
	case t == nil:
		return aboutMarker(d, m, OrphanMarker, "which does not exist"), true
	case t.Err != nil || !t.State.Known():
		return Finding{}, false
	case t.Tombstone():
		return aboutMarker(d, m, OrphanMarker, "which is lost, as is told in its place: account %q of ledger %q: %s",
			t.Failure.Account, t.Failure.Ledger, t.Failure.Message), true
	}
	p, is := participantOf(r, d, t)
	switch {
	case !is:
		return aboutMarker(d, m, ForeignMarker, "which is %s, and does not touch this document", t.State), true
	case t.State.Final():
		return aboutMarker(d, m, FinalMarker, "which is final: %s", t.State), true
	case t.State == protocol.Initiated:
		return aboutMarker(d, m, EarlyMarker, "which nobody has claimed yet"), true
	}
	if why := wrongDone(d, m, p, t); why != "" {
		return aboutMarker(d, m, WrongDone, "%s", why), true
	}
	return checkAmount(d, m, p)
}

// hasPaid reports whether one of the documents that were read at one moment shows that a
// transfer has paid in there. Before the record is stored, that shows that all its
// participants were prepared.
func hasPaid(r *Reader, t *Transfer, found documentsRead) bool {
	for _, p := range r.participants(t.Transfer) {
		d := found[p.Collection][p.Key]
		if d == nil {
			continue
		}
		for _, m := range d.Markers {
			if m.Done && m.Transfer == t.ID && wrongDone(d, m, p, t) == "" {
				return true
			}
		}
	}
	return false
}

// wrongDone returns why a participant can't have a done mark of a transfer that is under
// way, "" if it can, or if the mark is none.
//
// Only those that gain by a transfer are paid before it is cleared from their document,
// and only where every participant was prepared, so that it can't be rolled back. A hold
// and a reversal are settled at one go.
func wrongDone(d *Document, m Marker, p Participant, t *Transfer) string {
	switch {
	case !m.Done:
		return ""
	case t.State.Back():
		return fmt.Sprintf("which is %s, so that nobody is paid", t.State)
	case t.Hold:
		return fmt.Sprintf("which is %s, and a hold", t.State)
	case t.Reverses != "":
		return fmt.Sprintf("which is %s, and a reversal", t.State)
	case p.Amount != nil && p.Amount.Sign() < 0:
		return fmt.Sprintf("which is %s, and pays nothing in here", t.State)
	case d.hasMarker(t.ID):
		return fmt.Sprintf("which is %s, and has its marker here as well", t.State)
	}
	return ""
}

// checkAmount finds what is wrong with the amount of a participant's marker.
func checkAmount(d *Document, m Marker, p Participant) (f Finding, wrong bool) {
	want := money.Units(0)
	if p.Amount != nil {
		want = *p.Amount
	}
	switch {
	case m.Amount == nil || m.Amount.Cmp(want) != 0:
		return aboutMarker(d, m, WrongMarker, "which moves %s here", want), true
	case p.Amount != nil && m.Amount.Kind() != want.Kind():
		return aboutMarker(d, m, WrongMarker, "which moves %s here: that is %s, and the marker %s",
			want, kindOf(want), kindOf(*m.Amount)), true
	case d.Counts && m.Amount.Kind() != d.Balance.Kind():
		return aboutMarker(d, m, WrongMarker, "which moves %s here: that is %s, and the balance %s",
			want, kindOf(want), kindOf(d.Balance)), true
	}
	return Finding{}, false
}

func kindOf(a money.Amount) string {
	if a.Kind() == money.Whole {
		return "whole"
	}
	return "a decimal"
}

// checkParticipant finds what is wrong with a participant of an unfinished transfer,
// given its document at the same moment. The document is nil if it doesn't exist.
//
// A missing marker proves nothing unless the transfer is held, or has paid in somewhere
// and is still Preparing. Before that the marker may not be there yet, and after the
// decision it may be settled.
//
//  1. Alice and bob are prepared, bob is paid, and the process dies: the caller may know
//     of the commit, and nothing is recorded.
//  2. Somebody replaces alice's document by one without the marker.
//  3. Recovery takes alice for unprepared. It takes the money off her once more, or rolls
//     back what bob has.
func checkParticipant(t *Transfer, p Participant, d *Document, paid bool) (f Finding, wrong bool) {
	held := t.State == protocol.Preparing && t.Held
	switch {
	case paid && t.State == protocol.Preparing:
		f, wrong = checkBesidePaid(t, p, d)
	case d == nil && !p.MayBeGone && (held || t.State == protocol.Committed):
		f, wrong = aboutTransfer(t.ID, MissingDocument, "it is %s, so all its participants were prepared, and %s is gone",
			t.State, p.Name), true
	case d != nil && held && !d.hasMarker(t.ID):
		f, wrong = aboutTransfer(t.ID, MissingMarker, "it holds money, and %s has no marker of it%s", p.Name, balanceOf(d)), true
	}
	if !wrong {
		return Finding{}, false
	}
	f.Account = p.ID
	if p.Collection.HoldsAccounts() {
		f.Ledger = p.Collection.Name
	} else {
		f.Namespace = p.Collection.Namespace
	}
	return f, true
}

// checkBesidePaid finds what is wrong with a participant of a transfer that has paid in
// and is Preparing.
func checkBesidePaid(t *Transfer, p Participant, d *Document) (f Finding, wrong bool) {
	const prepared = "it has paid in, so all its participants were prepared, and %s "
	switch {
	case d == nil:
		f = aboutTransfer(t.ID, MissingDocument, prepared+"is gone", p.Name)
	case d.BadPending == "" && !d.hasTrace(t.ID):
		f = aboutTransfer(t.ID, MissingMarker, prepared+"has no trace of it%s", p.Name, balanceOf(d))
	default:
		return Finding{}, false
	}
	f.Advice = f.Code.adviceOnPaid()
	return f, true
}
