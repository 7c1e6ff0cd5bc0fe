package transfer

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/words"
)

// RequirementError says how the document of an effect, or the transfer that a reversal
// wants to reverse, is not as it is required to be: it is missing, a field has another
// value, or another transfer has reserved it. errors.Is finds ErrRequirementFailed
// through it. Where none of the three is set it was as required again when that was
// looked for.
//
// The first answer only carries all of it. Every later answer about the same transfer has
// Documents and ID, and its text tells the same as the first one's.
type RequirementError struct {
	// Documents is the registered name of the collection; "transfers" for a transfer that
	// is to be reversed.
	Documents string
	// ID is the document's _id.
	ID any
	// Field is the first field that has another value, as it was read just after the
	// refusal. Want is the required value and Got the one that was there, nil for a field
	// that is missing, as the driver decodes them.
	Field     string
	Want, Got any
	// Missing says that there is no such document.
	Missing bool
	// ReservedBy is the ID of the transfer that has reserved the document.
	ReservedBy string

	text string // that was stored; "" in the first answer
}

// Error says what is not as required, without values.
func (e *RequirementError) Error() string {
	switch {
	case e.text != "":
		return e.text
	case e.Missing:
		return ErrRequirementFailed.Error() + ": it is missing"
	case e.ReservedBy != "":
		return fmt.Sprintf("%v: transfer %s has reserved it", ErrRequirementFailed, words.Quote(e.ReservedBy))
	case e.Field != "":
		return fmt.Sprintf("%v: its field %s has another value", ErrRequirementFailed, words.Quote(e.Field))
	}
	return ErrRequirementFailed.Error()
}

// Unwrap returns ErrRequirementFailed.
func (e *RequirementError) Unwrap() error { return ErrRequirementFailed }

// toldBefore is a refusal in the words that were stored with it.
type toldBefore struct {
	text   string
	reason error
}

// Error returns the stored words.
func (e *toldBefore) Error() string { return e.text }

// Unwrap returns the reason.
func (e *toldBefore) Unwrap() error { return e.reason }

// maxRefusalBytes bounds what is stored of the server's reason for a refusal.
const maxRefusalBytes = 1 << 10

// explained returns the reason of a refusal with what was seen, for the first answer; its
// text is what is stored. It is nil for a reason that no participant is to blame for.
func explained(t document.Transfer, refusal protocol.Refusal, seen mongostore.Evidence) error {
	reason := reasonError(refusal.Reason)
	switch {
	case refusal.Reason == protocol.CurrencyMismatch && seen.Currency != nil:
		return &CurrencyError{Currency: t.Currency, AccountCurrency: *seen.Currency}
	case refusal.Reason == protocol.RequirementFailed:
		return requirementError(t, refusal.Participant-len(t.Legs), seen.Unmet)
	case refusal.Reason == protocol.Unwritable && seen.Refused != nil:
		return &toldBefore{fmt.Sprintf("%v: %.*s", reason, maxRefusalBytes, seen.Refused.Error()), reason}
	}
	return reason
}

// requirementError says how the document of the n-th effect is not as required; behind
// the last one comes the transfer that is to be reversed.
func requirementError(t document.Transfer, n int, unmet *document.Unmet) error {
	e := &RequirementError{}
	switch {
	case n >= 0 && n < len(t.Effects):
		e.Documents, e.ID = t.Effects[n].Documents, decoded(t.Effects[n].ID)
	case t.Reverses != "":
		e.Documents, e.ID = reversedDocuments, t.Reverses
	}
	if unmet != nil {
		e.Missing, e.ReservedBy, e.Field = unmet.Missing, unmet.ReservedBy, unmet.Field
		e.Want, e.Got = decoded(unmet.Want), decoded(unmet.Got)
	}
	return e
}

// reversedDocuments is the name under which the transfer that a reversal reverses is
// told.
const reversedDocuments = "transfers"

// explainedBefore returns the reason of a refusal as far as it can be told from what is
// stored.
func explainedBefore(rec Record, reason protocol.Reason) error {
	failure, sentinel := rec.Failure, reasonError(reason)
	if reason == protocol.RequirementFailed {
		e := &RequirementError{Documents: failure.Ledger, ID: failure.Account, text: failure.Message}
		for _, effect := range rec.Effects {
			if effect.Documents == failure.Ledger && idText(effect.ID) == failure.Account {
				e.ID = effect.ID
			}
		}
		return e
	}
	if e := currencyBefore(rec.Currency, failure.Message); e != nil && reason == protocol.CurrencyMismatch {
		return e
	}
	if failure.Message == "" || failure.Message == sentinel.Error() {
		return sentinel
	}
	return &toldBefore{failure.Message, sentinel}
}

// idText returns the text under which a document's ID is stored with a failure.
func idText(id any) string {
	raw, err := document.EncodeDocumentID(id)
	if err != nil {
		return ""
	}
	return document.IDText(raw)
}

// decoded returns a value as the driver decodes it, nil for none.
func decoded(raw bson.RawValue) any {
	var value any
	if raw.Type == 0 || raw.Unmarshal(&value) != nil {
		return nil
	}
	return value
}
