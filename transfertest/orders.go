package transfertest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/words"
)

// orders are what a test has told a fake to answer.
type orders struct {
	*sync.Mutex
	doubts   map[string]bool            // IDs whose next call is left in doubt
	refusals map[string]protocol.Reason // IDs that are refused
}

func newOrders() orders {
	return orders{&sync.Mutex{}, map[string]bool{}, map[string]protocol.Reason{}}
}

// unmet says which orders no call has met.
func (o orders) unmet() []string {
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
	outcome := transfer.OutcomeOf(err)
	if !f.orders.doubts[id] || outcome == transfer.NothingStored || outcome == transfer.Unchanged {
		return rec, err
	}
	delete(f.orders.doubts, id)
	return transfer.Record{}, fmt.Errorf("transfer %s: %w: %w", words.Quote(id), transfer.ErrInDoubt, errDoubt)
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
func (f *Fake) Fail(id string, err error) {
	f.tb.Helper()
	f.checkID("Fail", id)
	reason, is := reasonOf(err)
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
	f.orders.refusals[id] = reason
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
}

// refusals returns those by which an account or a document refuses a transfer.
func refusals() []refusal {
	return []refusal{
		{transfer.ErrAccountNotFound, protocol.NotFound},
		{transfer.ErrAccountClosed, protocol.Closed},
		{transfer.ErrAccountFrozen, protocol.Frozen},
		{transfer.ErrCurrencyMismatch, protocol.CurrencyMismatch},
		{transfer.ErrAmountKind, protocol.AmountKind},
		{transfer.ErrAccountBusy, protocol.Busy},
		{transfer.ErrInsufficientFunds, protocol.InsufficientFunds},
		{transfer.ErrOverflow, protocol.Overflow},
		{transfer.ErrRequirementFailed, protocol.RequirementFailed},
		{transfer.ErrUnwritable, protocol.Unwritable},
	}
}

func reasonOf(err error) (protocol.Reason, bool) {
	for _, r := range refusals() {
		if errors.Is(err, r.err) {
			return r.reason, true
		}
	}
	return 0, false
}

// textOf returns the words that are stored with a reason.
func textOf(reason protocol.Reason) string {
	for _, r := range refusals() {
		if r.reason == reason {
			return r.err.Error()
		}
	}
	return ""
}

// refuse comes before the claim of a transfer that a test wants refused. It stores the
// transfer as one that has failed: to its executor, that another one was first.
func (f *Fake) refuse(namespace string, stored, change bson.D) bson.D {
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
	reason, ordered := f.orders.refusals[id]
	if !ordered {
		return nil
	}
	delete(f.orders.refusals, id)
	return failed(claimed, reason)
}

func value(d bson.D, name string) any {
	for _, e := range d {
		if e.Key == name {
			return e.Value
		}
	}
	return nil
}

// failed returns a stored transfer as it is once it was refused.
func failed(claimed bson.D, reason protocol.Reason) bson.D {
	var after bson.D
	for _, e := range claimed {
		switch e.Key {
		case "open":
			continue
		case "state":
			e.Value = string(protocol.Fail)
		case "epoch":
			e.Value = int64(1)
		}
		after = append(after, e)
	}
	ledger, account := blamed(claimed, reason)
	return append(after, bson.E{Key: "failure", Value: bson.D{
		{Key: "code", Value: reason.String()}, {Key: "ledger", Value: ledger}, {Key: "account", Value: account},
		{Key: "message", Value: textOf(reason)},
	}})
}

// blamed returns the participant that a refusal names: the first one that can have that
// reason.
func blamed(claimed bson.D, reason protocol.Reason) (ledger, account string) {
	raw, err := bson.Marshal(claimed)
	if err != nil {
		return "", ""
	}
	t, err := document.DecodeTransfer(raw)
	if err != nil {
		return "", ""
	}
	for p := range t.Participants() {
		fits := p.Leg != nil
		switch reason {
		case protocol.RequirementFailed:
			fits = p.Leg == nil
		case protocol.InsufficientFunds:
			fits = fits && p.Leg.Amount.Sign() < 0
		case protocol.Overflow:
			fits = fits && p.Leg.Amount.Sign() > 0
		case protocol.Unwritable:
			fits = true
		default:
		}
		if fits {
			address, _ := p.Address()
			return address.Name, p.ID()
		}
	}
	return "", ""
}
