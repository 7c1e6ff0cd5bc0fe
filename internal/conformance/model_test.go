package conformance

import (
	"slices"
	"time"

	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/simulate"
)

// Thresholds of a takeover.
// A check sets the time of each transfer's last change back by some years, so that one
// threshold has certainly passed and the other has not.
const (
	hour    = time.Hour
	century = 100 * 365 * 24 * time.Hour
)

// model is the World, with what the World leaves out.
type model struct {
	*simulate.World
	scene     scene
	dress     []dress               // of the accounts as they are stored now
	fences    [][]protocol.Fence    // that each account has had so far
	threshold map[int]time.Duration // of each owner's takeovers
	posted    map[int]int64         // what each owner posts
	paperNow  given                 // the document as it was written last from outside
	kept      [simulate.MaxTransfers]kept
	garble    garble
	nulls     map[place]bool // where the latest read has shown null for the document's map
	forms     forms
	tally     *tally
}

// kept is the stored part of a transfer on which no decision rests.
type kept struct {
	touched            bool // by what was performed last
	attempts, verified int64
}

func newModel(s scene, tally *tally) *model {
	m := &model{scene: s, threshold: map[int]time.Duration{}, posted: map[int]int64{}, tally: tally}
	var accounts []simulate.Account
	for _, a := range s.accounts {
		accounts = append(accounts, a.Account)
		m.dress = append(m.dress, a.dress)
		m.fences = append(m.fences, []protocol.Fence{a.Fence})
	}
	m.World = simulate.NewWorld(accounts, s.initiated, s.plans...)
	copy(m.Holds[:], s.holds)
	if s.paper != nil {
		m.paperNow = s.accounts[paperAt]
	}
	m.garble.told, m.forms.apart, m.nulls = map[place]bool{}, map[place]bool{}, map[place]bool{}
	m.MarkerLimit, m.MostBalance = s.markerLimit, s.coin.limit()
	return m
}

// perform performs messages of one lane, and answers as mongostore does.
func (m *model) perform(batch []simulate.Message) []protocol.Answer {
	var answers []protocol.Answer
	switch kind := batch[0].Op.Kind; {
	case writesAccount(kind):
		answers = m.write(batch)
	case kind == protocol.Claim && batch[0].Op.Claim != protocol.Insert && len(batch) > 1:
		answers = m.claim(batch)
	case writesTransfer(kind) && kind != protocol.Claim:
		answers = m.change(batch)
	default:
		answers = m.each(batch)
	}
	for i := range m.fences {
		if fence := m.fenceOf(i); !slices.Contains(m.fences[i], fence) {
			m.fences[i] = append(m.fences[i], fence)
		}
	}
	return answers
}

// fenceOf returns the fence that a prepare has to name.
func (m *model) fenceOf(account int) protocol.Fence {
	if p := m.scene.accounts[account].paper; p != nil && p.reversed {
		return m.Accounts[account].OriginalFence()
	}
	return m.Accounts[account].Fence
}

// each performs messages one by one.
func (m *model) each(batch []simulate.Message) []protocol.Answer {
	answers := make([]protocol.Answer, len(batch))
	for i, message := range batch {
		hindrances := m.hindrances(message)
		answers[i] = m.performOne(message)
		m.keep(message, answers[i])
		m.tally.count(message.Op, answers[i].Result, hindrances)
		m.note(message, answers[i].Result)
	}
	return answers
}

// note counts what is done for parts of holds, and at documents.
func (m *model) note(message simulate.Message, result protocol.Result) {
	if message.Op.Participant == protocol.NoParticipant || result != protocol.Applied || reads(message.Op.Kind) {
		return
	}
	leg := m.leg(message)
	if onPaper(leg) && message.Op.Kind == protocol.Prepare {
		// There is a map of markers now, whatever was there.
		m.paperNow.pending = nil
	}
	if onPaper(leg) && message.Op.Kind == protocol.Prepare && slices.Contains(m.Accounts[leg.Account].Traces[:], protocol.Done) {
		m.tally.note(freeBesideDoneMark)
	}
	switch {
	case m.settlesPart(message) && leg.Amount < 0:
		m.tally.note(restOfPart)
	case m.settlesPart(message):
		m.tally.note(part)
	case onPaper(leg):
		m.tally.note(atDocument(message.Op.Kind, leg.MayBeGone))
	}
}

// settlesPart reports whether a message settles a hold at an account, of which a part was
// posted.
func (m *model) settlesPart(message simulate.Message) bool {
	return message.Op.Kind == protocol.Settle && m.Transfers[message.Transfer].Posted != 0 && !onPaper(m.leg(message))
}

func (m *model) performOne(message simulate.Message) protocol.Answer {
	m.seeNull(message)
	if answer, garbled := m.performGarbled(message); garbled {
		return answer
	}
	if result, outdated := m.outdatedNull(message); outdated {
		m.tally.note(nullRow(result))
		return protocol.Answer{Result: result}
	}
	switch {
	case m.damaged(message):
		return protocol.Answer{Result: protocol.Failed}
	case m.tooYoung(message):
		return protocol.Answer{Result: protocol.NotMatched}
	}
	return m.Perform(message)
}

// tooYoung reports whether a transfer is younger than its owner's takeovers require, for
// example because the same command has just changed it.
func (m *model) tooYoung(message simulate.Message) bool {
	if message.Op.Claim != protocol.TakeOver && message.Op.Claim != protocol.TakeUnheld {
		return false
	}
	threshold := m.threshold[message.Owner]
	return threshold == century || threshold == hour && m.kept[message.Transfer].touched
}

// damaged reports whether a write would match an account and add to its balance, to which
// nothing can be added.
func (m *model) damaged(message simulate.Message) bool {
	if !removesMarker(message.Op.Kind) {
		return false
	}
	leg := m.leg(message)
	a := &m.Accounts[leg.Account]
	adds := m.paid(message) != 0
	return adds && !a.Missing && !m.garbled(leg.Account) && a.Traces[message.Transfer] == protocol.Reserved && m.dress[leg.Account] == asText
}

// paid returns what a pay, a settle or an undo adds to a balance. A clear adds nothing.
func (m *model) paid(message simulate.Message) int64 {
	amount, posted := m.leg(message).Amount, m.Transfers[message.Transfer].Posted
	switch settle := message.Op.Kind == protocol.Settle || message.Op.Kind == protocol.Pay; {
	case message.Op.Kind == protocol.Clear:
		return 0
	case settle && amount < 0 && posted != 0:
		return -amount - posted
	case settle && amount > 0 && posted != 0:
		return posted
	case settle:
		return max(0, amount)
	}
	return max(0, -amount)
}

func (m *model) leg(message simulate.Message) simulate.Leg {
	return m.Plans[message.Transfer][message.Op.Participant]
}

// keep records what is stored of a transfer beyond the World.
func (m *model) keep(message simulate.Message, answer protocol.Answer) {
	if answer.Result != protocol.Applied {
		return
	}
	k := &m.kept[message.Transfer]
	k.touched = k.touched || writesTransfer(message.Op.Kind)
	switch message.Op.Kind {
	case protocol.Claim:
		switch message.Op.Claim {
		case protocol.TakeOver, protocol.TakeUnheld:
			k.attempts++
		default:
		}
	case protocol.Verify, protocol.MarkHeld:
		k.verified++
	default:
	}
}

func writesTransfer(kind protocol.Kind) bool {
	switch kind {
	case protocol.Claim, protocol.Verify, protocol.MarkHeld, protocol.Decide, protocol.Finish:
		return true
	default:
		return false
	}
}

func writesAccount(kind protocol.Kind) bool {
	switch kind {
	case protocol.Prepare, protocol.Pay, protocol.Settle, protocol.Clear, protocol.Undo, protocol.FenceOnly:
		return true
	default:
		return false
	}
}

// removesMarker reports whether a kind of write needs a marker, which it removes.
func removesMarker(kind protocol.Kind) bool {
	return kind == protocol.Pay || kind == protocol.Settle || kind == protocol.Undo
}

// needs returns the trace that a write to an account needs, and removes.
func needs(kind protocol.Kind) protocol.Trace {
	switch {
	case kind == protocol.Clear:
		return protocol.Done
	case removesMarker(kind):
		return protocol.Reserved
	}
	return protocol.NoTrace
}

// changed lets a majority store what was changed from outside, as any deciding read does.
func (m *model) changed() {
	m.Perform(m.Send(0, 0, protocol.Operation{Kind: protocol.LookTransfer, Participant: protocol.NoParticipant}))
}

// hindrances returns the conditions of a write's filter that are not met.
func (m *model) hindrances(message simulate.Message) []string {
	var found []string
	unmet := func(what string, met bool) {
		if !met {
			found = append(found, what)
		}
	}
	op, t := message.Op, &m.Transfers[message.Transfer]
	switch op.Kind {
	case protocol.Prepare:
		look := message
		look.Op.Kind = protocol.Look
		facts := m.Perform(look).Facts
		if !facts.Found {
			return []string{"found"}
		}
		unmet("fence", facts.Fence == op.Fence)
		unmet(beside(facts.Trace), facts.Trace == protocol.NoTrace)
		unmet("open", facts.Open)
		unmet("unfrozen", facts.Unfrozen)
		unmet("currency", facts.Currency)
		unmet("kind", facts.Kind)
		unmet("funds", facts.Funds)
		unmet("room", facts.WithinLimits)
		unmet("requirement", !facts.Unmet)
		unmet("turn", !facts.Taken)
	case protocol.Pay, protocol.Settle, protocol.Clear, protocol.Undo, protocol.FenceOnly:
		a := &m.Accounts[m.leg(message).Account]
		unmet("found", !a.Missing)
		unmet("a map", !m.garbled(m.leg(message).Account))
		trace := a.Traces[message.Transfer]
		unmet(beside(trace), trace == needs(op.Kind))
	case protocol.Claim:
		m.claimHindrances(message, unmet)
	case protocol.Verify, protocol.MarkHeld:
		unmet("state", t.State == protocol.Preparing)
		unmet("epoch", t.Epoch == op.Epoch)
		unmet("owner", t.Owner == message.Owner)
	case protocol.Decide:
		unmet("state", t.State == protocol.Preparing)
		unmet("epoch", t.Epoch == op.Epoch)
	default:
	}
	return found
}
