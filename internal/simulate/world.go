package simulate

import (
	"slices"
	"strconv"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// World is a replica set in memory: what its primary has stored, what a majority has, and
// what is on its way.
type World struct {
	// Version is what the primary has stored.
	Version
	// Plans are what each transfer moves; nil: there is no such transfer.
	Plans [MaxTransfers][]Leg
	// Holds says which transfers are holds.
	Holds [MaxTransfers]bool
	// Alls says which transfers are reversals of all that is left.
	// Their plan says what they would move if all were left.
	Alls [MaxTransfers]bool
	// Earlier says which transfers were stored by a release that knows no commit by
	// fact.
	Earlier [MaxTransfers]bool
	// Expired says which holds have expired, by the database's clock.
	Expired [MaxTransfers]bool
	// MarkerLimit is how many transfers may be in flight on one account.
	// Only reads judge that.
	MarkerLimit int
	// MostBalance is how large a credit that is prepared may make the balance.
	MostBalance int64

	majority Version              // what survives a failover
	past     []Version            // what a majority had stored before, for stale reads
	history  bool                 // past grows
	flight   [][]Message          // neither arrived nor lost; those of an update together
	tokens   int                  // drawn so far
	given    [MaxAccounts]int64   // put in from outside, opening balances included
	told     [MaxTransfers]answer // what callers have learned
	reasons  reasons              // to refuse that there were since the latest claim
}

// reasons are sets of protocol.Reason, by transfer and participant.
type reasons [MaxTransfers][MaxAccounts]uint32

// answer is what the callers of one transfer have learned.
type answer struct {
	committed, settled, refused bool
	held                        uint64 // the owners whose callers know that it is held
	unwritten                   uint64 // those whose callers know that nothing is stored
}

// NewWorld returns a world with these accounts, in which the transfers move what the
// plans say.
// Transfers that wait for a worker are stored as Initiated.
func NewWorld(accounts []Account, initiated []bool, plans ...[]Leg) *World {
	w := &World{MarkerLimit: MaxTransfers + 1, MostBalance: 1 << 62}
	for i := range w.Accounts {
		w.Accounts[i].Missing = i >= len(accounts)
	}
	copy(w.Accounts[:], accounts)
	copy(w.Plans[:], plans)
	for i, a := range accounts {
		w.given[i] = a.Balance
	}
	for t, is := range initiated {
		if is {
			w.Transfers[t] = Transfer{Stored: true, State: protocol.Initiated}
		}
	}
	w.majority, w.past = w.Version, []Version{w.Version}
	return w
}

// fork returns a copy of the world that is independent from here on.
func (w *World) fork() World {
	fork := *w
	fork.past, fork.flight = slices.Clip(w.past), slices.Clone(w.flight)
	return fork
}

// Send draws up the message of an operation.
// Each sending has a token that was never used before.
func (w *World) Send(transfer, owner int, op protocol.Operation) Message {
	token := w.token()
	return Message{Transfer: transfer, Owner: owner, Op: op, Token: token}
}

// token returns a fence that was never used before.
func (w *World) token() protocol.Fence {
	w.tokens++
	return protocol.Fence("f" + strconv.Itoa(w.tokens))
}

// leg returns the participant that a message is for.
func (w *World) leg(m Message) Leg {
	leg := w.Plans[m.Transfer][m.Op.Participant]
	if w.Alls[m.Transfer] {
		return leg.planned(m.Seen.Planned)
	}
	return leg
}

// legs returns what a transfer moves as it is stored.
func (w *World) legs(transfer int) []Leg {
	legs, planned := w.Plans[transfer], w.Transfers[transfer].Planned
	if !w.Alls[transfer] || planned == 0 {
		return legs
	}
	legs = slices.Clone(legs)
	for i := range legs {
		legs[i] = legs[i].planned(planned)
	}
	return legs
}

// Perform performs an operation and answers it.
// The answer is given once a majority has stored all that the primary has.
// Reads that don't decide show what a majority has already.
func (w *World) Perform(m Message) protocol.Answer {
	switch m.Op.Kind {
	case protocol.ReadFence, protocol.ReadTransfer:
		return w.read(&w.majority, m)
	case protocol.Look, protocol.LookTransfer:
		w.replicate()
		return w.read(&w.Version, m)
	case protocol.Claim, protocol.Verify, protocol.Prepare, protocol.MarkHeld, protocol.Decide,
		protocol.Pay, protocol.Settle, protocol.Clear, protocol.Undo, protocol.FenceOnly, protocol.Finish:
	}
	matched := w.apply(m)
	w.replicate()
	if !matched {
		return protocol.Answer{Result: protocol.NotMatched}
	}
	answer := protocol.Answer{Result: protocol.Applied}
	if m.Op.Kind == protocol.Claim {
		answer.Transfer = w.image(m)
	}
	return answer
}

// replicate lets a majority store all that the primary has.
func (w *World) replicate() {
	if w.majority == w.Version {
		return
	}
	w.majority = w.Version
	if w.history {
		w.past = append(w.past, w.Version)
	}
}

// failOver makes another member the primary: what no majority had stored is gone.
func (w *World) failOver() { w.Version = w.majority }

// read answers a read from what was stored at some moment.
func (w *World) read(at *Version, m Message) protocol.Answer {
	if m.Op.Participant == protocol.NoParticipant {
		return protocol.Answer{Result: protocol.Applied, Transfer: at.image(m)}
	}
	return protocol.Answer{Result: protocol.Applied, Facts: w.facts(at, m)}
}

func (v *Version) image(m Message) protocol.Image {
	t := v.Transfers[m.Transfer]
	return protocol.Image{
		Found: t.Stored, State: t.State, Epoch: t.Epoch, Mine: t.Stored && t.Owner == m.Owner, Held: t.Held, Clean: t.Clean,
	}
}

// facts judges a participant as it was stored at some moment.
func (w *World) facts(at *Version, m Message) protocol.Facts {
	leg := w.leg(m)
	a := &at.Accounts[leg.Account]
	if a.Missing {
		return protocol.Facts{Unmet: leg.effect(), MayBeGone: leg.MayBeGone}
	}
	facts := protocol.Facts{
		Found: true, Trace: a.Traces[m.Transfer], Fence: a.Fence,
		Open: !a.Closed, Unfrozen: !a.Frozen, Currency: !a.Foreign, Kind: !a.Odd,
		BelowMarkerLimit: a.inFlight() < w.MarkerLimit, Funds: true, WithinLimits: true,
	}
	switch {
	case leg.MayBeGone:
		w.addOriginalFacts(&facts, a, m)
		return facts
	case leg.effect():
		facts.BelowMarkerLimit, facts.Unmet = true, !a.met(m.Transfer)
		return facts
	}
	if facts.Kind {
		facts.Funds = leg.debit() == 0 || a.Balance-leg.debit() >= max(a.Floor, -w.MostBalance)
		facts.WithinLimits = leg.debit() > 0 || a.Balance >= -w.MostBalance && a.Balance+leg.credit() <= w.MostBalance
	}
	return facts
}
