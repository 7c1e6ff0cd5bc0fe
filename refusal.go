package transfer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/history"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// RefusedError says which account or document has refused a transfer, and why.
// errors.Is finds Err through it.
// The ID keeps this answer, and another try takes a new one: docs/errors.md has for each
// reason when that can succeed.
type RefusedError struct {
	// TransferID is the ID of the transfer.
	TransferID string
	// Ledger is that of the account.
	// For a document, it is the name under which its collection was registered.
	Ledger string
	// Account is the ID of the account, or of the document.
	// A document's ID that is neither text nor an ObjectID stands here in extended JSON,
	// a whole number as {"$numberLong":"17"}.
	Account string
	// Err is one of the errors that mean that the transfer was refused.
	Err error
	// Detail says more than Err where there is more to say, such as that there is no
	// balance field.
	// It names some of the Others.
	Detail string
	// Others counts the other accounts and documents of the transfer that would have been
	// refused as well.
	Others int
	// Balance is the balance on which the refusal rests.
	// It is nil where none was seen, and in every later answer about the same transfer.
	Balance *Amount

	why error // Err, and what is known of it
}

// Error names the transfer, the account and the reason.
// The balance is for programs.
func (e *RefusedError) Error() string {
	account := "account " + words.Quote(e.Account)
	if e.Ledger != "" {
		account = words.Quote(e.Account) + " of " + words.Quote(e.Ledger)
	}
	text := fmt.Sprintf("transfer %s refused: %s: %v", words.Quote(e.TransferID), account, e.Unwrap())
	switch {
	case e.Detail == "":
	case e.why != nil: // whose text has a detail of its own
		text += "; " + e.Detail
	default:
		text += ": " + e.Detail
	}
	return text + " (nothing moved; another try needs a new ID)"
}

// Unwrap returns the reason: Err, or what wraps it, such as a [RequirementError].
func (e *RefusedError) Unwrap() error {
	if e.why != nil {
		return e.why
	}
	return e.Err
}

// reasonError returns the error for a reason, nil for one that no participant has caused.
func reasonError(reason protocol.Reason) error {
	switch reason {
	case protocol.NotFound:
		return ErrAccountNotFound
	case protocol.Closed:
		return ErrAccountClosed
	case protocol.Frozen:
		return ErrAccountFrozen
	case protocol.CurrencyMismatch:
		return ErrCurrencyMismatch
	case protocol.AmountKind:
		return ErrAmountKind
	case protocol.Busy:
		return ErrAccountBusy
	case protocol.InsufficientFunds:
		return ErrInsufficientFunds
	case protocol.Overflow:
		return ErrOverflow
	case protocol.RequirementFailed:
		return ErrRequirementFailed
	case protocol.AlreadyReversed:
		return ErrAlreadyReversed
	case protocol.ReversalExceeds:
		return ErrReversalExceeds
	case protocol.Unwritable:
		return ErrUnwritable
	case protocol.Cancelled, protocol.Stalled, protocol.Voided, protocol.Expired:
	}
	return nil
}

// failureError returns the error that a transfer failed with, from what is stored.
func failureError(rec Record) error {
	if rec.Failure == nil {
		return aboutTransfer(rec.ID, fmt.Errorf("%w: its document does not say why", ErrCancelled))
	}
	for reason := protocol.NotFound; reason <= protocol.Unwritable; reason++ {
		if rec.Failure.Code == reason.String() {
			return &RefusedError{
				TransferID: rec.ID, Ledger: rec.Failure.Ledger, Account: rec.Failure.Account, Err: reasonError(reason),
				why:    explainedBefore(rec, reason),
				Detail: rec.Failure.Detail, Others: rec.Failure.Others,
			}
		}
	}
	if rec.Failure.Code == protocol.Expired.String() {
		return aboutTransfer(rec.ID, ErrExpired)
	}
	return aboutTransfer(rec.ID, cancelled(*rec.Failure))
}

// cancelled returns the error of a transfer that was rolled back although no account has
// refused it.
func cancelled(f Failure) error {
	why := f.Message
	switch f.Code {
	case document.RepairedCode: // whose story has amounts
		why = "its document was lost, and a repair by hand has taken its place"
	case protocol.Cancelled.String(): // in somebody's words
		if why == "" {
			return ErrCancelled
		}
		why = words.Quote(why)
	}
	return fmt.Errorf("%w: %s", ErrCancelled, why)
}

// RequirementError says how the document of an effect, or the original of a reversal, is
// not as it is required to be.
// It is missing, a field has another value, or another transfer has reserved it.
// Where none of the three is set, the document was as required again when it was read.
// errors.Is finds ErrRequirementFailed through it.
//
// Only the first answer has all fields.
// Every later answer about the same transfer has Documents and ID, and the same text as
// the first one.
type RequirementError struct {
	// Documents is the registered name of the collection, "transfers" for the original of
	// a reversal.
	Documents string
	// ID is the document's _id.
	ID any
	// Field is the first field that has another value, as it was read just after the
	// refusal.
	Field string
	// Want is the required value, as the driver decodes it.
	Want any
	// Got is the value that was there, as the driver decodes it.
	// It is nil for a field that is missing.
	Got any
	// Missing says that there is no such document.
	Missing bool
	// ReservedBy is the ID of the transfer that has reserved the document.
	ReservedBy string

	text string // as it was stored; "" in the first answer
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

// storedRefusal is a refusal in the words that were stored with it.
type storedRefusal struct {
	text   string
	reason error
}

// Error returns the stored words.
func (e *storedRefusal) Error() string { return e.text }

// Unwrap returns the reason.
func (e *storedRefusal) Unwrap() error { return e.reason }

// maxRefusalBytes bounds what is stored of the server's reason for a refusal.
const maxRefusalBytes = 1 << 10

// explained returns the reason of a refusal with what was seen, for the first answer.
// Its text is stored.
// It is nil for a reason that no participant has caused.
//
// The server sets no marker in null.
// Its refusal has only a code, which names neither the field nor the repair.
func (c *Coordinator) explained(t document.Transfer, refusal protocol.Refusal, seen mongostore.Evidence) error {
	reason := reasonError(refusal.Reason)
	switch {
	case refusal.Reason == protocol.CurrencyMismatch && seen.Currency != nil:
		return &CurrencyError{Currency: currencyAt(t, refusal.Participant), AccountCurrency: *seen.Currency}
	case refusal.Reason == protocol.RequirementFailed:
		return requirementError(t, refusal.Participant-len(t.Legs), seen.Unmet)
	case refusal.Reason == protocol.Unwritable && seen.Refused != nil:
		text := fmt.Sprintf("%v: %.*s", reason, maxRefusalBytes, seen.Refused.Error())
		if wire.PathBlocked(seen.Refused) {
			text += fmt.Sprintf("; the field %q is null, or no document: see RepairPending", c.catalog.Fields.Pending)
		}
		return &storedRefusal{text, reason}
	}
	return reason
}

// requirementError says how the document of the n-th effect is not as required.
// Behind the last effect comes the original of a reversal.
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

// reversedDocuments stands for the collection in an error about the original of a
// reversal.
const reversedDocuments = "transfers"

// accountError gives the store's error the public name.
func accountError(err error) error {
	if errors.Is(err, history.ErrKind) {
		return fmt.Errorf("%w: %w", ErrAmountKind, err)
	}
	return err
}

// explainedBefore returns the reason of a refusal as far as it is stored.
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
	if e := currencyBefore(rec.currencyAt(failure), failure.Message); e != nil && reason == protocol.CurrencyMismatch {
		return e
	}
	if failure.Message == "" || failure.Message == sentinel.Error() {
		return sentinel
	}
	return &storedRefusal{failure.Message, sentinel}
}

// idText returns the text under which a document's ID is stored with a failure.
func idText(id any) string {
	raw, err := document.EncodeDocumentID(id)
	if err != nil {
		return ""
	}
	return document.IDText(raw)
}

// decoded returns a value as the driver decodes it, nil for a missing one.
func decoded(raw bson.RawValue) any {
	var value any
	if raw.Type == 0 || raw.Unmarshal(&value) != nil {
		return nil
	}
	return value
}

// CurrencyError names both currencies where a transfer was refused because they differ.
// errors.Is finds ErrCurrencyMismatch through it.
// Every answer about the transfer has it, even later ones.
type CurrencyError struct {
	// Currency is the one that the transfer names for the account, "" if it names none.
	Currency string
	// AccountCurrency is the account's, "" if it has none.
	AccountCurrency string
}

// Error names the currencies.
func (e *CurrencyError) Error() string {
	return currencyText(e.Currency) + nameCurrency(e.AccountCurrency)
}

// Unwrap returns ErrCurrencyMismatch.
func (e *CurrencyError) Unwrap() error { return ErrCurrencyMismatch }

// currencyText is the text before the account's currency.
func currencyText(currency string) string {
	return fmt.Sprintf("%v: the transfer is in %s, the account in ", ErrCurrencyMismatch, nameCurrency(currency))
}

func nameCurrency(currency string) string {
	if currency == "" {
		return "none"
	}
	return fmt.Sprintf("%.80q", currency)
}

// currencyBefore reads the account's currency from what was stored with a refusal.
// It returns nil where it was stored without.
func currencyBefore(currency, stored string) *CurrencyError {
	name, ok := strings.CutPrefix(stored, currencyText(currency))
	if !ok {
		return nil
	}
	account, err := strconv.Unquote(name)
	if err != nil && name != nameCurrency("") {
		return nil
	}
	return &CurrencyError{Currency: currency, AccountCurrency: account}
}
