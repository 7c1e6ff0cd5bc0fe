package conformance

import (
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/simulate"
)

// outside does something to an account that no execution does, or repairs what was done
// before.
// It may close, freeze or delete an account under its markers: what is owed is paid all
// the same, or waits.
func (c *check) outside(*rapid.T) {
	i := rapid.IntRange(0, len(c.model.scene.accounts)-1).Draw(c.t, "account")
	if c.model.scene.accounts[i].paper != nil {
		c.outsidePaper()
		return
	}
	what := c.disturb(i, c.drawOutside(i))
	if what == "" {
		return
	}
	c.t.Logf("account %d: %s", i, what)
	c.model.changed()
	c.sameDocuments(nil)
	if what == putBack {
		c.seeAll()
	}
}

// putBack is what is done to an account that was deleted.
const putBack = "put back"

// disturb repairs what was done to an account before, or else does something to it.
// It returns what it has done, "" if that is nothing.
func (c *check) disturb(i int, what string) string {
	a, coin := &c.model.Accounts[i], c.model.scene.coin
	switch {
	case c.rewrap(i, what):
		return "wrap or unwrap"
	case a.Missing:
		c.bank.put(i, c.gone[i])
		a.Missing = false
		return putBack
	case a.Closed:
		a.Closed = false
		c.bank.set(i, "closed", false)
		return "reopen"
	case a.Frozen:
		a.Frozen = false
		c.bank.set(i, "frozen", false)
		return "unfreeze"
	case a.Odd && c.model.dress[i] == asText:
		a.Odd, c.model.dress[i] = false, plain
		c.bank.set(i, "balance", coin.stored(a.Balance, plain))
		return "repair"
	}
	return c.harm(i, what)
}

// harm does something to an account that is as it should be.
func (c *check) harm(i int, what string) string {
	a, coin := &c.model.Accounts[i], c.model.scene.coin
	switch {
	case what == "close":
		a.Closed = true
		c.bank.set(i, "closed", true)
	case what == "freeze":
		a.Frozen = true
		c.bank.set(i, "frozen", true)
	case what == "delete":
		a.Missing, c.gone[i] = true, c.bank.remove(i)
	case a.Odd:
		return ""
	case what == "damage": // the number becomes a text
		a.Odd, c.model.dress[i] = true, asText
		c.bank.set(i, "balance", coin.stored(a.Balance, asText))
	default:
		a.Balance += 60
		c.bank.set(i, "balance", coin.stored(a.Balance, c.model.dress[i]))
	}
	return what
}

// drawOutside draws what is done to an account.
func (c *check) drawOutside(account int) string {
	kinds := []string{"pay in", "pay in", "close", "freeze", "delete", "damage", "wrap"}
	if c.model.Accounts[account].Traces != [simulate.MaxTransfers]protocol.Trace{} {
		// What is owed can't be paid then.
		kinds = append(kinds, "damage", "damage", "damage", "wrap", "wrap")
	}
	return rapid.SampledFrom(kinds).Draw(c.t, "what")
}

// seeAll makes every owner read all participants.
// An owner that has not read an account assumes no floor, and executions prepare no
// account that they have not read.
func (c *check) seeAll() {
	for i := range c.executors {
		c.see(&c.executors[i])
	}
}

// anotherLife claims a transfer for an earlier transfer with the same ID: another
// request, of which nothing is stored.
// Only an insert can begin like that, and the insert finds the ID taken.
func (c *check) anotherLife(*rapid.T) {
	e := c.drawExecutor()
	if !c.model.Transfers[e.transfer].Stored {
		return
	}
	other := c.bank.transfer(e.transfer)
	other.Digest.Sum = append(other.Digest.Sum, 1)
	op := protocol.Operation{Kind: protocol.Claim, Participant: protocol.NoParticipant, Claim: c.drawClaimKind(e.transfer)}
	c.t.Logf("owner %d claims by %s what had the ID in another life", e.owner, op.Claim)
	answers := c.bank.ask(c.bank.store(e.owner), c.bank.request(c.bank.newAttempt(e.owner, other), op))
	require.Equal(c.t, tells([]protocol.Answer{{Result: protocol.NotMatched}}), tells(answers), "the answers")
	c.sameDocuments(nil)
}

// unseen prepares a debit for an owner that has not read the account, and so does not
// know its floor: that matches nothing.
// It would not match either if the floor was changed since it was read.
func (c *check) unseen(*rapid.T) {
	e := c.drawExecutor()
	participant := rapid.IntRange(0, len(c.model.Plans[e.transfer])-1).Draw(c.t, "participant")
	leg := c.model.Plans[e.transfer][participant]
	if leg.Amount >= 0 || c.model.scene.accounts[leg.Account].floor == nil {
		return
	}
	op := protocol.Operation{Kind: protocol.Prepare, Participant: participant, Fence: c.model.Accounts[leg.Account].Fence}
	c.t.Logf("owner %d prepares, unseen, for transfer %d at %d", e.owner, e.transfer, participant)
	answers := c.bank.ask(c.bank.store(e.owner), c.bank.request(c.bank.newAttempt(e.owner, c.bank.transfer(e.transfer)), op))
	require.Equal(c.t, tells([]protocol.Answer{{Result: protocol.NotMatched}}), tells(answers), "the answers")
	c.sameDocuments(nil)
}
