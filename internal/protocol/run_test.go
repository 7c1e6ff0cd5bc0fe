package protocol

import (
	"fmt"
	"slices"
	"strings"
)

// fate is what becomes of one operation and of its answer.
type fate uint8

const (
	answered        fate = iota + 1 // performed, and answered truly
	answerLost                      // performed; the answer is Unknown
	lost                            // never performed; the answer is Unknown
	delayed                         // performed at any later moment, or never; the answer is Unknown
	unheard                         // performed at any later moment, or never; no answer at all
	notSent                         // never performed, and the answer says so
	staleNotMatched                 // never performed: a primary that was replaced answers NotMatched
	shortCount                      // performed; the answer is NotMatched, since another write of the command was not
	refusedByServer                 // never performed: the answer is Failed
	repeated                        // performed, answered truly, and performed once more at any later moment
	answeredLate                    // performed; the answer comes when the execution has asked again
	staleRead                       // a read that doesn't decide shows an older version
)

func (f fate) String() string {
	return [...]string{
		"", "answered", "answer lost", "lost", "delayed", "unheard", "not sent", "stale not matched",
		"short count", "refused by the server", "repeated", "answered late", "stale read",
	}[f]
}

// flies reports whether a copy of the message stays on its way.
func (f fate) flies() bool { return f == delayed || f == unheard || f == repeated }

// fates returns all that can become of an operation. It has an arm per kind, so that a new one can't be forgotten.
func (w *world) fates(kind Kind) []fate {
	switch kind {
	case ReadFence, ReadTransfer:
		return []fate{answered, lost, answeredLate, staleRead}
	case Look, LookTransfer:
		return []fate{answered, lost, answeredLate}
	case Prepare, FenceOnly:
		fates := []fate{
			answered, answerLost, lost, delayed, unheard, notSent, staleNotMatched, shortCount, refusedByServer, answeredLate,
		}
		if w.bend != nil && w.bend.retries {
			fates = append(fates, repeated)
		}
		return fates
	case Claim, Verify, Decide, Settle, Undo, Finish:
		return []fate{
			answered, answerLost, lost, delayed, unheard, notSent, staleNotMatched, shortCount, refusedByServer, answeredLate,
			repeated,
		}
	}
	return nil
}

// executor is an execution with what it has asked for.
type executor struct {
	x        *Execution
	transfer int
	owner    int // its nonce
	batch    []Operation
}

// recoveryOwner is the nonce of the recovery that ends a run.
const recoveryOwner = 1000

// move is what happens next in a run.
type move struct {
	kind moveKind
	who  int // the executor, the message in flight or the account
	op   int // in the executor's batch
	fate fate
	past int // the version that a stale read shows
}

type moveKind uint8

const (
	perform moveKind = iota + 1
	deliver
	closeAccount
	reopen
	deposit
	hurry
	answerLate
)

// lateAnswer is an answer that has not come in time.
type lateAnswer struct {
	who    int
	op     Operation
	answer Answer
}

// run is some executors and the world in which they are.
type run struct {
	w         world
	executors []executor
	faults    int // that may still happen
	late      []lateAnswer
	trace     *[]string
	met       *coverage
}

// coverage counts which fate each kind of operation has met.
type coverage [Finish + 1][staleRead + 1]int

// join adds an executor of a transfer.
func (r *run) join(transfer int, start Start) error {
	e := executor{transfer: transfer, owner: len(r.executors) + 1, x: New(start, worldAccounts)}
	if r.w.bend != nil && r.w.bend.oneOwner {
		e.owner = 1
	}
	err := e.ask()
	r.executors = append(r.executors, e)
	return err
}

// ask fills the batch with what the execution wants.
func (e *executor) ask() error {
	operations, err := e.x.Next()
	if err != nil {
		return violates(6, "an execution fails: %v", err)
	}
	e.batch = operations
	return nil
}

// fork returns a run that goes its own way from here.
func (r *run) fork() *run {
	fork := *r
	fork.w = r.w.fork()
	fork.executors = slices.Clone(r.executors)
	return &fork
}

// own makes an executor safe to change in a fork.
func (e *executor) own() { e.x, e.batch = e.x.Clone(), slices.Clone(e.batch) }

// take lets a move happen and checks the invariants 1 to 5.
func (r *run) take(m move) error {
	var d *document
	switch m.kind {
	case perform:
		return r.perform(m)
	case deliver:
		arriving := r.w.flight[m.who]
		r.w.flight = slices.Delete(r.w.flight, m.who, m.who+1)
		answer, err := r.w.arrive(arriving)
		r.note("%s arrives: %s", arriving, resultName(answer.Result))
		return err
	case closeAccount:
		if d = &r.w.accounts[m.who]; !d.marked() {
			d.closed = true
			r.note("account %d is closed", m.who)
		}
	case reopen:
		r.w.accounts[m.who].closed = false
		r.note("account %d is open", m.who)
	case deposit:
		d = &r.w.accounts[m.who]
		if !d.closed {
			d.balance += depositAmount
			r.w.given[m.who] += depositAmount
			r.note("account %d gets %d", m.who, depositAmount)
		}
	case answerLate:
		return r.answerLate(m.who)
	case hurry:
		r.executors[m.who].x.Hurry()
		r.note("executor %d must hurry", m.who+1)
	}
	if r.w.history {
		r.w.past = append(r.w.past, r.w.version)
	}
	return nil
}

// depositAmount is what comes in from outside at once: enough to pay for one transfer of the random runs.
const depositAmount = 60

// perform lets one operation of an executor meet its fate.
func (r *run) perform(m move) error {
	e := &r.executors[m.who]
	e.own()
	op := e.batch[m.op]
	e.batch = slices.Delete(e.batch, m.op, m.op+1)
	if m.fate != answered {
		r.faults--
	}
	if r.met != nil {
		r.met[op.Kind][m.fate]++
	}
	sent := r.w.send(e.transfer, e.owner, op)
	answer, err := r.w.meet(sent, m)
	switch m.fate {
	case answeredLate:
		r.late = append(r.late, lateAnswer{who: m.who, op: op, answer: answer})
		fallthrough
	case unheard:
		r.note("%s: %s", sent, m.fate)
	default:
		answer = r.w.heard(sent, m.fate, answer)
		r.note("%s: %s, hears %s", sent, m.fate, resultName(answer.Result))
		r.w.observe(e.x, op, answer)
	}
	if err != nil {
		return err
	}
	if err := r.w.tell(e.transfer, e.owner, e.x); err != nil {
		return err
	}
	if len(e.batch) > 0 {
		return nil
	}
	return e.ask()
}

// answerLate hands over an answer that has not come in time.
func (r *run) answerLate(which int) error {
	late := r.late[which]
	r.late = slices.Delete(slices.Clone(r.late), which, which+1)
	e := &r.executors[late.who]
	e.own()
	r.note("executor %d hears late of %s: %s", e.owner, kindName(late.op.Kind), resultName(late.answer.Result))
	if r.w.bend != nil && r.w.bend.anyRound {
		late.op.round = e.x.round
	}
	r.w.observe(e.x, late.op, late.answer)
	return r.w.tell(e.transfer, e.owner, e.x)
}

// observe hands an answer to an execution.
func (w *world) observe(x *Execution, op Operation, answer Answer) {
	x.Observe(op, answer)
	if w.bend != nil && w.bend.tamper != nil {
		w.bend.tamper(x)
	}
}

// meet lets a message meet its fate and returns the answer.
func (w *world) meet(m message, how move) (answer Answer, err error) {
	if how.fate.flies() {
		defer func() { w.flight = append(w.flight, m) }()
	}
	switch how.fate {
	case answered, repeated, answeredLate:
		return w.arrive(m)
	case staleRead:
		return w.read(&w.past[how.past], m), nil
	case answerLost:
		_, err = w.arrive(m)
		return Answer{Result: Unknown}, err
	case shortCount:
		_, err = w.arrive(m)
		return Answer{Result: NotMatched}, err
	case staleNotMatched:
		return Answer{Result: NotMatched}, nil
	case refusedByServer:
		if m.op.Claiming == Insert && w.transfers[m.transfer].found {
			return Answer{Result: NotMatched}, nil // the index of _id is asked first
		}
		return Answer{Result: Failed}, nil
	case notSent:
		return Answer{Result: NotSent}, nil
	case lost, delayed, unheard:
	}
	return Answer{Result: Unknown}, nil
}

// heard is the answer as the execution hears it.
func (w *world) heard(m message, f fate, answer Answer) Answer {
	if w.bend != nil && w.bend.hear != nil {
		return w.bend.hear(w, m, f, answer)
	}
	return answer
}

// note adds a line to the trace, with the world as it is then.
func (r *run) note(format string, args ...any) {
	if r.trace == nil {
		return
	}
	line := fmt.Sprintf("%3d  %-72s", len(*r.trace)+1, fmt.Sprintf(format, args...))
	*r.trace = append(*r.trace, line+r.w.String())
}

func resultName(result Result) string {
	return [...]string{"nothing", "Unknown", "Applied", "NotMatched", "Failed", "NotSent"}[result]
}

func kindName(kind Kind) string {
	return [...]string{
		"", "ReadFence", "Claim", "ReadTransfer", "LookTransfer", "Verify", "Prepare", "Look", "Decide", "Settle", "Undo",
		"FenceOnly", "Finish",
	}[kind]
}

func (m message) String() string {
	text := fmt.Sprintf("executor %d, transfer %d: %s", m.owner, m.transfer, kindName(m.op.Kind))
	if m.op.Participant != NoParticipant {
		text += fmt.Sprintf(" at %d", m.op.Participant)
	}
	switch m.op.Kind {
	case Prepare:
		text += fmt.Sprintf(" fence %q", m.op.Fence)
	case Decide:
		text += fmt.Sprintf(" %s, epoch %d", m.op.To, m.op.Epoch)
	case FenceOnly:
		text += " token " + string(m.token)
	case Settle, Undo:
		if m.op.ReplaceFence {
			text += " token " + string(m.token)
		}
	}
	return text
}

func (v *version) String() string {
	var text strings.Builder
	for i := range v.accounts {
		d := &v.accounts[i]
		fmt.Fprintf(&text, "  %d: %d %v fence %q", i, d.balance, d.markers, d.fence)
		if d.closed {
			text.WriteString(" closed")
		}
	}
	for _, r := range v.transfers {
		fmt.Fprintf(&text, "  %s/%d/%d", r.state, r.epoch, r.owner)
	}
	return text.String()
}
