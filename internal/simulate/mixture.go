package simulate

import (
	"errors"
	"slices"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// mixture is a kind of merged update.
type mixture uint8

const (
	prepares mixture = iota
	clears
	pays     // and maybe clears
	fencings // clears with a new fence, and maybe pays
	clearsAndPrepares
	paysAndPrepares // and maybe clears
	mixtures
)

func (m mixture) String() string {
	return [...]string{"Prepares", "Clears", "Pays", "Clears+Fence", "Clears+Prepares", "Pays+Prepares"}[m]
}

// mixtureOf returns what is merged in an update.
func mixtureOf(members []Message) mixture {
	found := [mixtures]bool{}
	for _, m := range members {
		found[prepares] = found[prepares] || m.Op.Kind == protocol.Prepare
		found[clears] = found[clears] || m.Op.Kind != protocol.Prepare
		found[pays] = found[pays] || m.Op.Kind == protocol.Pay
		found[fencings] = found[fencings] || m.Op.ReplaceFence
	}
	switch {
	case found[prepares] && found[pays]:
		return paysAndPrepares
	case found[prepares] && found[clears]:
		return clearsAndPrepares
	case found[fencings]:
		return fencings
	case found[pays]:
		return pays
	case found[clears]:
		return clears
	}
	return prepares
}

// fates returns all fates that a merged update can meet: those of all of its members, so
// that an update with a prepare in it is never repeated; and that it is split.
func (m mixture) fates() []Fate {
	common := fates(protocol.Settle)
	if m.prepares() {
		common = fates(protocol.Prepare)
	}
	return append(slices.Clone(common), split)
}

// prepares reports whether there are prepares in it.
func (m mixture) prepares() bool {
	return m == prepares || m == clearsAndPrepares || m == paysAndPrepares
}

// meetMerged lets a merged update meet its fate, and returns the answers that the
// executions get.
// It returns none if the update is split: then each member is wanted as before, and sent
// again by itself.
func (w *World) meetMerged(members []Message, fate Fate) []protocol.Answer {
	if fate.flies() {
		defer w.keep(members)
	}
	result := protocol.Unknown
	switch fate {
	case answered, repeated, answeredLate:
		result = protocol.NotMatched
		if w.PerformMerged(members) {
			result = protocol.Applied
		}
	case answerLost:
		w.PerformMerged(members)
	case shortCount:
		w.PerformMerged(members)
		result = protocol.NotMatched
	case readBack:
		w.PerformMerged(members)
		return w.showAllDone(members)
	case split:
		return w.split(members)
	case staleNotMatched:
		result = protocol.NotMatched
	case refusedByServer:
		// The update has changed nothing, and each member gets a refusal of its own.
		return nil
	case notSent:
		result = protocol.NotSent
	case unreplicated:
		w.applyMerged(members)
	case lost, delayed, unheard, staleRead, cached:
	}
	answers := make([]protocol.Answer, len(members))
	for i := range answers {
		answers[i] = protocol.Answer{Result: result}
	}
	return answers
}

// split performs a merged update, which is then split, since another write of its command
// did not match.
// That is allowed only if it has certainly not prepared anything:
//
//  1. T1 and T2 are prepared by one update, and the answer leaves that open.
//  2. T1's prepare is sent again by itself; the server refuses it.
//  3. A refused participant is not prepared: T1 is rolled back, clean, and its marker
//     stays forever.
//
// So it is read back first.
// Clears are not read back: their refusals end nothing.
func (w *World) split(members []Message) []protocol.Answer {
	matched := w.PerformMerged(members)
	if matched && mixtureOf(members).prepares() {
		return w.showAllDone(members)
	}
	return nil
}

func (w *World) showAllDone(members []Message) []protocol.Answer {
	answers := make([]protocol.Answer, len(members))
	for i, m := range members {
		answers[i] = w.showsDone(m)
	}
	return answers
}

// message returns what an executor would send.
func (r *run) message(a asked) Message {
	e := &r.executors[a.who]
	return Message{Transfer: e.transfer, Owner: e.owner, Op: e.batch[slices.IndexFunc(e.batch, a.names)], Seen: e.seen}
}

// performMerged lets operations of several executors meet one fate, as one update.
// If they may not travel together, nothing happens.
func (r *run) performMerged(m move) error {
	members := m.all()
	sent := make([]Message, len(members))
	for i, a := range members {
		e := &r.executors[a.who]
		which := slices.IndexFunc(e.batch, a.names)
		if which < 0 {
			return nil
		}
		sent[i] = r.w.Send(e.transfer, e.owner, e.batch[which])
		sent[i].Seen = e.seen
		for _, other := range sent[:i] {
			if !r.w.Merges(other, sent[i]) {
				return nil
			}
		}
	}
	if m.fate != answered {
		r.faults--
	}
	before := r.w.Version
	answers := r.w.meetMerged(sent, m.fate)
	var result protocol.Result
	if answers != nil {
		result = answers[0].Result
	}
	r.met.countMerged(sent, m.fate, result)
	r.noteSent(sent, m.fate, result)
	r.noteChanges()
	for i, answer := range answers {
		r.answer(members[i], sent[i].Op, m.fate, answer)
	}
	if err := r.w.check(&before); err != nil {
		return err
	}
	for _, a := range members {
		e := &r.executors[a.who]
		if err := errors.Join(r.w.tell(e), r.askOn(e)); err != nil {
			return err
		}
	}
	return nil
}
