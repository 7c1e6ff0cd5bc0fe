package transfertest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/words"
)

// orders are what a test has told a fake to answer.
type orders struct {
	*sync.Mutex
	doubts   map[string]bool                       // IDs whose next call is left in doubt
	refusals map[string]refusal                    // IDs that are refused
	unmet    map[string]*transfer.RequirementError // what the first answer says of a document
}

func newOrders() orders {
	return orders{&sync.Mutex{}, map[string]bool{}, map[string]refusal{}, map[string]*transfer.RequirementError{}}
}

// left says which orders no call has met.
func (o orders) left() []string {
	o.Lock()
	defer o.Unlock()
	var all []string
	for _, id := range slices.Sorted(maps.Keys(o.doubts)) {
		all = append(all, fmt.Sprintf("InDoubt(%s) was ordered, and no call with this ID came", words.Quote(id)))
	}
	for _, id := range slices.Sorted(maps.Keys(o.refusals)) {
		all = append(all, fmt.Sprintf("Fail(%s) was ordered, and no transfer with this ID was begun", words.Quote(id)))
	}
	return all
}

// InDoubt lets the next call that changes the transfer with this ID answer ErrInDoubt.
// It is carried out all the same: the call after it answers with the outcome, and so does
// Get.
// That is what a caller meets whose context ends while the server's answer is on its way.
//
// A call that changes nothing, since its request is malformed, its ID unknown, or it
// comes too late, is answered as ever, and leaves the order to the next one: what
// transfer.OutcomeOf calls NothingStored or Unchanged.
func (f *Fake) InDoubt(id string) {
	f.tb.Helper()
	f.checkID("InDoubt", id)
	f.orders.Lock()
	defer f.orders.Unlock()
	f.orders.doubts[id] = true
}

// errDoubt is the cause of a doubt that was ordered.
var errDoubt = errors.New("the fake was told to leave it open")

// answer answers a call about a transfer: as it went, or in doubt if that was ordered.
func (f *Fake) answer(id string, rec transfer.Record, err error) (transfer.Record, error) {
	f.orders.Lock()
	defer f.orders.Unlock()
	f.orders.complete(id, err)
	outcome := transfer.OutcomeOf(err)
	if !f.orders.doubts[id] || outcome == transfer.NothingStored || outcome == transfer.Unchanged {
		return rec, err
	}
	delete(f.orders.doubts, id)
	return transfer.Record{}, fmt.Errorf("transfer %s: %w: %w", words.Quote(id), transfer.ErrInDoubt, errDoubt)
}

// complete adds to the first answer about a refused transfer what later ones don't have.
func (o orders) complete(id string, err error) {
	var answer *transfer.RequirementError
	unmet := o.unmet[id]
	if unmet == nil || !errors.As(err, &answer) {
		return
	}
	delete(o.unmet, id)
	answer.Field, answer.Want, answer.Got = unmet.Field, unmet.Want, unmet.Got
	answer.Missing, answer.ReservedBy = unmet.Missing, unmet.ReservedBy
}

// Fail has the transfer with this ID refused when it is begun: by Transfer, Hold or
// Reverse, or by the worker if it was submitted.
// The refusal is stored, and the ID keeps it, as with any refusal.
// What the transfer would have moved stays where it is.
//
// The error is one of those by which an account or a document refuses a transfer:
// ErrAccountNotFound, ErrAccountClosed, ErrAccountFrozen, ErrCurrencyMismatch,
// ErrAmountKind, ErrAccountBusy, ErrInsufficientFunds, ErrOverflow, ErrRequirementFailed,
// ErrUnwritable, or an error that wraps it. The test fails for any other one, and for an
// ID that was begun before.
//
// The refusal names the first account or document of the transfer that can have this
// reason.
// If there is none, the test fails when the transfer is begun, and the transfer is done:
// one without effects has no document for ErrRequirementFailed.
//
// A *transfer.CurrencyError says which currency the account has, and a
// *transfer.RequirementError what is not as required; its Documents and ID count for
// nothing.
// Without them, the account has the currency XTS, or none where the transfer is in XTS,
// and the document lacks the first field that the effect requires, or is missing.
func (f *Fake) Fail(id string, err error) {
	f.tb.Helper()
	f.checkID("Fail", id)
	order, is := refusalBy(err)
	if !is {
		f.tb.Fatalf("transfertest: Fail(%s) needs an error by which a transfer is refused, like "+
			"transfer.ErrInsufficientFunds, and not: %v", words.Quote(id), err)
	}
	begun := bson.D{{Key: "_id", Value: id}, {Key: "state", Value: bson.D{{Key: "$ne", Value: string(protocol.Initiated)}}}}
	found, err := f.server.IDs(fakeTransfers, begun)
	if err != nil {
		f.tb.Fatalf("transfertest: Fail(%s): %v", words.Quote(id), err)
	}
	if len(found) > 0 {
		f.tb.Fatalf("transfertest: Fail(%s) comes too late: the transfer was begun, and keeps its outcome", words.Quote(id))
	}
	f.orders.Lock()
	defer f.orders.Unlock()
	f.orders.refusals[id] = order
}

func (f *Fake) checkID(order, id string) {
	f.tb.Helper()
	if err := document.CheckID(id); err != nil {
		f.tb.Fatalf("transfertest: %s(%s): %v", order, words.Quote(id), err)
	}
}

// refusal is an error that a refused transfer wraps, with the reason that is stored.
type refusal struct {
	err    error
	reason protocol.Reason
	given  error // to Fail
}

// refusals returns those by which an account or a document refuses a transfer.
func refusals() []refusal {
	return []refusal{
		{err: transfer.ErrAccountNotFound, reason: protocol.NotFound},
		{err: transfer.ErrAccountClosed, reason: protocol.Closed},
		{err: transfer.ErrAccountFrozen, reason: protocol.Frozen},
		{err: transfer.ErrCurrencyMismatch, reason: protocol.CurrencyMismatch},
		{err: transfer.ErrAmountKind, reason: protocol.AmountKind},
		{err: transfer.ErrAccountBusy, reason: protocol.Busy},
		{err: transfer.ErrInsufficientFunds, reason: protocol.InsufficientFunds},
		{err: transfer.ErrOverflow, reason: protocol.Overflow},
		{err: transfer.ErrRequirementFailed, reason: protocol.RequirementFailed},
		{err: transfer.ErrUnwritable, reason: protocol.Unwritable},
	}
}

// refusalBy returns the refusal by which a transfer fails with an error.
func refusalBy(err error) (refusal, bool) {
	for _, r := range refusals() {
		if errors.Is(err, r.err) {
			r.given = err
			return r, true
		}
	}
	return refusal{}, false
}

// refuse comes before the claim of a transfer that a test wants refused. It stores the
// transfer as one that has failed: to its executor, that another one was first.
func (f *Fake) refuse(now time.Time, namespace string, stored, change bson.D) bson.D {
	claimed := stored
	switch set, _ := value(change, "$set").(bson.D); {
	case namespace != fakeTransfers:
		return nil
	case stored == nil && value(change, "state") == string(protocol.Preparing):
		claimed = change
	case value(stored, "state") != string(protocol.Initiated) || value(set, "state") != string(protocol.Preparing):
		return nil
	}
	id, _ := value(claimed, "_id").(string)
	f.orders.Lock()
	defer f.orders.Unlock()
	order, ordered := f.orders.refusals[id]
	if !ordered {
		return nil
	}
	delete(f.orders.refusals, id)
	after, unmet, err := order.failed(claimed, now)
	if err != nil {
		f.tb.Errorf("transfertest: Fail(%s) can't be carried out: %v", words.Quote(id), err)
		return nil
	}
	if unmet != nil {
		f.orders.unmet[id] = unmet
	}
	if slices.Contains(f.kinds, transfer.EventFailed) {
		at := bson.NewDateTimeFromTime(now)
		failed := bson.D{{Key: "kind", Value: string(transfer.EventFailed)}, {Key: "at", Value: at}, {Key: "due", Value: at}}
		after = append(after, bson.E{Key: "outbox", Value: bson.A{failed}})
	}
	return after
}

func value(d bson.D, name string) any {
	for _, e := range d {
		if e.Key == name {
			return e.Value
		}
	}
	return nil
}

// failed returns a stored transfer as it is once it was refused, and what is not as
// required of its document, where that is the reason.
func (r refusal) failed(claimed bson.D, now time.Time) (after bson.D, unmet *transfer.RequirementError, err error) {
	raw, err := bson.Marshal(claimed)
	if err != nil {
		return nil, nil, err
	}
	t, err := document.DecodeTransfer(raw)
	if err != nil {
		return nil, nil, err
	}
	blamed, err := r.blamed(t)
	if err != nil {
		return nil, nil, err
	}
	why := r.err
	switch r.reason {
	case protocol.CurrencyMismatch:
		why = r.currencies(t.CurrencyOf(*blamed.Leg))
	case protocol.RequirementFailed:
		unmet = r.unmet(blamed.Effect)
		why = unmet
	default:
	}
	for _, e := range claimed {
		switch e.Key {
		case "open":
			continue
		case "state":
			e.Value = string(protocol.Fail)
		case "epoch":
			e.Value = int64(1)
		case "lastModified":
			e.Value = bson.NewDateTimeFromTime(now)
		}
		after = append(after, e)
	}
	address, _ := blamed.Address()
	return append(after, bson.E{Key: "failure", Value: bson.D{
		{Key: "code", Value: r.reason.String()}, {Key: "ledger", Value: address.Name}, {Key: "account", Value: blamed.ID()},
		{Key: "message", Value: why.Error()},
	}}), unmet, nil
}

// blamed returns the participant that a refusal names: the first one that can have that
// reason.
func (r refusal) blamed(t document.Transfer) (document.Participant, error) {
	who := "account"
	for p := range t.Participants() {
		fits := p.Leg != nil
		switch r.reason {
		case protocol.RequirementFailed:
			fits, who = p.Leg == nil, "document"
		case protocol.InsufficientFunds:
			fits, who = fits && p.Leg.Amount.Sign() < 0, "account to take money from"
		case protocol.Overflow:
			fits, who = fits && p.Leg.Amount.Sign() > 0, "account to pay to"
		case protocol.Unwritable:
			fits = true
		default:
		}
		if fits {
			return p, nil
		}
	}
	return document.Participant{}, fmt.Errorf("the transfer has no %s that could refuse it: %w", who, r.err)
}

// testCurrency is the code that ISO 4217 keeps for tests.
const testCurrency = "XTS"

// currencies returns the error about an account for which a transfer names a currency.
func (r refusal) currencies(named string) error {
	differ := &transfer.CurrencyError{Currency: named, AccountCurrency: testCurrency}
	if given := (*transfer.CurrencyError)(nil); errors.As(r.given, &given) {
		differ.AccountCurrency = given.AccountCurrency
	}
	if differ.AccountCurrency == named && named == testCurrency {
		differ.AccountCurrency = ""
	}
	return differ
}

// unmet returns what is not as required of an effect's document, or of the original of a
// reversal.
func (r refusal) unmet(effect *document.Effect) *transfer.RequirementError {
	if given := (*transfer.RequirementError)(nil); errors.As(r.given, &given) {
		return &transfer.RequirementError{
			Field: given.Field, Want: given.Want, Got: given.Got, Missing: given.Missing, ReservedBy: given.ReservedBy,
		}
	}
	var required bson.D
	if effect == nil || bson.Unmarshal(effect.Require, &required) != nil || len(required) == 0 {
		return &transfer.RequirementError{Missing: true}
	}
	return &transfer.RequirementError{Field: required[0].Key, Want: required[0].Value}
}
