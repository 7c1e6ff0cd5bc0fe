package simulate

import (
	"cmp"
	"slices"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// Fate is what becomes of one operation and of its answer.
type Fate uint8

// The fates.
// What is performed is stored by a majority, with one exception.
const (
	// Performed, and answered truly.
	answered Fate = iota + 1
	// Performed; the answer is Unknown.
	answerLost
	// Never performed; the answer is Unknown.
	lost
	// Performed at any later moment, or never; the answer is Unknown.
	delayed
	// Performed at any later moment, or never; there is no answer at all.
	unheard
	// Never performed, and the answer says so.
	notSent
	// Never performed: an old primary that is cut off answers NotMatched.
	staleNotMatched
	// Performed; the answer is NotMatched, since another write of the command did not
	// match.
	shortCount
	// Never performed: the answer is Failed.
	refusedByServer
	// Performed, answered truly, and performed once more at any later moment.
	repeated
	// Performed; the answer comes when the execution has asked again.
	answeredLate
	// An old primary that is cut off answers a read that doesn't decide, with an older
	// version.
	staleRead
	// A fence is not read, but remembered from an earlier version, and nothing else is
	// known.
	cached
	// Performed by the primary alone; the answer is Unknown; a failover takes it back.
	unreplicated
	// Performed; another write of the command did not match, and a deciding read shows
	// which one did: see showsDone.
	readBack
	// Performed, but another write of the command did not match.
	// Each is sent again by itself: see World.split.
	split
	lastFate = split
)

// String names the fate.
func (f Fate) String() string {
	return [...]string{
		"", "it is answered", "its answer is lost", "it is lost", "it hangs in the network", "it hangs in the network, unanswered",
		"it can't be sent", "a cut-off old primary answers", "another write of the command did not match",
		"the server refuses it", "it arrives, and a copy hangs in the network", "its answer is late", "a cut-off old primary shows what was",
		"it is answered from memory",
		"the primary alone performs it, and its answer is lost", "another write of the command did not match, and it is read back",
		"another write of the command did not match, and it is split",
	}[f]
}

// flies reports whether a copy of the message stays on its way.
func (f Fate) flies() bool { return f == delayed || f == unheard || f == repeated }

// fates returns all fates that an operation of a kind can meet.
// It has an arm per kind, so that a new one can't be forgotten.
// Prepares and fence-onlys are sent once and never repeated.
func fates(kind protocol.Kind) []Fate {
	switch kind {
	case protocol.ReadFence:
		return []Fate{answered, lost, answeredLate, staleRead, cached}
	case protocol.ReadTransfer:
		return []Fate{answered, lost, answeredLate, staleRead}
	case protocol.Look, protocol.LookTransfer:
		return []Fate{answered, lost, answeredLate}
	case protocol.Prepare, protocol.FenceOnly:
		return []Fate{
			answered, answerLost, lost, delayed, unheard, notSent, staleNotMatched, shortCount, refusedByServer, answeredLate,
			unreplicated, readBack,
		}
	case protocol.Claim, protocol.Verify, protocol.MarkHeld, protocol.Decide, protocol.Pay, protocol.Settle, protocol.Clear,
		protocol.Undo, protocol.Finish:
		return []Fate{
			answered, answerLost, lost, delayed, unheard, notSent, staleNotMatched, shortCount, refusedByServer, answeredLate,
			unreplicated, readBack, repeated,
		}
	}
	return nil
}

func canMeet(kind protocol.Kind, fate Fate) bool { return slices.Contains(fates(kind), fate) }

// meet lets a message meet its fate, and returns the answer that the execution gets.
// A stale read shows the given version of the past.
func (w *World) meet(m Message, fate Fate, past int) protocol.Answer {
	if fate.flies() {
		defer w.keep([]Message{m})
	}
	switch fate {
	case answered, repeated, answeredLate:
		return w.Perform(m)
	case staleRead:
		return w.read(&w.past[past], m)
	case cached:
		return w.remember(&w.past[past], m)
	case answerLost:
		w.Perform(m)
	case shortCount:
		w.Perform(m)
		return protocol.Answer{Result: protocol.NotMatched}
	case readBack:
		w.Perform(m)
		return w.showsDone(m)
	case staleNotMatched:
		return protocol.Answer{Result: protocol.NotMatched}
	case refusedByServer:
		if m.Op.Claim == protocol.Insert && w.Transfers[m.Transfer].Stored {
			// The index of _id is asked first.
			return protocol.Answer{Result: protocol.NotMatched}
		}
		return protocol.Answer{Result: protocol.Failed}
	case notSent:
		return protocol.Answer{Result: protocol.NotSent}
	case unreplicated:
		w.apply(m)
	case lost, delayed, unheard, split:
	}
	return protocol.Answer{Result: protocol.Unknown}
}

// showsDone answers a write from what a deciding read shows after it.
// The answer is Applied if the document is as the write would leave it.
// The execution's own look would conclude the same from NotMatched, for
//
//   - a prepare, from a trace, but for that of an original;
//   - a pay, from an account where nothing is reserved any more: it is paid, by whichever
//     execution;
//   - a settle, a clear or an undo without a new fence, from an account without a
//     trace: it is cleared, by whichever execution;
//   - a claim, a decision and a finish, from owner, epoch and state.
//
// A verify that was read back was not needed: the deciding read itself shows that nobody
// had taken over when the fences were read.
// A write with a new fence leaves nothing that shows that it was the one, so the answer
// is NotMatched.
func (w *World) showsDone(m Message) protocol.Answer {
	look := m
	look.Op.Kind = protocol.LookTransfer
	if m.Op.Participant != protocol.NoParticipant {
		look.Op.Kind = protocol.Look
	}
	seen := w.Perform(look)
	image := seen.Transfer
	original := m.Op.Kind == protocol.Prepare && w.leg(m).MayBeGone // whose trace may be of another plan
	if original || !showsAt(m, seen.Facts) && !showsIn(m, image) {
		return protocol.Answer{Result: protocol.NotMatched}
	}
	return protocol.Answer{Result: protocol.Applied, Transfer: image}
}

// showsAt reports whether a participant is as a write to it would leave it.
func showsAt(m Message, facts protocol.Facts) bool {
	done := false
	switch m.Op.Kind {
	case protocol.Prepare:
		done = facts.Trace != protocol.NoTrace
	case protocol.Pay:
		done = facts.Found && facts.Trace != protocol.Reserved
	case protocol.Settle, protocol.Clear, protocol.Undo:
		done = facts.Found && facts.Trace == protocol.NoTrace && !m.Op.ReplaceFence
	default:
	}
	return done
}

// showsIn reports whether a transfer is as a write to it would leave it.
func showsIn(m Message, image protocol.Image) bool {
	done := false
	switch m.Op.Kind {
	case protocol.Claim:
		done = image.Mine
	case protocol.Verify:
		done = image.Mine && image.Epoch == m.Op.Epoch && image.State == protocol.Preparing
	case protocol.MarkHeld:
		done = image.Mine && image.Epoch == m.Op.Epoch && image.Held
	case protocol.Decide:
		done = image.Mine && image.Epoch == m.Op.Epoch && image.State == m.Op.To
	case protocol.Finish:
		done = image.State == m.Op.To
	default:
	}
	return done
}

// remember answers a read of a fence with the fence that the account had at some moment,
// and with the most favourable facts.
func (w *World) remember(at *Version, m Message) protocol.Answer {
	if at.Accounts[w.leg(m).Account].Missing || w.leg(m).MayBeGone {
		return w.read(at, m) // fences of originals are not remembered
	}
	return protocol.Answer{Result: protocol.Applied, Facts: protocol.Facts{
		Found: true, Fence: at.Accounts[w.leg(m).Account].Fence, Open: true, Unfrozen: true, Currency: true,
		Kind: true, BelowMarkerLimit: true, Funds: true, WithinLimits: true,
	}}
}

// keep adds what travels as one update to what is on its way.
// The order means nothing.
// It is kept the same, so that a search recognizes equal worlds.
func (w *World) keep(members []Message) {
	at, _ := slices.BinarySearchFunc(w.flight, members, func(a, b []Message) int { return slices.CompareFunc(a, b, inOrder) })
	w.flight = slices.Insert(w.flight, at, members)
}

func inOrder(a, b Message) int {
	return cmp.Or(
		cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Op.Kind, b.Op.Kind), cmp.Compare(a.Op.Participant, b.Op.Participant))
}
