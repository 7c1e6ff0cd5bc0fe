package conformance

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/simulate"
)

// edge lets all transfers write to one account together, several times.
// Each time it sets the account's balance so that this is just possible, or just not: for
// all of them together, or for each by itself.
// Sometimes the balance is not a number.
func (c *check) edge(*rapid.T) {
	i, sound := c.drawSound()
	if !sound {
		return
	}
	for range rapid.IntRange(1, 6).Draw(c.t, "rounds") {
		c.writeAll(i)
	}
}

func (c *check) writeAll(i int) {
	a, coin := &c.model.Accounts[i], c.model.scene.coin
	batch := c.drawAllAt(i)
	if len(batch) == 0 {
		return
	}
	a.Balance = c.drawBalance(batch, a)
	a.Odd, c.model.dress[i] = false, plain
	clearsOnly := !slices.ContainsFunc(batch, func(m simulate.Message) bool { return m.Op.Kind == protocol.Prepare })
	if rapid.IntRange(0, 2).Draw(c.t, "damaged") == 2 || clearsOnly && rapid.Bool().Draw(c.t, "damaged all the same") {
		a.Odd, c.model.dress[i] = true, asText
	}
	c.bank.set(i, "balance", coin.stored(a.Balance, c.model.dress[i]))
	c.t.Logf("account %d has %d", i, a.Balance)
	c.model.changed()
	c.require(batch)
}

// drawAllAt draws a write of each transfer to an account, by executors of one process.
// Sometimes only transfers with a trace there write.
func (c *check) drawAllAt(account int) []simulate.Message {
	owners := c.model.scene.owners
	which := rapid.IntRange(0, owners-1).Draw(c.t, "which of each transfer")
	fencing := rapid.IntRange(0, 2).Draw(c.t, "with a new fence") == 2
	clearsOnly := fencing || rapid.IntRange(0, 3).Draw(c.t, "clears only") == 3
	var batch []simulate.Message
	for transfer, legs := range c.model.scene.plans {
		for at, leg := range legs {
			op := protocol.Operation{Kind: protocol.Prepare, Participant: at, Fence: c.model.fenceOf(account)}
			switch {
			case leg.Account != account:
				continue
			case c.model.Accounts[account].Traces[transfer] != protocol.NoTrace:
				kind := c.drawClear(transfer, leg)
				op = protocol.Operation{Kind: kind, Participant: at, ReplaceFence: fencing && replacesFences(kind)}
			case clearsOnly:
				continue
			}
			if rapid.IntRange(0, 3).Draw(c.t, "not this one") == 3 {
				continue // so that the next time some are prepared and some are not
			}
			e := &c.executors[transfer*owners+which]
			c.know(e)
			batch = append(batch, c.send(e, op))
		}
	}
	return batch
}

// drawClear draws how a participant is cleared, mostly so that something is paid in.
func (c *check) drawClear(transfer int, leg simulate.Leg) protocol.Kind {
	switch {
	case c.model.Accounts[leg.Account].Traces[transfer] == protocol.Done:
		return protocol.Clear
	case c.model.Transfers[transfer].Posted != 0:
		return likely(c.t, "clear by", protocol.Settle, protocol.Undo)
	case leg.Amount > 0:
		return likely(c.t, "clear by", oneOf(c.t, "pay by", protocol.Settle, protocol.Pay), protocol.Undo)
	}
	return likely(c.t, "clear by", protocol.Undo, protocol.Settle)
}

// drawBalance draws a balance at an edge of what some writes require.
func (c *check) drawBalance(batch []simulate.Message, a *simulate.Account) int64 {
	var paid, taken, dearest, largest int64
	for _, message := range batch {
		amount := c.model.leg(message).Amount
		switch kind := message.Op.Kind; {
		case kind == protocol.Prepare && amount < 0:
			taken, dearest = taken-amount, max(dearest, -amount)
		case kind == protocol.Prepare:
			largest = max(largest, amount)
		default:
			paid += c.model.paid(message)
		}
	}
	most := c.model.scene.coin.most
	low := max(a.Floor, -most)
	together := low + taken - paid
	edges := []int64{together, together, together, low + taken, low + dearest, -most, -most - paid}
	if most != 0 {
		edges = append(edges, most-paid-largest, most-largest, most-paid)
	}
	return rapid.SampledFrom(edges).Draw(c.t, "edge") + rapid.Int64Range(-1, 1).Draw(c.t, "beside it")
}
