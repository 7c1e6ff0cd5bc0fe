package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/engine"
)

// The audit has teeth: it finds each way in which documents at rest can be wrong.
func TestAuditFinds(t *testing.T) {
	b := bank{seed: 1, accounts: leastAccounts}
	moved := drainID(doorName(0), 7, "x")
	sound := func() *audit {
		a := &audit{bank: b, findings: newFindings(), accounts: map[string]accountDocument{}, transfers: map[string]transferDocument{}}
		for id, account := range b.initial() {
			a.accounts[id] = accountDocument{ID: id, Balance: units(account.Balance)}
		}
		legs := []legDocument{{doorName(0), -7}, {accountName(0), 7}}
		a.transfers[moved] = transferDocument{ID: moved, State: transfer.StateSuccess, Legs: legs}
		for _, leg := range legs {
			change(a, leg.Account, leg.Amount)
		}
		return a
	}
	tests := map[string]func(*audit){
		"":                                     func(*audit) {},
		"account-1 has 999":                    func(a *audit) { change(a, accountName(1), -1) },
		"account-0 has 1007, and the":          func(a *audit) { become(a, moved, transfer.StateFail) },
		"is not final":                         func(a *audit) { become(a, moved, transfer.StateCommitted) },
		"was Committed and is Fail":            func(a *audit) { become(a, moved, transfer.StateFail) },
		"has a marker left":                    func(a *audit) { mark(a, doorName(1), moved) },
		"there are 13 accounts, not 12":        func(a *audit) { a.accounts["more"] = accountDocument{ID: "more"} },
		"nobody asked for transfer stray":      func(a *audit) { become(a, "stray", transfer.StateFail) },
		"is not what was asked for: {drain do": func(a *audit) { a.transfers[moved].Legs[0].Amount = -8 },
	}
	for want, spoil := range tests {
		a := sound()
		spoil(a)
		a.balances()
		a.states(map[string]int{moved: 1}, map[string]transfer.State{moved: transfer.StateCommitted})
		_, told := a.findings.all()
		if want == "" {
			require.Empty(t, told)
			continue
		}
		require.Contains(t, strings.Join(told, "\n"), want)
	}
}

// The audit accepts true answers and finds false ones.
func TestLies(t *testing.T) {
	success := transferDocument{State: transfer.StateSuccess}
	success.Metadata.Call = "mine"
	fail := transferDocument{State: transfer.StateFail}
	fail.Failure.Code = "insufficientFunds"
	told := func(v verb, w word, s transfer.State) entry { return entry{Call: "mine", Verb: v, Word: w, State: s} }
	tests := []struct {
		name   string
		entry  entry
		stored *transferDocument
		lie    bool
	}{
		{"success", told(verbTransfer, done, transfer.StateSuccess), &success, false},
		{"success, as soon as committed", told(verbTransfer, done, transfer.StateCommitted), &success, false},
		{"success of a failed one", told(verbTransfer, done, transfer.StateSuccess), &fail, true},
		{"success of a missing one", told(verbTransfer, done, transfer.StateSuccess), nil, true},
		{"success that is none", told(verbTransfer, done, transfer.StateFail), &fail, true},
		{"refusal", entry{Verb: verbTransfer, Word: refused, Code: "insufficientFunds"}, &fail, false},
		{"refusal for another reason", entry{Verb: verbTransfer, Word: refused, Code: "accountClosed"}, &fail, true},
		{"refusal of a successful one", entry{Verb: verbTransfer, Word: refused, Code: "insufficientFunds"}, &success, true},
		{"doubt", told(verbTransfer, inDoubt, ""), nil, false},
		{"nothing written, by this call", told(verbTransfer, unwritten, ""), &success, true},
		{"nothing written, but by another", entry{Call: "another", Verb: verbTransfer, Word: unwritten}, &success, false},
		{"cancelled", told(verbCancel, done, transfer.StateFail), &fail, false},
		{"cancelled, and went on", told(verbCancel, done, transfer.StateFail), &success, true},
		{"too late to cancel", told(verbCancel, tooLate, ""), &success, false},
		{"too late to cancel a failed one", told(verbCancel, tooLate, ""), &fail, true},
		{"not found", told(verbCancel, notFound, ""), &success, false},
		{"not found, though known", entry{Verb: verbWait, Word: notFound, Known: true}, &success, true},
		{"not found, though known, by what may be old", entry{Verb: verbGet, Word: notFound, Known: true}, &success, false},
		{"conflict", told(verbConflict, conflict, ""), &success, false},
		{"conflict with itself", told(verbTransfer, conflict, ""), &success, true},
		{"no conflict", told(verbConflict, done, transfer.StateSuccess), &success, true},
		{"rejected", told(verbTransfer, rejected, ""), nil, true},
		{"submitted and lost", told(verbSubmit, done, transfer.StateInitiated), nil, true},
		{"submitted and too late", told(verbSubmit, tooLate, ""), &success, true},
		{"asked for and not found", told(verbTransfer, notFound, ""), nil, true},
		{"looked at and not found", told(verbGet, notFound, ""), nil, false},
		{"looked at and refused", entry{Verb: verbGet, Word: refused, Code: "insufficientFunds"}, &fail, true},
		{"a transfer that is kept open", told(verbTransfer, keptOpen, ""), &success, true},
		{"closed", told(verbClose, done, ""), nil, false},
		{"not closed", told(verbClose, keptOpen, ""), nil, false},
		{"not reopened", told(verbReopen, keptOpen, ""), nil, true},
		{"closed and rejected", told(verbClose, rejected, ""), nil, true},
		{"frozen", told(verbFreeze, done, ""), nil, false},
		{"not unfrozen", told(verbUnfreeze, keptOpen, ""), nil, true},
		{"never answered", told(verbCancel, unanswered, ""), nil, false},
		{"rolled back, and went on", told(verbGet, done, transfer.StateRollback), &success, true},
	}
	for _, test := range tests {
		document, stored := transferDocument{}, test.stored != nil
		if stored {
			document = *test.stored
		}
		lie := lieOf(test.entry, document, stored)
		require.Equal(t, test.lie, lie != "", "%s: %s", test.name, lie)
	}
}

// An answer comes no earlier than its caller wants it, and is true in the end.
func TestEarlyAnswers(t *testing.T) {
	success, fail := transferDocument{State: transfer.StateSuccess}, transferDocument{State: transfer.StateFail}
	for _, test := range []struct {
		verb   verb
		at     transfer.ReturnAt
		text   string
		stored transferDocument
		lie    bool
	}{
		{verbTransfer, transfer.AtSuccess, "", success, true},
		{verbReverse, transfer.AtSuccess, "", success, true},
		{verbWait, transfer.AtCommit, "", success, true},
		{verbTransfer, transfer.AtSuccess, "not settled yet", success, false},
		{verbTransfer, transfer.AtSettled, "", success, false},
		{verbTransfer, transfer.AtCommit, "", success, false},
		{verbTransfer, transfer.AtCommit, "", fail, true},
	} {
		e := entry{Verb: test.verb, Word: done, State: transfer.StateCommitted, ReturnAt: test.at, Text: test.text}
		require.Equal(t, test.lie, lieOf(e, test.stored, true) != "", "%+v", test)
	}
}

// An error that the library doesn't document for such calls does not count as "nothing
// was stored".
func TestWordOf(t *testing.T) {
	tests := []struct {
		err  error
		want word
	}{
		{nil, done},
		{fmt.Errorf("%w: %w", transfer.ErrInDoubt, context.DeadlineExceeded), inDoubt},
		{fmt.Errorf("%w: %w", transfer.ErrUnsettled, context.DeadlineExceeded), done},
		{&transfer.RefusedError{Err: transfer.ErrAccountBusy}, refused},
		{transfer.ErrCancelled, refused},
		{fmt.Errorf("account: %w", transfer.ErrAccountBusy), keptOpen},
		{transfer.ErrAccountNotEmpty, keptOpen},
		{context.DeadlineExceeded, unwritten},
		{transfer.ErrClosed, unwritten},
		{fmt.Errorf("transfer: %w", engine.ErrNothingSent), unwritten},
		{transfer.ErrAccountNotFound, rejected},
		{transfer.ErrInvalidRequest, rejected},
		{errors.New("the server answered strangely"), rejected},
	}
	for _, test := range tests {
		require.Equal(t, test.want, wordOf(test.err), "%v", test.err)
	}
}

// For each cancelled transfer there is a caller that may have cancelled it.
func TestCancellations(t *testing.T) {
	tests := []struct {
		told  []entry
		found int
	}{
		{nil, 1},
		{[]entry{{Verb: verbCancel, Word: unwritten}}, 1},
		{[]entry{{Verb: verbCancel, Word: notFound}, {Verb: verbTransfer, Word: done}}, 1},
		{[]entry{{Verb: verbCancel, Word: unwritten}, {Verb: verbCancel, Word: done}}, 0},
		{[]entry{{Verb: verbCancel, Word: inDoubt}}, 0},
		{[]entry{{Verb: verbCancel, Word: unanswered}}, 0},
	}
	for _, test := range tests {
		document := transferDocument{State: transfer.StateFail}
		document.Failure.Code = "cancelled"
		a := &audit{findings: newFindings(), transfers: map[string]transferDocument{"": document}}
		a.cancellations(test.told)
		found, _ := a.findings.all()
		require.Equal(t, test.found, found, "%v", test.told)
	}
}

func change(a *audit, account string, by int64) {
	document := a.accounts[account]
	document.Balance += by
	a.accounts[account] = document
}

func become(a *audit, id string, state transfer.State) {
	document := a.transfers[id]
	document.ID, document.State = id, state
	a.transfers[id] = document
}

func mark(a *audit, account, id string) {
	document := a.accounts[account]
	document.Pending = map[string]int64{id: 1}
	a.accounts[account] = document
}

// The audit finds an event that was not delivered, one that is not true, one that came
// twice and not as before, and what is left to be delivered.
func TestAuditFindsEvents(t *testing.T) {
	at := time.Now()
	got := func(kind transfer.EventKind, state transfer.State) receipts {
		return receipts{times: 1, first: receipt{ID: "t:" + string(kind), Kind: kind, Transfer: "t", State: state, At: at, Attempt: 1}}
	}
	posted := func() (*audit, map[string]receipts) {
		a := &audit{findings: newFindings(), transfers: map[string]transferDocument{}}
		a.transfers["t"] = transferDocument{ID: "t", State: transfer.StateSuccess, Hold: true, Held: true}
		return a, map[string]receipts{
			"t:held": got(transfer.EventHeld, transfer.StatePreparing), "t:succeeded": got(transfer.EventSucceeded, transfer.StateSuccess),
		}
	}
	for want, spoil := range map[string]func(*audit, map[string]receipts){
		"":                                      func(*audit, map[string]receipts) {},
		"event t:held was never delivered":      func(_ *audit, r map[string]receipts) { delete(r, "t:held") },
		"event t:succeeded was never delivered": func(_ *audit, r map[string]receipts) { delete(r, "t:succeeded") },
		"event t:failed was delivered, and is none": func(_ *audit, r map[string]receipts) {
			r["t:failed"] = got(transfer.EventFailed, transfer.StateFail)
		},
		"event t:succeeded came with a record in Committed": func(_ *audit, r map[string]receipts) {
			r["t:succeeded"] = got(transfer.EventSucceeded, transfer.StateCommitted)
		},
		"transfer t has events left": func(a *audit, _ map[string]receipts) {
			document := a.transfers["t"]
			document.Outbox = []bson.M{{"kind": "succeeded"}}
			a.transfers["t"] = document
		},
		", and then as ": func(_ *audit, r map[string]receipts) {
			j := newJournal()
			for _, when := range []time.Time{at, at.Add(time.Second)} {
				j.delivered(receipt{ID: "t:succeeded", Kind: transfer.EventSucceeded, Transfer: "t", State: transfer.StateSuccess, At: when})
			}
			r["t:succeeded"] = j.receiptsNow()["t:succeeded"]
		},
	} {
		a, delivered := posted()
		spoil(a, delivered)
		a.events(delivered)
		_, told := a.findings.all()
		if want == "" {
			require.Empty(t, told)
			continue
		}
		require.Contains(t, strings.Join(told, "\n"), want)
	}
}
