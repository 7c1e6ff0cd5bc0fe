package simulate

import (
	"slices"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// moveKind is a kind of things that happen in a run.
type moveKind uint8

const (
	join         moveKind = iota + 1 // an executor begins
	perform                          // an operation that an executor wants meets its fate
	deliver                          // a message that was on its way arrives
	answerLate                       // an answer that was on its way arrives
	hurry                            // an executor may wait no longer for a busy account
	closeAccount                     // an account without markers is closed
	seal                             // somebody writes closed: true into an account by hand
	create                           // somebody inserts a document that was missing, without a fence
	reopen                           // an account is opened
	deposit                          // an account gets money from outside
	failOver                         // another member becomes the primary
	finish                           // an executor goes on without faults until it ends
	recovery                         // what a recovery would make of all this is tried out
)

// move is what happens next in a run. It names what it is about so that it can be made in another run, which lacks some of the
// moves before it.
type move struct {
	kind moveKind
	who  int           // the executor, the account, or the recovery's policy
	op   protocol.Kind // perform, deliver, answerLate: what the executor has asked for
	at   int           // the participant that it is for
	fate Fate          // perform
	past int           // perform, with a stale read: which version it shows
	nth  int           // deliver: which of several such messages
}

// names reports whether an operation is the one that a move is about.
func (m move) names(op protocol.Operation) bool { return op.Kind == m.op && op.Participant == m.at }

// depositAmount is what comes in from outside at once: enough to pay for one transfer of the random runs.
const depositAmount = 60

// delivery returns the move in which a message in flight arrives.
func (r *run) delivery(which int) move {
	sent := r.w.flight[which]
	m := move{kind: deliver, op: sent.Op.Kind, at: sent.Op.Participant}
	m.who = slices.IndexFunc(r.executors, func(e executor) bool { return e.owner == sent.Owner })
	for _, earlier := range r.w.flight[:which] {
		if earlier.Owner == sent.Owner && m.names(earlier.Op) {
			m.nth++
		}
	}
	return m
}

// take lets a move happen and checks the invariants. A move that is not possible changes nothing.
func (r *run) take(m move) error {
	switch m.kind {
	case join:
		return r.join(m.who)
	case perform:
		return r.perform(m)
	case deliver:
		return r.deliver(m)
	case answerLate:
		return r.answerLate(m)
	case hurry:
		r.hurry(m.who)
	case closeAccount, seal, create, reopen, deposit:
		return r.disturb(m)
	case failOver:
		r.note("the primary falls, and another one has what a majority had")
		r.w.failOver()
		r.noteChanges()
		return r.w.check(&r.w.Version)
	case finish:
		return r.finish(m.who)
	case recovery:
		return r.recovers(policies()[m.who])
	}
	return nil
}

func (r *run) hurry(who int) {
	if e := &r.executors[who]; e.x != nil {
		e.own()
		e.x.Hurry()
		e.start.Patient = false
	}
}

// disturb does to an account what others may do to it at any time.
func (r *run) disturb(m move) error {
	a, before := &r.w.Accounts[m.who], r.w.Version
	switch {
	case a.Missing && m.kind == create:
		r.faults--
		*a = Account{Balance: depositAmount}
		r.w.given[m.who] += depositAmount
	case a.Missing:
		return nil
	case m.kind == closeAccount && !a.marked():
		a.Closed = true
	case m.kind == seal && !a.Closed:
		a.Closed, a.Sealed = true, true
	case m.kind == reopen:
		a.Closed, a.Sealed = false, false
	case m.kind == deposit && !a.Closed:
		a.Balance += depositAmount
		r.w.given[m.who] += depositAmount
	}
	if r.w.Version == before {
		return nil
	}
	r.w.replicate()
	r.note("somebody else changes %s", accountName(m.who))
	r.noteChanges()
	return r.w.check(&before)
}

// perform lets one operation of an executor meet its fate.
func (r *run) perform(m move) error {
	e := &r.executors[m.who]
	which := slices.IndexFunc(e.batch, m.names)
	if which < 0 {
		return nil
	}
	e.own()
	op := e.batch[which]
	e.batch = slices.Delete(e.batch, which, which+1)
	if m.fate != answered {
		r.faults--
	}
	e.refused = e.refused || m.fate == refusedByServer
	if r.met != nil {
		r.met[op.Kind][m.fate]++
	}
	before := r.w.Version
	sent := r.w.Send(e.transfer, e.owner, op)
	answer := r.w.meet(sent, m.fate, min(m.past, len(r.w.past)-1))
	switch m.fate {
	case answeredLate:
		r.late = append(r.late, lateAnswer{who: m.who, op: op, answer: answer})
		r.noteSent(sent, m.fate, 0)
	case unheard:
		r.noteSent(sent, m.fate, 0)
	default:
		r.noteSent(sent, m.fate, answer.Result)
		e.x.Observe(op, answer)
	}
	r.noteChanges()
	if err := r.w.check(&before); err != nil {
		return err
	}
	if err := r.w.tell(e); err != nil {
		return err
	}
	if len(e.batch) > 0 {
		return nil
	}
	return r.ask(e)
}

// deliver lets a message arrive that was on its way. Nobody hears its answer.
func (r *run) deliver(m move) error {
	which, skip := -1, m.nth
	for i, sent := range r.w.flight {
		if sent.Owner != r.executors[m.who].owner || !m.names(sent.Op) {
			continue
		}
		if which = i; skip == 0 {
			break
		}
		skip--
	}
	if which < 0 {
		return nil
	}
	sent, before := r.w.flight[which], r.w.Version
	r.w.flight = slices.Delete(r.w.flight, which, which+1)
	r.arrive(sent)
	r.noteChanges()
	return r.w.check(&before)
}

// arrive lets the database perform a message that is late. Nobody hears the answer.
func (r *run) arrive(late Message) {
	if r.story != nil {
		r.note("late: %s", r.w.describe(late))
	}
	r.w.Perform(late)
}

// lateAnswer is an answer that has not come in time.
type lateAnswer struct {
	who    int
	op     protocol.Operation
	answer protocol.Answer
}

// answerLate hands over an answer that has not come in time.
func (r *run) answerLate(m move) error {
	which := slices.IndexFunc(r.late, func(late lateAnswer) bool { return late.who == m.who && m.names(late.op) })
	if which < 0 {
		return nil
	}
	late := r.late[which]
	r.late = slices.Delete(slices.Clone(r.late), which, which+1)
	e := &r.executors[late.who]
	e.own()
	r.note("%s hears late of %s: %s", executorName(e.owner), late.op.Kind, late.answer.Result)
	e.x.Observe(late.op, late.answer)
	return r.w.tell(e)
}
