package audit

import (
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// judgeDocument finds what is wrong with a participant, whatever its transfers are.
func judgeDocument(p *mongostore.AuditDocument) []Finding {
	var found []Finding
	for _, field := range []struct {
		code Code
		bad  string
		name string
	}{
		{WrongID, p.BadID, "_id"}, {WrongBalance, p.BadBalance, "balance"}, {WrongFloor, p.BadFloor, "floor"},
		{WrongCurrency, p.BadCurrency, "currency"}, {WrongPending, p.BadPending, "map of markers"},
		{WrongClosed, p.BadClosed, "flag closed"},
	} {
		if field.bad != "" {
			found = append(found, aboutDocument(p, field.code, "the %s: %s", field.name, field.bad))
		}
	}
	if p.Counts && !p.NoFloor && p.BadFloor == "" && p.Place.Accounts && p.Balance.Cmp(p.Floor) < 0 {
		found = append(found, aboutDocument(p, BelowFloor, "the balance is %s, and the floor %s", p.Balance, p.Floor))
	}
	if p.Closed && len(p.Markers) > 0 {
		found = append(found, aboutDocument(p, ClosedMarker, "it is closed, and has %d markers, like that of transfer %q",
			len(p.Markers), p.Markers[0].Key))
	}
	return found
}

// judgeMarker finds what is wrong with a marker, given its transfer as it is at the same moment; nil: there is none.
func judgeMarker(atlas *mongostore.AuditReader, p *mongostore.AuditDocument, m mongostore.Marker, t *mongostore.AuditTransfer) (Finding, bool) {
	switch {
	case t == nil:
		return aboutMarker(p, m, OrphanMarker, "which does not exist"), true
	case t.Err != nil || !t.State.Known():
		return Finding{}, false // which is found where transfers are judged
	case t.Tombstone():
		return aboutMarker(p, m, OrphanMarker, "which is lost, as is told in its place: account %q of ledger %q: %s",
			t.Failure.Account, t.Failure.Ledger, t.Failure.Message), true
	}
	part, touched := partOf(atlas, p, t)
	switch {
	case !touched:
		return aboutMarker(p, m, ForeignMarker, "which is %s, and does not touch this document", t.State), true
	case t.State.Final():
		return aboutMarker(p, m, FinalMarker, "which is final: %s", t.State), true
	case t.State == protocol.Initiated:
		return aboutMarker(p, m, EarlyMarker, "which nobody has claimed yet"), true
	}
	due := money.Units(0)
	if part.Amount != nil {
		due = *part.Amount
	}
	switch {
	case m.Amount == nil || m.Amount.Cmp(due) != 0:
		return aboutMarker(p, m, WrongMarker, "which moves %s here", due), true
	case part.Amount != nil && m.Amount.Kind() != due.Kind():
		return aboutMarker(p, m, WrongMarker, "which moves %s here: that is %s, and the marker %s", due, kindOf(due), kindOf(*m.Amount)), true
	case p.Counts && m.Amount.Kind() != p.Balance.Kind():
		return aboutMarker(p, m, WrongMarker, "which moves %s here: that is %s, and the balance %s", due, kindOf(due), kindOf(p.Balance)), true
	}
	return Finding{}, false
}

func kindOf(a money.Amount) string {
	if a.Kind() == money.Whole {
		return "whole"
	}
	return "a decimal"
}

// partOf finds a document among a transfer's participants, be it that another service, which works on the same transfers, has another name
// for its collection: else its healthy transfers would be called foreign here.
func partOf(atlas *mongostore.AuditReader, p *mongostore.AuditDocument, t *mongostore.AuditTransfer) (mongostore.Part, bool) {
	var renamed *mongostore.Part
	for _, part := range atlas.Parts(t.Transfer) {
		switch {
		case part.Key != p.Key:
		case part.Place == p.Place:
			return part, true
		case part.Place == nil && part.Namespace == p.Place.Namespace: // or one of that name on a cluster that is not registered here
			renamed = &part
		}
	}
	if renamed == nil {
		return mongostore.Part{}, false
	}
	return *renamed, true
}

// judgePart finds what is wrong with a participant of an unfinished transfer, given its document at the same moment; nil: there is none.
// A marker that is missing proves nothing unless the transfer is held: before, it may not be there yet, and after the decision it may be
// settled.
func judgePart(t *mongostore.AuditTransfer, part mongostore.Part, p *mongostore.AuditDocument) (Finding, bool) {
	held := t.State == protocol.Preparing && t.Held
	var code Code
	var f Finding
	switch {
	case p == nil && !part.Spare && (held || t.State == protocol.Committed):
		code = MissingDocument
		f = aboutTransfer(t.ID, code, "it is %s, so all its participants were prepared, and %s is gone", t.State, part.Name)
	case p != nil && held && !hasMarker(p, t.ID):
		code = MissingMarker
		f = aboutTransfer(t.ID, code, "it holds money, and %s has no marker of it%s", part.Name, balanceOf(p))
	default:
		return Finding{}, false
	}
	f.Account = part.ID
	if part.Place.Accounts {
		f.Ledger = part.Place.Name
	} else {
		f.Namespace = part.Place.Namespace
	}
	return f, true
}

func hasMarker(p *mongostore.AuditDocument, transfer string) bool {
	for _, m := range p.Markers {
		if m.Transfer == transfer {
			return true
		}
	}
	return false
}

// inTransit returns the money that a marker stands for which is on no balance. Before the decision that is what a debit has taken. Once
// the transfer is decided to happen, it is what a credit has not got yet, and what a posted hold has not returned yet; once it is decided
// not to, what a debit has not been given back.
func inTransit(atlas *mongostore.AuditReader, p *mongostore.AuditDocument, t *mongostore.AuditTransfer) (money.Amount, bool) {
	part, touched := partOf(atlas, p, t)
	if !touched || part.Amount == nil {
		return money.Amount{}, false
	}
	amount := *part.Amount
	switch t.State {
	case protocol.Preparing, protocol.Rollback, protocol.Fail:
		return amount.Neg(), amount.Sign() < 0
	case protocol.Committed, protocol.Success:
		if t.Posted == nil {
			return amount, amount.Sign() > 0
		}
		if amount.Sign() > 0 {
			return *t.Posted, true
		}
		rest, err := amount.Neg().Add(t.Posted.Neg())
		return rest, err == nil
	case protocol.Initiated:
	}
	return money.Amount{}, false
}
