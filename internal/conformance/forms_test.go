package conformance

import (
	"fmt"
	"slices"

	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/simulate"
)

// forms is what the World leaves out: which updates share a statement with those of other
// accounts. Such a statement leaves accounts that are not as the library writes them to a
// statement of their own.
type forms struct {
	apart   map[place]bool                // whose write has a statement of its own the next time
	refused [2][simulate.MaxAccounts]bool // by the server, as the stores remember
}

// sharedOdd counts clears that a shared statement leaves for later.
const sharedOdd = "a clear at an odd account in a shared statement: NotMatched"

// sharedRow is the row of the updates in shared statements that ended with a result.
func sharedRow(what string, result protocol.Result) string {
	return fmt.Sprintf("%s in a shared statement: %s", what, result)
}

// sharedBeside is the row of the writes of a kind in shared statements that find a trace.
func sharedBeside(kind protocol.Kind, trace protocol.Trace) string {
	return fmt.Sprintf("%s in a shared statement, lacking %q", kind, beside(trace))
}

// storeOf returns the index of an owner's store.
func (s scene) storeOf(owner int) int { return (owner - 1) % s.owners % 2 }

// sharing returns which updates of a command are in shared statements.
func (m *model) sharing(batch []simulate.Message, updates [][]int) []bool {
	count := [simulate.MaxAccounts]int{}
	for _, members := range updates {
		count[m.leg(batch[members[0]]).Account]++
	}
	shared := make([]bool, len(updates))
	for u, members := range updates {
		first := batch[members[0]]
		at := m.leg(first).Account
		shared[u] = m.scene.shared == 1 && m.scene.accounts[at].paper == nil && count[at] == 1 &&
			!m.forms.refused[m.scene.storeOf(first.Owner)][at] &&
			!slices.ContainsFunc(pick(batch, members), func(message simulate.Message) bool {
				return newFence(message) || m.forms.apart[place{message.Owner, message.Op.Participant}]
			})
	}
	return shared
}

// noteShared remembers whose writes have statements of their own the next time.
func (m *model) noteShared(batch []simulate.Message, updates [][]int, shared []bool, answers []protocol.Answer) {
	for u, members := range updates {
		for _, i := range members {
			m.forms.apart[place{batch[i].Owner, batch[i].Op.Participant}] = shared[u] && answers[i].Result == protocol.NotMatched
		}
	}
}

// noteRefused remembers what became of an update that was not shared. It is not known to
// be applied where the command's count is short.
func (m *model) noteRefused(of simulate.Message, result protocol.Result, short bool) {
	refused := &m.forms.refused[m.scene.storeOf(of.Owner)][m.leg(of).Account]
	switch {
	case result == protocol.Failed:
		*refused = true
	case result == protocol.Applied && !short:
		*refused = false
	}
}

// performUpdate performs what travels as one update, in a shared statement or not.
func (m *model) performUpdate(members []simulate.Message, shared bool) protocol.Result {
	at := m.leg(members[0]).Account
	if !shared {
		return m.update(members)
	}
	if a := &m.Accounts[at]; !a.Missing && !a.Odd {
		for _, message := range members {
			m.tally.note(sharedBeside(message.Op.Kind, a.Traces[message.Transfer]))
		}
	}
	result := protocol.NotMatched
	if a := &m.Accounts[at]; a.Odd && !a.Missing && !m.garbled(at) {
		m.tally.note(sharedOdd)
	} else {
		result = m.update(members)
	}
	m.tally.note(sharedRow(mixture(members), result))
	return result
}
