package chaos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
)

// audit compares everything that is stored, once it is at rest, with what must be there.
type audit struct {
	bank      bank
	findings  *findings
	when      string
	accounts  map[string]accountDocument
	transfers map[string]transferDocument
	orders    map[string]orderDocument
}

// newAudit reads everything.
func newAudit(ctx context.Context, db *mongo.Database, b bank, f *findings, when string) (*audit, error) {
	a := &audit{
		bank: b, findings: f, when: when,
		accounts: map[string]accountDocument{}, transfers: map[string]transferDocument{}, orders: map[string]orderDocument{},
	}
	var accounts []accountDocument
	if err := readAll(ctx, db.Collection("accounts"), bson.D{}, &accounts); err != nil {
		return nil, err
	}
	for _, document := range accounts {
		a.accounts[document.ID] = document
	}
	var transfers []transferDocument
	if err := readAll(ctx, db.Collection("transfers"), bson.D{}, &transfers); err != nil {
		return nil, err
	}
	for _, document := range transfers {
		a.transfers[document.ID] = document
	}
	var all []orderDocument
	if err := readAll(ctx, db.Collection(orders), bson.D{}, &all); err != nil {
		return nil, err
	}
	for _, document := range all {
		a.orders[document.ID] = document
	}
	return a, nil
}

// wrong records what is wrong with a subject, with the subject's document.
func (a *audit) wrong(subject string, document fmt.Stringer, format string, args ...any) {
	a.findings.add(subject, "%s: %s\n    %s", a.when, fmt.Sprintf(format, args...), document)
}

// balances checks that each account has exactly the balance that the successful transfers
// make of the initial one, and no marker.
func (a *audit) balances() {
	want := map[string]int64{}
	for id, account := range a.bank.initial() {
		want[id] = units(account.Balance)
	}
	for _, t := range a.transfers {
		if t.State != transfer.StateSuccess {
			continue
		}
		for _, leg := range t.moved() {
			want[leg.Account] += leg.Amount
		}
	}
	for _, id := range slices.Sorted(maps.Keys(want)) {
		account := a.accounts[id]
		if account.Balance != want[id] {
			a.wrong("balance "+id, account, "account %s has %d, and the successful transfers make it %d", id, account.Balance, want[id])
		}
		for key := range account.Pending {
			marker, _ := traceOf(key)
			a.wrong("marker "+id+" "+marker, account, "account %s has a marker left\n    %s", id, a.transfers[marker])
		}
	}
	if len(a.accounts) != len(want) {
		a.findings.add("accounts", "%s: there are %d accounts, not %d", a.when, len(a.accounts), len(want))
	}
}

// states checks that each transfer was asked for, is final, and has kept the decision
// that snapshots have shown.
func (a *audit) states(asked map[string]int, decided map[string]transfer.State) {
	for id, t := range a.transfers {
		if asked[id] == 0 {
			a.wrong("asked "+id, t, "nobody asked for transfer %s", id)
			continue
		}
		if !t.State.Final() {
			a.wrong("final "+id, t, "transfer %s is not final", id)
		}
		if before := decided[id]; before != "" && t.forward() != (before == transfer.StateCommitted) {
			a.wrong("decision "+id, t, "transfer %s was %s and is %s", id, before, t.State)
		}
		if !a.asAsked(t) {
			a.wrong("legs "+id, t, "transfer %s is not what was asked for: %v", id, a.bank.request(id))
		}
	}
}

// asAsked reports whether a transfer has the legs of the request that its ID stands for.
func (a *audit) asAsked(t transferDocument) bool {
	have := map[string]int64{}
	for _, leg := range t.Legs {
		have[leg.Account] += leg.Amount
	}
	if t.Reverses != "" {
		return a.asReversal(t, have)
	}
	want := map[string]int64{}
	req := a.bank.request(t.ID)
	for _, leg := range req.Legs {
		want[leg.Account] += units(leg.Amount)
	}
	if req.From != "" {
		want[req.From], want[req.To] = -units(req.Amount), units(req.Amount)
	}
	return maps.Equal(want, have)
}

// answers checks that every answer that any caller got is true.
func (a *audit) answers(entries []entry) {
	for _, e := range entries {
		t, stored := a.transfers[e.ID]
		if lie := lieOf(e, t, stored); lie != "" {
			told := fmt.Sprintf("%q, state %q, code %q (%s)", e.Word, e.State, e.Code, e.Text)
			a.wrong("call "+e.Call, t, "call %s, %s %s, was told %s: %s", e.Call, e.Verb, e.ID, told, lie)
		}
	}
}

// cancellations checks that a caller may have cancelled each cancelled transfer: one
// whose answer doesn't rule that out.
func (a *audit) cancellations(entries []entry) {
	may := map[string]bool{}
	for _, e := range entries {
		if e.Verb == verbCancel && (e.Word == done || e.Word == inDoubt || e.Word == unanswered) {
			may[e.ID] = true
		}
	}
	for id, t := range a.transfers {
		if t.Failure.Code == "cancelled" && !may[id] {
			a.wrong("cancelled "+id, t, "transfer %s is cancelled, and nobody who asked for that was told so, or left in doubt", id)
		}
	}
}

// lieOf returns what is not true about an answer, or "" if all of it is true.
func lieOf(e entry, t transferDocument, stored bool) string {
	if !possible(e.Verb, e.Word) {
		return "this is no answer to such a call"
	}
	if e.Verb.changesAccount() {
		return "" // Accounts change all the time: see doors.
	}
	switch e.Word {
	case unanswered, inDoubt: // These are always true.
		return ""
	case unwritten:
		if stored && t.Metadata.Call == e.Call {
			return "this very call has stored it"
		}
		return ""
	case notFound:
		// A primary that was replaced and doesn't know it yet may answer Get with an old
		// state, as Get documents.
		return lieIf(e.Known && e.Verb != verbGet, "the caller knew that it is stored")
	case alreadyReversed, reversalExceeds, notReversible:
		return "" // These answers are about the original: see reversals.
	case done, refused, conflict, tooLate, rejected, keptOpen, notHeld:
	}
	if !stored {
		return "it is not stored"
	}
	return lieOfStored(e, t)
}

// possible reports whether a verb may answer with a word.
// No call of these workers should be rejected.
func possible(v verb, w word) bool {
	switch w {
	case unanswered, inDoubt, unwritten, done:
		return true
	case refused:
		return v.stores() || v == verbWait || v == verbPost || v == verbExtend
	case rejected:
		return false
	default:
		return slices.Contains(verbsOf()[w], v)
	}
}

// verbsOf returns the verbs that may answer with a word, for the words that only some
// verbs use.
func verbsOf() map[word][]verb {
	return map[word][]verb{
		conflict:        {verbConflict, verbPost},
		tooLate:         {verbCancel, verbVoid, verbExtend},
		notFound:        {verbCancel, verbGet, verbWait, verbPost, verbVoid, verbExtend, verbReverse},
		notHeld:         {verbPost, verbExtend},
		alreadyReversed: {verbReverse},
		reversalExceeds: {verbReverse},
		notReversible:   {verbReverse},
		keptOpen:        {verbClose},
	}
}

// lieOfStored returns what is not true about an answer on a stored transfer.
func lieOfStored(e entry, t transferDocument) string {
	switch {
	case e.Verb == verbPost && e.Word == conflict:
		return lieIf(!t.forward() || t.Posted == e.Part, "it was not posted with another amount")
	case (e.Verb == verbConflict) != (e.Word == conflict):
		return "another payload must be told a conflict, and no other one may be"
	case e.Word == notHeld:
		// Extend says it of what was voided, too.
		voided := e.Verb == verbExtend && !t.forward() && t.Failure.Code != "expired"
		return lieIf(e.Held && !voided, "the caller knew that it is held, or has been")
	case e.Word == refused && (t.State != transfer.StateFail || t.Failure.Code != e.Code):
		return "it is not what is stored"
	case e.Word == tooLate && t.State != transfer.StateSuccess:
		return "it was not committed"
	case e.Word == done:
		return lieOfRecord(e, t)
	}
	return ""
}

func lieIf(lies bool, what string) string {
	if lies {
		return what
	}
	return ""
}

// lieOfRecord returns what is not true about the record in an answer.
func lieOfRecord(e entry, t transferDocument) string {
	forward := e.State == transfer.StateCommitted || e.State == transfer.StateSuccess
	back := e.State == transfer.StateRollback || e.State == transfer.StateFail
	if forward && !t.forward() || back && t.forward() {
		return "it has not stayed so"
	}
	if e.early() {
		return "it was not finished, and the caller waits for that"
	}
	switch e.Verb {
	case verbTransfer, verbWait, verbReverse:
		return lieIf(!forward, "this is not what success looks like")
	case verbPost, verbHold, verbExtend:
		return lieOfHold(e, t)
	case verbCancel, verbVoid:
		return lieIf(e.State != transfer.StateFail, "this is not what a cancelled transfer looks like")
	case verbSubmit, verbGet, verbConflict, verbClose, verbReopen, verbFreeze, verbUnfreeze, verbRecover:
	}
	return ""
}

// lieOfHold returns what is not true about the record in an answer to what is done with a
// hold.
func lieOfHold(e entry, t transferDocument) string {
	const unlike = "this is not what a hold looks like"
	forward := e.State == transfer.StateCommitted || e.State == transfer.StateSuccess
	switch e.Verb {
	case verbPost:
		return lieIf(!forward || t.Posted != e.Part, unlike+" that was posted")
	case verbExtend:
		lasts := e.State == transfer.StatePreparing && t.Held && !t.ExpiresAt.Before(e.ExpiresAt)
		if !lasts {
			return unlike + " that was extended"
		}
		early := t.Failure.Code == "expired" && t.LastModified.Before(e.ExpiresAt.Add(-clockError))
		return lieIf(early, "it was to expire later")
	default:
		return lieIf(e.State == transfer.StateRollback || e.State == transfer.StateFail || !t.Held, unlike)
	}
}

// clockError is by how much the times of two processes may differ.
const clockError = 500 * time.Millisecond
