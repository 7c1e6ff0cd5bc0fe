package conformance

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/simulate"
)

// garble is what the World leaves out: a participant's map of markers was replaced by
// something else.
type garble struct {
	map0  [simulate.MaxAccounts]bson.RawValue
	dress [simulate.MaxAccounts]dress // of the accounts before they were wrapped
	told  map[place]bool              // whose latest look has shown it
}

// place is a participant as an owner sees it.
type place struct{ owner, participant int }

// The rows that count garbled markers.
const (
	garbledAsked   = "a clear where the markers are no map: NotMatched"
	garbledRefused = "a clear after a look at that: Failed"
)

// illegible is the row of the reads of markers that are no map.
func illegible(kind protocol.Kind) string {
	return fmt.Sprintf("%s where the markers are no map", kind)
}

// garbled reports whether a participant's markers are not a map.
func (m *model) garbled(at int) bool {
	a := &m.Accounts[at]
	if a.Missing {
		return false
	}
	if m.scene.accounts[at].paper == nil {
		return m.dress[at] == markerList || m.dress[at] == wrapped
	}
	if a.Traces != [simulate.MaxTransfers]protocol.Trace{} {
		return false
	}
	switch m.paperNow.pending.(type) {
	case bson.A, string, int:
		return true
	}
	return false
}

// refuse answers clears that their owners know to be useless, and returns the other
// messages.
func (m *model) refuse(batch []simulate.Message, answers []protocol.Answer) (rest []int) {
	for i, message := range batch {
		at := place{message.Owner, message.Op.Participant}
		if message.Op.Kind == protocol.Prepare || !m.garble.told[at] {
			rest = append(rest, i)
			continue
		}
		delete(m.garble.told, at)
		answers[i] = protocol.Answer{Result: protocol.Failed}
		m.tally.note(garbledRefused)
	}
	return rest
}

// performGarbled performs a message at a participant whose markers are not a map.
// It reports false if they are a map.
func (m *model) performGarbled(message simulate.Message) (protocol.Answer, bool) {
	if message.Op.Participant == protocol.NoParticipant {
		return protocol.Answer{}, false
	}
	garbled := m.garbled(m.leg(message).Account)
	if message.Op.Kind == protocol.Look {
		m.garble.told[place{message.Owner, message.Op.Participant}] = garbled
	}
	if !garbled {
		return protocol.Answer{}, false
	}
	switch kind := message.Op.Kind; {
	case reads(kind):
		answer := m.Perform(message)
		answer.Facts.Trace, answer.Facts.BelowMarkerLimit = protocol.Illegible, true
		m.tally.note(illegible(kind))
		return answer, true
	case kind == protocol.Prepare:
		return protocol.Answer{Result: protocol.NotMatched}, true
	default:
		m.tally.note(garbledAsked)
		return protocol.Answer{Result: protocol.NotMatched}, true
	}
}

// rewrap turns an account's markers into a map again if they are in a list, and otherwise
// into a list if that is to happen.
// It reports whether it changed anything.
func (c *check) rewrap(i int, what string) bool {
	switch a := &c.model.Accounts[i]; {
	case a.Missing || a.Closed:
		return false
	case c.model.dress[i] == wrapped:
		c.unwrap(i)
		return true
	case what == "wrap" && !a.Odd:
		c.wrap(i)
		return true
	}
	return false
}

// wrap turns an account's markers into a list, and unwrap into a map again.
func (c *check) wrap(i int) {
	g := &c.model.garble
	pending := c.bank.read(i).Lookup("pending")
	if pending.Type == 0 {
		pending = raw(bson.D{})
	}
	g.map0[i], g.dress[i] = pending, c.model.dress[i]
	c.model.Accounts[i].Odd, c.model.dress[i] = true, wrapped
	c.bank.set(i, "pending", bson.A{pending})
}

func (c *check) unwrap(i int) {
	g := &c.model.garble
	c.model.Accounts[i].Odd, c.model.dress[i] = false, g.dress[i]
	c.bank.set(i, "pending", g.map0[i])
}
