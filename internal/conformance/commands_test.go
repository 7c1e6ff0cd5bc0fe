package conformance

import (
	"slices"

	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/simulate"
)

// write performs writes to the accounts of one ledger.
// Those that can be merged are performed as one update.
// Those that were merged and are not known to be done are then performed one by one, in
// the order in which they came.
func (m *model) write(batch []simulate.Message) []protocol.Answer {
	answers := make([]protocol.Answer, len(batch))
	updates := m.gather(batch, m.refuse(batch, answers))
	shared := m.sharing(batch, updates)
	m.command(batch, updates, shared, answers)
	m.noteShared(batch, updates, shared, answers)
	var apart [][]int
	for _, members := range updates {
		for _, i := range members {
			undone := answers[i].Result == protocol.NotMatched || answers[i].Result == protocol.Failed
			if undone && len(members) > 1 {
				apart = append(apart, []int{i})
			}
		}
	}
	if len(apart) > 0 {
		m.command(batch, apart, make([]bool, len(apart)), answers)
	}
	return answers
}

// gather puts messages into updates: each into the latest one of its account, if it can
// be merged with all that are in it.
func (m *model) gather(batch []simulate.Message, which []int) [][]int {
	var updates [][]int
	latest := map[int]int{}
	for _, i := range which {
		message := batch[i]
		account := m.leg(message).Account
		at, known := latest[account]
		joins := known && !slices.ContainsFunc(updates[at], func(other int) bool { return !m.Merges(batch[other], message) })
		if !joins {
			at = len(updates)
			latest[account], updates = at, append(updates, nil)
		}
		updates[at] = append(updates[at], i)
	}
	return updates
}

// command performs updates as one command.
// The answer says how many matched.
// If that was not all, the answer is "matched" only for writes whose effect a deciding
// read then shows.
func (m *model) command(batch []simulate.Message, updates [][]int, shared []bool, answers []protocol.Answer) {
	some, short := false, false
	results := make([]protocol.Result, len(updates))
	for u, members := range updates {
		results[u] = m.performUpdate(pick(batch, members), shared[u])
		some, short = some || results[u] == protocol.Applied, short || results[u] == protocol.NotMatched
	}
	for u, members := range updates {
		if !shared[u] {
			m.noteRefused(batch[members[0]], results[u], short)
		}
		for _, i := range members {
			answers[i] = protocol.Answer{Result: results[u]}
			if short && results[u] == protocol.Applied {
				answers[i].Result = protocol.NotMatched
			}
		}
		if !short || !some || results[u] == protocol.Failed || slices.ContainsFunc(pick(batch, members), newFence) {
			continue
		}
		for _, i := range members {
			if m.shows(batch[i]) {
				answers[i].Result = protocol.Applied
			}
			m.tally.countReadBack(answers[i].Result)
		}
	}
}

func pick(batch []simulate.Message, which []int) []simulate.Message {
	picked := make([]simulate.Message, len(which))
	for k, i := range which {
		picked[k] = batch[i]
	}
	return picked
}

// newFence reports whether a write sets a new fence.
func newFence(message simulate.Message) bool {
	return message.Op.Kind == protocol.FenceOnly || message.Op.ReplaceFence
}

// update performs what travels as one update.
func (m *model) update(members []simulate.Message) protocol.Result {
	if len(members) == 1 {
		return m.each(members)[0].Result
	}
	alone := m.fitAlone(members)
	result := m.merged(members)
	if result == protocol.Applied && slices.ContainsFunc(members, m.settlesPart) {
		m.tally.note(mergedPart)
	}
	m.tally.countMerged(members, result, alone)
	return result
}

func (m *model) merged(members []simulate.Message) protocol.Result {
	if m.garbled(m.leg(members[0]).Account) {
		return protocol.NotMatched
	}
	if m.damagedAll(members) {
		return protocol.Failed
	}
	if m.PerformMerged(members) {
		return protocol.Applied
	}
	return protocol.NotMatched
}

// fitAlone reports whether each of the messages would match by itself now.
func (m *model) fitAlone(members []simulate.Message) bool {
	return !m.garbled(m.leg(members[0]).Account) && !slices.ContainsFunc(members, func(message simulate.Message) bool {
		trial := *m.World
		return trial.Perform(message).Result != protocol.Applied
	})
}

// damagedAll reports whether clears would match an account and add to its balance, to
// which nothing can be added.
func (m *model) damagedAll(members []simulate.Message) bool {
	adds := false
	for _, message := range members {
		a := &m.Accounts[m.leg(message).Account]
		if message.Op.Kind == protocol.Prepare || a.Missing || a.Traces[message.Transfer] != needs(message.Op.Kind) {
			return false
		}
		adds = adds || m.damaged(message)
	}
	return adds
}

// shows reports whether an account is as a write would leave it.
func (m *model) shows(message simulate.Message) bool {
	if leg := m.leg(message); leg.MayBeGone && message.Op.Kind == protocol.Prepare {
		return false // the trace may be of another plan
	}
	at := m.leg(message).Account
	a := &m.Accounts[at]
	if a.Missing || m.garbled(at) {
		return false
	}
	switch trace := a.Traces[message.Transfer]; message.Op.Kind {
	case protocol.Prepare:
		return trace != protocol.NoTrace
	case protocol.Pay:
		return trace != protocol.Reserved
	default:
		return trace == protocol.NoTrace
	}
}

// claim performs claims of stored transfers as one command.
// If any matched, a read then shows whose the transfers are.
func (m *model) claim(batch []simulate.Message) []protocol.Answer {
	answers := m.each(batch)
	if !some(answers) {
		return answers
	}
	for i, message := range batch {
		answers[i] = protocol.Answer{Result: protocol.NotMatched}
		if image := m.image(message); image.Mine {
			answers[i] = protocol.Answer{Result: protocol.Applied, Transfer: image}
		}
	}
	return answers
}

// change performs verifies, decisions and finishes as one command.
// If only some match, a read shows which decisions and finishes are stored.
func (m *model) change(batch []simulate.Message) []protocol.Answer {
	answers := m.each(batch)
	short := slices.ContainsFunc(answers, func(a protocol.Answer) bool { return a.Result == protocol.NotMatched })
	if !short || !some(answers) {
		return answers
	}
	for i, message := range batch {
		image, op := m.image(message), message.Op
		mine := image.Mine && image.Epoch == op.Epoch
		stored := op.Kind == protocol.Finish && image.State == op.To || op.Kind == protocol.Decide && image.State == op.To && mine ||
			op.Kind == protocol.MarkHeld && image.Held && mine
		answers[i] = protocol.Answer{Result: protocol.NotMatched}
		if stored {
			answers[i].Result = protocol.Applied
		}
		m.tally.countReadBack(answers[i].Result)
	}
	return answers
}

func some(answers []protocol.Answer) bool {
	return slices.ContainsFunc(answers, func(a protocol.Answer) bool { return a.Result == protocol.Applied })
}

// image returns what is stored of a message's transfer.
func (m *model) image(message simulate.Message) protocol.Image {
	message.Op = protocol.Operation{Kind: protocol.LookTransfer, Participant: protocol.NoParticipant}
	return m.Perform(message).Transfer
}
