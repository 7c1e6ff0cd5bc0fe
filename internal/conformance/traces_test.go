package conformance

import (
	"iter"
	"slices"

	"pgregory.net/rapid"

	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/simulate"
)

// traces lets all transfers leave markers on one account, and then pay, settle, clear and
// undo there together, several times.
// Most of them find the traces that they need. Sometimes the balance is just enough for
// all of them together, or just not, and sometimes it is not a number.
func (c *check) traces(*rapid.T) {
	i, sound := c.drawSound()
	if !sound {
		return
	}
	a, coin := &c.model.Accounts[i], c.model.scene.coin
	for range rapid.IntRange(3, 6).Draw(c.t, "rounds") {
		if !slices.Contains(a.Traces[:], protocol.Reserved) {
			c.mark(i, func(simulate.Leg, int) bool { return rapid.IntRange(0, 3).Draw(c.t, "mark") < 3 })
		}
		batch := c.drawTraces(i)
		if len(batch) == 0 {
			continue
		}
		a.Balance, a.Odd, c.model.dress[i] = max(a.Floor, 0)+300, false, plain
		switch oneOf(c.t, "balance", "enough", "enough", "at an edge", "damaged", "damaged") {
		case "at an edge":
			a.Balance = c.drawBalance(batch, a)
		case "damaged":
			a.Odd, c.model.dress[i] = true, asText
		}
		c.bank.set(i, "balance", coin.stored(a.Balance, c.model.dress[i]))
		c.model.changed()
		c.require(batch)
	}
}

// spend lets transfers be paid in on an account, and others spend that in the same
// command, which is just possible, or just not. Where nothing is paid in, each may be
// able to spend by itself.
func (c *check) spend(*rapid.T) {
	i, sound := c.drawSound()
	if !sound {
		return
	}
	for range rapid.IntRange(1, 3).Draw(c.t, "rounds") {
		c.spendAt(i)
	}
}

func (c *check) spendAt(i int) {
	c.mark(i, func(leg simulate.Leg, _ int) bool { return leg.Amount > 0 && rapid.Bool().Draw(c.t, "mark") })
	a, owners := &c.model.Accounts[i], c.model.scene.owners
	which := rapid.IntRange(0, owners-1).Draw(c.t, "which of each transfer")
	balance := max(a.Floor, -c.model.scene.coin.most) - oneOf[int64](c.t, "too little", 0, 0, 1)
	var batch, undos []simulate.Message
	for transfer, at := range c.model.writers(i) {
		op, leg := protocol.Operation{Participant: at}, c.model.Plans[transfer][at]
		switch trace := a.Traces[transfer]; {
		case leg.Amount < 0 && trace == protocol.NoTrace:
			op.Kind, op.Fence = protocol.Prepare, a.Fence
			balance -= leg.Amount
		case leg.Amount > 0 && trace == protocol.Reserved:
			op.Kind = oneOf(c.t, "pay by", protocol.Pay, protocol.Pay, protocol.Settle)
		default:
			continue
		}
		e := &c.executors[transfer*owners+which]
		c.know(e)
		batch = append(batch, c.send(e, op))
		if op.Kind == protocol.Prepare { // so that it can be spent again
			undos = append(undos, c.send(e, protocol.Operation{Kind: protocol.Undo, Participant: at}))
		}
		if op.Kind != protocol.Prepare {
			balance -= c.model.paid(batch[len(batch)-1])
		}
	}
	if len(batch) > 0 {
		a.Balance, c.model.dress[i] = balance, plain
		c.bank.set(i, "balance", c.model.scene.coin.stored(a.Balance, plain))
		c.model.changed()
		c.require(batch)
	}
	if len(undos) > 0 {
		c.require(undos)
	}
}

// writers returns the transfers that an account takes part in, and as which participant.
func (m *model) writers(account int) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		for transfer, legs := range m.scene.plans {
			at := slices.IndexFunc(legs, func(leg simulate.Leg) bool { return leg.Account == account })
			if at >= 0 && !yield(transfer, at) {
				return
			}
		}
	}
}

// mark lets transfers leave markers on an account, by themselves: those that have no
// trace there, and are wanted.
func (c *check) mark(account int, wanted func(leg simulate.Leg, transfer int) bool) {
	a := &c.model.Accounts[account]
	a.Balance, c.model.dress[account] = max(a.Floor, 0)+300, plain
	a.Odd = false
	c.bank.set(account, "balance", c.model.scene.coin.stored(a.Balance, c.model.dress[account]))
	c.model.changed()
	for transfer, at := range c.model.writers(account) {
		if a.Traces[transfer] == protocol.NoTrace && wanted(c.model.Plans[transfer][at], transfer) {
			op := protocol.Operation{Kind: protocol.Prepare, Participant: at, Fence: a.Fence}
			c.require([]simulate.Message{c.send(&c.executors[transfer*c.model.scene.owners], op)})
		}
	}
}

// drawSound draws an account where nothing but the balance may be odd.
func (c *check) drawSound() (account int, found bool) {
	var sound []int
	for i := range c.model.scene.accounts {
		if a := &c.model.Accounts[i]; c.model.scene.accounts[i].paper == nil && !a.Missing && !a.Odd && !a.Closed && !a.Frozen && !a.Foreign {
			sound = append(sound, i)
		}
	}
	if len(sound) == 0 {
		return 0, false
	}
	return rapid.SampledFrom(sound).Draw(c.t, "account"), true
}

// drawTraces draws a write of each transfer to an account, by executors of one process.
// A round is of pays, of whatever removes a trace, or of anything; one of the transfers
// may ask for something else.
func (c *check) drawTraces(account int) []simulate.Message {
	owners := c.model.scene.owners
	which := rapid.IntRange(0, owners-1).Draw(c.t, "which of each transfer")
	round := oneOf(c.t, "round", "pays", "pays", "clears", "anything")
	var batch []simulate.Message
	for transfer, at := range c.model.writers(account) {
		trace := c.model.Accounts[account].Traces[transfer]
		if round != "anything" && trace == protocol.NoTrace {
			continue
		}
		op := protocol.Operation{Kind: c.drawSuiting(trace, round), Participant: at}
		switch rapid.IntRange(0, 6).Draw(c.t, "as it should be") {
		case 5:
			continue // so that the next time some are prepared and some are not
		case 6:
			op.Kind = oneOf(c.t, "instead", protocol.Prepare, protocol.Pay, protocol.Settle, protocol.Clear, protocol.Undo)
		}
		if op.Kind == protocol.Prepare {
			op.Fence = c.model.fenceOf(account)
		}
		e := &c.executors[transfer*owners+which]
		c.know(e)
		batch = append(batch, c.send(e, op))
	}
	return batch
}

// drawSuiting draws a write that finds the trace that it needs.
func (c *check) drawSuiting(trace protocol.Trace, round string) protocol.Kind {
	switch {
	case trace == protocol.NoTrace:
		return protocol.Prepare
	case trace == protocol.Done:
		return likely(c.t, "this", protocol.Clear, protocol.Pay, protocol.Settle, protocol.Undo)
	case round == "pays":
		return protocol.Pay
	case round == "clears":
		return oneOf(c.t, "clear by", protocol.Settle, protocol.Undo)
	}
	return oneOf(c.t, "this", protocol.Pay, protocol.Pay, protocol.Settle, protocol.Undo)
}

// onDocument lets transfers reserve the document, one after the other, and leave done
// marks there, which are no obstacle to the next one.
func (c *check) onDocument(*rapid.T) {
	var who []executor
	for _, e := range c.executors {
		if slices.ContainsFunc(c.model.Plans[e.transfer], onPaper) {
			who = append(who, e)
		}
	}
	a := &c.model.Accounts[paperAt]
	if len(who) == 0 || a.Missing {
		return
	}
	for range rapid.IntRange(2, 6).Draw(c.t, "rounds") {
		e := rapid.SampledFrom(who).Draw(c.t, "executor")
		op := protocol.Operation{Participant: slices.IndexFunc(c.model.Plans[e.transfer], onPaper)}
		switch a.Traces[e.transfer] {
		case protocol.Reserved:
			op.Kind = likely(c.t, "this", protocol.Pay, protocol.Settle, protocol.Undo)
		case protocol.Done:
			op.Kind = likely(c.t, "this", protocol.Look, protocol.Clear)
		default:
			if a.Value != 0 && slices.Contains(a.Traces[:], protocol.Done) && !slices.Contains(a.Traces[:], protocol.Reserved) {
				c.rewritePaper()
				c.model.changed()
			}
			c.see(&e)
			if rapid.IntRange(0, 2).Draw(c.t, "as it was read") == 2 {
				c.turnNull()
			}
			op.Kind, op.Fence = protocol.Prepare, c.model.fenceOf(paperAt)
		}
		c.know(&e)
		c.require([]simulate.Message{c.send(&e, op)})
	}
}
