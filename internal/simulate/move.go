package simulate

import (
	"slices"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// moveKind is a kind of event in a run.
type moveKind uint8

const (
	join         moveKind = iota + 1 // an executor begins
	perform                          // an operation of an executor meets its fate
	deliver                          // a message that was on its way arrives
	answerLate                       // an answer that was on its way arrives
	hurry                            // an executor may no longer wait for a busy account
	closeAccount                     // an account without markers is closed
	seal                             // closed: true is written into an account by hand
	create                           // a missing document is inserted without a fence
	reopen                           // an account is opened
	freeze                           // an account is frozen, which replaces its fence
	thaw                             // it is unfrozen, which replaces its fence
	deposit                          // an account gets money from outside
	change                           // a document that is not reserved is written from outside
	purge                            // a document is removed that may be
	elapse                           // a hold expires
	extend                           // a hold is made to expire later
	failOver                         // another member becomes the primary
	finish                           // an executor goes on without faults until it ends
	recovery                         // a recovery of all this is tried out
)

// move is what happens next in a run.
// It names what it is about, so that it can be made in another run that lacks some of the
// moves before it.
type move struct {
	kind moveKind
	who  int           // the executor, the account, or the recovery's policy
	op   protocol.Kind // perform, deliver, answerLate: what the executor has asked for
	at   int           // the participant that it is for
	fate Fate          // perform
	past int           // perform, with a stale read: which version it shows
	nth  int           // deliver: which of several such messages
	with []asked       // perform, deliver: what travels in the same update
}

// asked names an operation that an executor has asked for.
type asked struct {
	who int
	op  protocol.Kind
	at  int
}

// names reports whether an operation is the one that was asked for.
func (a asked) names(op protocol.Operation) bool { return op.Kind == a.op && op.Participant == a.at }

// depositAmount is what comes in from outside at once: enough for one transfer of the
// random runs.
const depositAmount = 60

// all returns the operations that a move is about.
func (m move) all() []asked { return append([]asked{{who: m.who, op: m.op, at: m.at}}, m.with...) }

// delivery returns the move in which something in flight arrives.
func (r *run) delivery(which int) move {
	var all []asked
	for _, sent := range r.w.flight[which] {
		who := slices.IndexFunc(r.executors, func(e executor) bool { return e.same(sent.Owner) })
		all = append(all, asked{who: who, op: sent.Op.Kind, at: sent.Op.Participant})
	}
	m := move{kind: deliver, who: all[0].who, op: all[0].op, at: all[0].at, with: all[1:]}
	for _, earlier := range r.w.flight[:which] {
		if r.carries(m, earlier) {
			m.nth++
		}
	}
	return m
}

// carries reports whether something in flight is what a move is about.
func (r *run) carries(m move, flying []Message) bool {
	return slices.EqualFunc(m.all(), flying, func(a asked, sent Message) bool {
		return r.executors[a.who].same(sent.Owner) && a.op == sent.Op.Kind && a.at == sent.Op.Participant
	})
}

// take makes a move and checks the invariants.
// A move that is not possible changes nothing.
func (r *run) take(m move) error {
	switch m.kind {
	case join:
		return r.join(m.who)
	case perform:
		if len(m.with) > 0 {
			return r.performMerged(m)
		}
		return r.perform(m)
	case deliver:
		return r.deliver(m)
	case answerLate:
		return r.answerLate(m)
	case hurry:
		r.hurry(m.who)
	case closeAccount, seal, create, reopen, freeze, thaw, deposit, change, purge:
		return r.disturb(m)
	case elapse:
		if r.w.Holds[m.who] && !r.w.Expired[m.who] {
			r.w.Expired[m.who] = true
			r.note("the time of %s is over", transferName(m.who))
		}
	case extend:
		return r.extend(m.who)
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

// extend lets a hold expire later, and its caller hears of it.
func (r *run) extend(transfer int) error {
	before := r.w.Version
	if !r.w.extend(transfer) {
		return nil
	}
	r.w.replicate()
	r.note("%s is extended", transferName(transfer))
	r.noteChanges()
	return r.w.check(&before)
}

func (r *run) hurry(who int) {
	if e := &r.executors[who]; e.x != nil {
		e.own()
		e.x.StopWaiting()
		e.x.Postpone()
		e.start.WaitWhileBusy = false
	}
}

// disturb does to an account what may happen to it from outside at any time.
func (r *run) disturb(m move) error {
	a, before := &r.w.Accounts[m.who], r.w.Version
	_, document := r.w.effectOn(m.who)
	switch {
	case a.Missing && m.kind == create && !a.Purged:
		r.faults--
		*a = Account{Balance: depositAmount}
		r.w.given[m.who] += depositAmount
	case a.Missing:
		return nil
	case document:
		r.disturbDocument(m)
	default:
		r.disturbAccount(m)
	}
	if r.w.Version == before {
		return nil
	}
	r.w.replicate()
	r.note("somebody else changes %s", accountName(m.who))
	r.noteChanges()
	return r.w.check(&before)
}

// disturbAccount does it to an account that is there.
func (r *run) disturbAccount(m move) {
	a := &r.w.Accounts[m.who]
	switch {
	case m.kind == closeAccount && !a.marked():
		a.Closed = true
	case m.kind == seal && !a.Closed:
		a.Closed, a.Sealed = true, true
	case m.kind == reopen:
		a.Closed, a.Sealed = false, false
	case m.kind == freeze && !a.Frozen, m.kind == thaw && a.Frozen:
		a.Frozen, a.Fence = !a.Frozen, r.w.token()
	case m.kind == deposit && !a.Closed:
		a.Balance += depositAmount
		r.w.given[m.who] += depositAmount
	}
}

// disturbDocument does to the document of an effect what may happen to it from outside.
// Others respect its reservation, unless they remove it.
func (r *run) disturbDocument(m move) {
	a := &r.w.Accounts[m.who]
	effect, _ := r.w.effectOn(m.who)
	switch {
	case m.kind == change && !a.marked() && a.Value == 0:
		a.Value = unmet
	case m.kind == change && (a.Value == unmet || !a.marked()):
		a.Value = 0
	case m.kind == purge && effect.MayBeGone:
		r.w.given[m.who] -= a.Balance
		*a = Account{Missing: true, Purged: true}
	}
}

// perform lets one operation of an executor meet its fate.
func (r *run) perform(m move) error {
	e := &r.executors[m.who]
	wanted := asked{who: m.who, op: m.op, at: m.at}
	which := slices.IndexFunc(e.batch, wanted.names)
	if which < 0 {
		return nil
	}
	op := e.batch[which]
	if m.fate != answered && m.fate != cached {
		r.faults--
	}
	if !r.knowsPlan(e) {
		return nil
	}
	before := r.w.Version
	sent := r.w.Send(e.transfer, e.owner, op)
	sent.Posted, sent.Seen = e.posted, e.seen
	answer := r.w.meet(sent, m.fate, min(m.past, len(r.w.past)-1))
	r.met.count(op, m.fate, answer.Result)
	r.noteSent([]Message{sent}, m.fate, answer.Result)
	r.noteChanges()
	r.answer(wanted, op, m.fate, answer)
	e.refused = e.refused || m.fate == refusedByServer
	if err := r.w.check(&before); err != nil {
		return err
	}
	if err := r.w.tell(e); err != nil {
		return err
	}
	return r.askOn(e)
}

// answer gives an executor the answer to what it has asked for, unless the fate is that
// there is none.
func (r *run) answer(a asked, op protocol.Operation, fate Fate, answer protocol.Answer) {
	e := &r.executors[a.who]
	e.own()
	e.batch = slices.DeleteFunc(e.batch, a.names)
	switch fate {
	case answeredLate:
		r.late = append(r.late, lateAnswer{asked: a, operation: op, answer: answer})
	case unheard:
	default:
		before := standing(e.x)
		e.x.Observe(op, answer)
		e.learn(answer.Transfer)
		r.met.countSituation(e, before)
	}
}

// learn keeps what a claim that plans anew has to know.
func (e *executor) learn(image protocol.Image) {
	if image.Mine && e.seen.Planned != 0 {
		e.seen.Epoch, e.seen.Owner = image.Epoch, e.owner
	}
}

// askOn asks an executor what is next, once everything that it has asked for is answered.
func (r *run) askOn(e *executor) error {
	if len(e.batch) > 0 {
		return nil
	}
	return r.ask(e)
}

// deliver lets something arrive that was on its way.
// Nobody gets its answer.
func (r *run) deliver(m move) error {
	which, skip := -1, m.nth
	for i, flying := range r.w.flight {
		if !r.carries(m, flying) {
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

// arrive lets the database perform what is late.
// Nobody gets the answer.
func (r *run) arrive(late []Message) {
	if r.story != nil {
		r.note("late: %s", r.w.describeAll(late))
	}
	if len(late) > 1 {
		r.w.PerformMerged(late)
		return
	}
	r.w.Perform(late[0])
}

// lateAnswer is an answer that has not come in time.
type lateAnswer struct {
	asked
	operation protocol.Operation
	answer    protocol.Answer
}

// answerLate hands over an answer that has not come in time.
func (r *run) answerLate(m move) error {
	wanted := asked{who: m.who, op: m.op, at: m.at}
	which := slices.IndexFunc(r.late, func(late lateAnswer) bool { return late.asked == wanted })
	if which < 0 {
		return nil
	}
	late := r.late[which]
	r.late = slices.Delete(slices.Clone(r.late), which, which+1)
	e := &r.executors[late.who]
	e.own()
	r.note("%s hears late of %s: %s", executorName(e.owner), late.op, late.answer.Result)
	e.x.Observe(late.operation, late.answer)
	e.learn(late.answer.Transfer)
	return r.w.tell(e)
}
