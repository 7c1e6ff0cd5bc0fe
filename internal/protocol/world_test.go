package protocol

import (
	"fmt"
	"slices"
	"strconv"
)

const (
	worldAccounts  = 2
	worldTransfers = 2
)

// document is an account as the database stores it.
type document struct {
	gone    bool
	closed  bool
	foreign bool // its currency is not the transfers'
	odd     bool // its balance is not of the amounts' kind
	full    bool // it has no room for what a transfer would move
	balance int64
	floor   int64
	fence   Fence
	markers [worldTransfers]bool
}

func (d *document) marked() bool { return d.markers != [worldTransfers]bool{} }

// record is a transfer as the database stores it.
type record struct {
	found   bool
	state   State
	epoch   int64
	owner   int
	refusal Refusal
}

// version is all that is stored at one moment.
type version struct {
	accounts  [worldAccounts]document
	transfers [worldTransfers]record
}

// message is an operation on its way to the database.
type message struct {
	transfer int
	owner    int // the nonce of the execution that sent it
	op       Operation
	token    Fence // drawn when it was sent
}

// answerTold is what callers were told of one transfer.
type answerTold struct {
	success, refused bool
	unwritten        uint64 // the owners whose callers were told that nothing of theirs is stored
}

// world is a database that performs the operations on simple documents, and remembers what the invariants need.
type world struct {
	version
	amounts [worldTransfers][worldAccounts]int64 // negative takes, positive gives
	given   [worldAccounts]int64                 // put in from outside: the opening balances and what came in later
	limit   int                                  // of markers on one account
	told    [worldTransfers]answerTold
	flight  []message // sent, and neither arrived nor lost
	tokens  int
	past    []version // what reads that don't decide may show; the first one is the beginning
	history bool      // past grows
	bend    *mutant   // nil: nothing is broken
}

// newWorld returns a world in which each transfer moves its amount from the first account to the second one.
func newWorld(balances [worldAccounts]int64, amounts ...int64) world {
	w := world{given: balances, limit: worldTransfers + 1}
	for i, balance := range balances {
		w.accounts[i].balance = balance
	}
	for i, amount := range amounts {
		w.amounts[i] = [worldAccounts]int64{-amount, amount}
	}
	w.past = []version{w.version}
	return w
}

// fork returns a world that goes its own way from here.
func (w *world) fork() world {
	fork := *w
	fork.past, fork.flight = slices.Clip(w.past), slices.Clone(w.flight)
	return fork
}

// send draws up the message of an operation. Each sending has a token that was never used before.
func (w *world) send(transfer, owner int, op Operation) message {
	w.tokens++
	m := message{transfer: transfer, owner: owner, op: op, token: Fence("t" + strconv.Itoa(w.tokens))}
	if w.bend != nil && w.bend.send != nil {
		m = w.bend.send(w, m)
	}
	return m
}

// arrive performs a message and checks the invariants.
func (w *world) arrive(m message) (Answer, error) {
	before := w.version
	answer := w.performBent(m)
	if w.history && w.version != before {
		w.past = append(w.past, w.version)
	}
	return answer, w.check(&before)
}

func (w *world) performBent(m message) Answer {
	if w.bend != nil && w.bend.perform != nil && w.bend.kind == m.op.Kind {
		return w.bend.perform(w, m)
	}
	return w.perform(m)
}

// read answers a read from what was stored at some moment.
func (w *world) read(at *version, m message) Answer {
	if m.op.Kind == ReadTransfer || m.op.Kind == LookTransfer {
		return Answer{Result: Applied, Transfer: at.image(m)}
	}
	return Answer{Result: Applied, Facts: w.facts(at, m)}
}

// perform performs one operation as the protocol describes it.
func (w *world) perform(m message) Answer {
	r := &w.transfers[m.transfer]
	switch m.op.Kind {
	case ReadFence, ReadTransfer, Look, LookTransfer:
		return w.read(&w.version, m)
	case Claim:
		return w.claim(r, m)
	case Verify:
		return matched(r.state == Preparing && r.epoch == m.op.Epoch && r.owner == m.owner)
	case Decide:
		if r.state != Preparing || r.epoch != m.op.Epoch {
			return matched(false)
		}
		r.state, r.refusal = m.op.To, m.op.Refusal
		return matched(true)
	case Finish:
		if (r.state != Committed || m.op.To != Success) && (r.state != Rollback || m.op.To != Fail) {
			return matched(false)
		}
		r.state = m.op.To
		return matched(true)
	case Prepare:
		return w.prepare(m)
	case Settle, Undo, FenceOnly:
		return w.clear(m)
	}
	panic(fmt.Sprintf("no such operation: %d", m.op.Kind))
}

func matched(yes bool) Answer {
	if yes {
		return Answer{Result: Applied}
	}
	return Answer{Result: NotMatched}
}

// claim performs a claim. Every transfer is as old as it takes: the threshold is zero.
func (w *world) claim(r *record, m message) Answer {
	fits := false
	switch m.op.Claiming {
	case Insert:
		fits = !r.found
	case FromInitiated:
		fits = r.state == Initiated
	case TakeOver:
		fits = r.state == Preparing || r.state == Committed || r.state == Rollback
	case TakeToCancel:
		fits = r.state == Preparing
	case CancelInitiated:
		fits = r.state == Initiated
	}
	if !fits {
		return matched(false)
	}
	switch {
	case m.op.Claiming == CancelInitiated:
		r.state, r.refusal = Rollback, m.op.Refusal
	case !r.found, r.state == Initiated:
		r.state = Preparing
	}
	r.found, r.epoch, r.owner = true, r.epoch+1, m.owner
	return Answer{Result: Applied, Transfer: w.image(m)}
}

func (v *version) image(m message) Image {
	r := v.transfers[m.transfer]
	return Image{Found: r.found, State: r.state, Epoch: r.epoch, Mine: r.found && r.owner == m.owner}
}

// facts judges a participant as it was stored at some moment.
func (w *world) facts(at *version, m message) Facts {
	d := &at.accounts[m.op.Participant]
	if d.gone {
		return Facts{}
	}
	inFlight := 0
	for _, marker := range d.markers {
		if marker {
			inFlight++
		}
	}
	amount := w.amounts[m.transfer][m.op.Participant]
	return Facts{
		Found: true, Marker: d.markers[m.transfer], Fence: d.fence, Open: !d.closed, Currency: !d.foreign, Kind: !d.odd,
		Free: inFlight < w.limit, Funds: amount > 0 || d.balance+amount >= d.floor, Room: !d.full,
	}
}

func (w *world) prepare(m message) Answer {
	d, facts := &w.accounts[m.op.Participant], w.facts(&w.version, m)
	facts.Free = true // judged by reads only
	if facts.Marker || facts.refusal() != 0 || facts.Fence != m.op.Fence {
		return matched(false)
	}
	w.mark(d, m)
	return matched(true)
}

func (w *world) mark(d *document, m message) {
	d.markers[m.transfer] = true
	d.balance += min(0, w.amounts[m.transfer][m.op.Participant])
}

// clear performs a settle, an undo or a fence-only.
func (w *world) clear(m message) Answer {
	d := &w.accounts[m.op.Participant]
	if d.gone || d.markers[m.transfer] == (m.op.Kind == FenceOnly) {
		return matched(false)
	}
	w.unmark(d, m)
	return matched(true)
}

func (w *world) unmark(d *document, m message) {
	amount := w.amounts[m.transfer][m.op.Participant]
	switch m.op.Kind {
	case Settle:
		d.balance += max(0, amount)
	case Undo:
		d.balance -= min(0, amount)
	}
	d.markers[m.transfer] = false
	if m.op.Kind == FenceOnly || m.op.ReplaceFence {
		d.fence = m.token
	}
}

// tell records what a caller may be told by an execution as it stands, and checks that it is true.
func (w *world) tell(transfer, owner int, x *Execution) error {
	told := &w.told[transfer]
	switch {
	case x.State() == Committed, x.State() == Success:
		told.success = true
	case x.State() == Rollback, x.State() == Fail:
		told.refused = true
		if stored := w.transfers[transfer].refusal; x.decision == Rollback && x.Refusal() != stored {
			return violates(5, "%v was told and %v is stored", x.Refusal(), stored)
		}
	case x.Outcome() == Unclaimable && x.start.Claiming == Insert && !x.ClaimInDoubt():
		told.unwritten |= 1 << owner
	}
	r := w.transfers[transfer]
	mine := r.owner == owner && r.epoch == x.epoch && r.state == x.State()
	if x.Outcome() == Finished && r.state != x.State() || x.Outcome() == Overtaken && mine || x.Outcome() == Gone && r.found {
		return violates(5, "executor %d ends with outcome %d, and transfer %d is %q", owner, x.Outcome(), transfer, r.state)
	}
	return w.check(&w.version)
}
