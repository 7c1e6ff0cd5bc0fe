package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/simulate"
)

// check is one sequence of operations, on the model and on a server.
type check struct {
	t     *rapid.T
	model *model
	bank  *bank
	// remembers lets the stores answer ReadFence from memory.
	remembers bool
	executors []executor
	gone      []bson.Raw // accounts that are missing, to be put back later
}

// executor sends operations of a transfer.
type executor struct {
	transfer, owner int
	run             *protocol.Execution // nil: none has begun
}

func newCheck(t *rapid.T, on *server, tally *tally) *check {
	sc := drawScene(t)
	c := &check{t: t, model: newModel(sc, tally), bank: on.open(t, sc)}
	for i, a := range sc.accounts {
		c.gone = append(c.gone, encode(a.document(i, sc.coin)))
	}
	c.bank.attempts = append(c.bank.attempts, nil) // nobody is owner 0
	for transfer := range sc.plans {
		for range sc.owners {
			owner := len(c.bank.attempts)
			c.executors = append(c.executors, executor{transfer: transfer, owner: owner})
			c.bank.attempts = append(c.bank.attempts, nil)
			c.hire(&c.executors[owner-1])
		}
	}
	return c
}

// hire gives an executor a new attempt.
func (c *check) hire(e *executor) {
	for _, places := range []map[place]bool{c.model.garble.told, c.model.forms.apart, c.model.nulls} {
		maps.DeleteFunc(places, func(p place, _ bool) bool { return p.owner == e.owner })
	}
	c.bank.attempts[e.owner] = c.bank.newAttempt(e.owner, c.bank.transfer(e.transfer))
	c.see(e)
}

// see reads the fences of all participants, as each execution does before it prepares. A
// store learns the floors from these reads.
func (c *check) see(e *executor) {
	var batch []simulate.Message
	for i := range c.model.Plans[e.transfer] {
		batch = append(batch, c.send(e, protocol.Operation{Kind: protocol.ReadFence, Participant: i}))
	}
	c.require(batch)
}

func (c *check) send(e *executor, op protocol.Operation) simulate.Message {
	message := c.model.Send(e.transfer, e.owner, op)
	message.Posted = c.model.posted[e.owner]
	return message
}

// require lets both sides perform a batch, one lane after the other, and requires that
// they agree.
// It returns the answers.
func (c *check) require(batch []simulate.Message) []protocol.Answer {
	for _, message := range batch {
		c.t.Log(asks(message))
	}
	answers := make([]protocol.Answer, len(batch))
	for _, members := range c.bank.lanes(batch) {
		var lane []simulate.Message
		for _, i := range members {
			lane = append(lane, batch[i])
		}
		for k, answer := range c.requireLane(lane) {
			answers[members[k]] = answer
		}
	}
	return answers
}

// requireLane lets both sides perform one command's operations, and requires equal
// answers and equal documents.
func (c *check) requireLane(batch []simulate.Message) []protocol.Answer {
	expected := c.model.perform(batch)
	answers := c.bank.perform(batch)
	for i, answer := range answers {
		expected[i], answers[i] = c.comparable(batch[i], expected[i]), c.comparable(batch[i], answer)
		if c.remembers && c.remembered(batch[i], answer) {
			c.model.tally.countRemembered(expected[i] != answer)
			expected[i] = answer
		}
	}
	if !slices.Equal(expected, answers) {
		require.Equal(c.t, tells(expected), tells(answers), "the answers")
	}
	if kind := batch[0].Op.Kind; kind == protocol.Look || !reads(kind) {
		c.sameDocuments(batch)
	}
	return answers
}

// comparable removes from an answer what the contract of a kind of operation leaves open.
func (c *check) comparable(message simulate.Message, answer protocol.Answer) protocol.Answer {
	if message.Op.Kind == protocol.Decide || message.Op.Kind == protocol.Finish {
		answer.Transfer = protocol.Image{}
	}
	facts := &answer.Facts
	if facts.Found && (message.Op.Kind == protocol.ReadFence || facts.Trace == protocol.Reserved || facts.Trace == protocol.Done) {
		facts.Unmet = false // asked only where it decides
	}
	if facts.Trace == protocol.Illegible {
		facts.Exhausted, facts.Exceeded = false, false // nothing can be read of such an original
	}
	return answer
}

// remembered reports whether an answer to ReadFence comes from memory.
// It may be old, but that account once had this fence.
func (c *check) remembered(message simulate.Message, answer protocol.Answer) bool {
	facts := answer.Facts
	if message.Op.Kind != protocol.ReadFence || answer.Result != protocol.Applied {
		return false
	}
	usable := protocol.Facts{
		Found: true, Fence: facts.Fence, Open: true, Unfrozen: true, Currency: true, Kind: true,
		BelowMarkerLimit: true, Funds: true, WithinLimits: true,
	}
	return facts == usable && slices.Contains(c.model.fences[c.model.leg(message).Account], facts.Fence)
}

// sameDocuments requires that both sides have stored the same.
func (c *check) sameDocuments(batch []simulate.Message) {
	expected := c.model.stored()
	stored := c.bank.stored(expected)
	touched := false
	for i := range stored.Transfers {
		touched = touched || stored.Transfers[i].Touched
	}
	for _, message := range batch {
		if message.Op.Kind == protocol.Look {
			// A deciding read of a participant may verify the ownership of the transfer.
			k, t := &c.model.kept[message.Transfer], &stored.Transfers[message.Transfer]
			if k.verified < t.Verified && t.Touched {
				k.verified++
			}
			k.touched = t.Touched
		}
	}
	if expected := c.model.stored(); expected != stored {
		require.Equal(c.t, expected.String(), stored.String(), "the documents")
	}
	if touched {
		c.bank.age()
	}
	for i := range c.model.kept {
		c.model.kept[i].touched = false
	}
}

// patience sets how old a transfer must be for its owner's takeovers.
func (c *check) patience(owner int, threshold time.Duration) {
	c.model.threshold[owner], c.bank.attempts[owner].Threshold = threshold, threshold
}

// asks describes what a message asks for.
func asks(m simulate.Message) string {
	text := fmt.Sprintf("owner %d, transfer %d: %s", m.Owner, m.Transfer, m.Op.Kind)
	switch op := m.Op; op.Kind {
	case protocol.Claim:
		text += fmt.Sprintf(" by %s", op.Claim)
		if op.Claim == protocol.Post && m.Posted != 0 {
			text += fmt.Sprintf(" of %d", m.Posted)
		}
	case protocol.Verify:
		text += fmt.Sprintf(" epoch %d", op.Epoch)
	case protocol.MarkHeld:
		text += fmt.Sprintf(" epoch %d, clean %t", op.Epoch, op.Clean)
	case protocol.Decide:
		text += fmt.Sprintf(" %s, epoch %d, clean %t", op.To, op.Epoch, op.Clean)
	case protocol.Finish:
		text += fmt.Sprintf(" %s", op.To)
	case protocol.Prepare:
		text += fmt.Sprintf(" at %d, fence %q", op.Participant, op.Fence)
	case protocol.Settle, protocol.Clear, protocol.Undo:
		text += fmt.Sprintf(" at %d, new fence %t", op.Participant, op.ReplaceFence)
	case protocol.ReadFence, protocol.Look, protocol.Pay, protocol.FenceOnly:
		text += fmt.Sprintf(" at %d", op.Participant)
	case protocol.ReadTransfer, protocol.LookTransfer:
	}
	return text
}

// tells returns answers as lines.
func tells(answers []protocol.Answer) string {
	var text strings.Builder
	for _, answer := range answers {
		fmt.Fprintf(&text, "%s %+v %+v\n", answer.Result, answer.Facts, answer.Transfer)
	}
	return text.String()
}
