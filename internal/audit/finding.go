package audit

import (
	"fmt"
	"strings"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
)

// Finding is something that must not be.
type Finding struct {
	// Code names it.
	Code Code
	// ID is the account, document or transfer that it is about.
	ID string
	// Detail has the figures.
	Detail string
	// Advice says what to do next.
	Advice string
	// Ledger is that of an account.
	Ledger string
	// Namespace is that of a document that is no account.
	Namespace string
	// Account is the ID of the account or other document.
	Account string
	// Transfer is the ID of the transfer, or that of a marker's.
	Transfer string
	// Amount is that of a marker.
	Amount *money.Amount
}

// maxDetailBytes bounds what a finding quotes of stored values, which may be large.
const maxDetailBytes = 1 << 10

func newFinding(code Code, format string, args ...any) Finding {
	detail := fmt.Sprintf(format, args...)
	if len(detail) > maxDetailBytes {
		detail = strings.ToValidUTF8(detail[:maxDetailBytes], "") + "…" // a character may have been cut
	}
	return Finding{Code: code, Detail: detail, Advice: code.advice()}
}

// aboutDocument is a finding about a participant's document.
func aboutDocument(d *Document, code Code, format string, args ...any) Finding {
	f := newFinding(code, "%s: %s", nameOf(d), fmt.Sprintf(format, args...))
	f.ID, f.Account = d.ID, d.ID
	if d.Collection.HoldsAccounts() {
		f.Ledger = d.Collection.Name
	} else {
		f.Namespace, f.Advice = d.Collection.Namespace, code.adviceElsewhere()
	}
	return f
}

// aboutMarker is a finding about a participant's marker or done mark.
func aboutMarker(d *Document, m Marker, code Code, format string, args ...any) Finding {
	what, key := "marker", m.Key
	if m.Done {
		what = "done mark"
		key, _ = document.CutDone(m.Key)
	}
	f := aboutDocument(d, code, "a %s of %s for transfer %q, %s%s", what, m.Text, key, fmt.Sprintf(format, args...), balanceOf(d))
	f.Transfer, f.Amount = m.Transfer, m.Amount
	if !d.Collection.HoldsAccounts() {
		return f
	}
	if m.Done {
		f.Advice = code.adviceOnDone()
	}
	if !repairable(m) {
		f.Advice = code.adviceByHand()
	}
	return f
}

// repairable reports whether RepairMarker can name a marker: its transfer has an ID, and
// its amount is one that transfers move.
func repairable(m Marker) bool {
	return m.Transfer != "" && m.Amount != nil && m.Amount.Within(money.Max(m.Amount.Kind())) && m.Amount.Places() <= money.MaxPlaces
}

// aboutTransfer is a finding about a transfer.
func aboutTransfer(id string, code Code, format string, args ...any) Finding {
	f := newFinding(code, "transfer %q: %s", id, fmt.Sprintf(format, args...))
	f.ID, f.Transfer = id, id
	return f
}

func nameOf(d *Document) string {
	switch {
	case !d.Collection.HoldsAccounts():
		return fmt.Sprintf("document %q of %s", d.ID, d.Collection.Namespace)
	case d.Collection.Name == "":
		return fmt.Sprintf("account %q", d.ID)
	}
	return fmt.Sprintf("account %q of ledger %q", d.ID, d.Collection.Name)
}

func balanceOf(d *Document) string {
	if !d.Counts {
		return ""
	}
	return "; the balance is " + d.Balance.String()
}
