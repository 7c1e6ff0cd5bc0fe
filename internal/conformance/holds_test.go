package conformance

import (
	"time"

	"pgregory.net/rapid"

	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/simulate"
)

// canPost reports whether a part of a transfer can be posted: it must be from one account
// to one other.
func canPost(plan []simulate.Leg) bool {
	money := 0
	for _, leg := range plan {
		if leg.Amount != 0 {
			money++
		}
	}
	return money == 2
}

// posting draws what an owner posts of a hold: all of it, which is 0, or a part.
func (c *check) posting(e *executor) {
	plan := c.model.scene.plans[e.transfer]
	c.model.posted[e.owner], c.bank.attempts[e.owner].Post = 0, nil
	if !canPost(plan) || rapid.IntRange(0, 2).Draw(c.t, "posts all of it") == 2 {
		return
	}
	held := max(plan[0].Amount, -plan[0].Amount)
	part := rapid.Int64Range(1, held).Draw(c.t, "posts")
	amount := c.model.scene.coin.amount(part)
	c.model.posted[e.owner], c.bank.attempts[e.owner].Post = part, &amount
}

// onHold claims a transfer as a hold is claimed, or marks it as held; sometimes it is not
// a hold.
func (c *check) onHold(*rapid.T) {
	e := c.drawExecutor()
	t := &c.model.Transfers[e.transfer]
	op := protocol.Operation{Kind: protocol.Claim, Participant: protocol.NoParticipant}
	switch {
	case !t.Stored:
		op.Claim = protocol.Insert
	case !t.Held && t.State == protocol.Preparing && rapid.Bool().Draw(c.t, "mark it as held"):
		op.Kind, op.Epoch, op.Clean = protocol.MarkHeld, t.Epoch, rapid.Bool().Draw(c.t, "clean")
		e = &c.executors[max(t.Owner, 1)-1]
	default:
		usual := protocol.TakeUnheld
		if t.Held {
			usual = protocol.Post
		}
		op.Claim = oneOf(c.t, "claiming", usual, usual, protocol.Post, protocol.TakeUnheld, protocol.Expire, protocol.TakeOver)
		c.patience(e.owner, oneOf[time.Duration](c.t, "threshold", 0, hour, century))
		c.posting(e)
	}
	c.require([]simulate.Message{c.send(e, op)})
}

// part brings a hold to the point where a part of it is posted, and settles it, alone or
// together with others on the same accounts.
func (c *check) part(t *rapid.T) {
	e := c.drawExecutor()
	plan, stored := c.model.scene.plans[e.transfer], &c.model.Transfers[e.transfer]
	if !c.model.Holds[e.transfer] || !canPost(plan) || stored.Held || stored.State != "" && stored.State != protocol.Preparing {
		return
	}
	claim := protocol.Operation{Kind: protocol.Claim, Participant: protocol.NoParticipant, Claim: protocol.Insert}
	if stored.Stored {
		claim.Claim = protocol.TakeToCancel
	}
	c.require([]simulate.Message{c.send(e, claim)})
	for i, leg := range plan {
		op := protocol.Operation{Kind: protocol.Prepare, Participant: i, Fence: c.model.fenceOf(leg.Account)}
		c.require([]simulate.Message{c.send(e, op)})
	}
	mark := protocol.Operation{Kind: protocol.MarkHeld, Participant: protocol.NoParticipant, Epoch: stored.Epoch, Clean: true}
	c.require([]simulate.Message{c.send(e, mark)})
	c.posting(e)
	claim.Claim = protocol.Post
	c.require([]simulate.Message{c.send(e, claim)})
	for i, leg := range plan {
		a := &c.model.Accounts[leg.Account]
		switch {
		case !onPaper(leg) && rapid.Bool().Draw(t, "together") && !a.Missing && !a.Odd && !a.Closed && !a.Frozen && !a.Foreign:
			c.settleAmongOthers(e, i)
		default:
			c.require([]simulate.Message{c.send(e, protocol.Operation{Kind: protocol.Settle, Participant: i})})
		}
	}
}

// settleAmongOthers settles a hold at a participant, together with what else there is to
// be paid or cleared there.
func (c *check) settleAmongOthers(e *executor, participant int) {
	at := c.model.Plans[e.transfer][participant].Account
	c.mark(at, func(_ simulate.Leg, transfer int) bool { return transfer != e.transfer })
	c.know(e)
	batch := []simulate.Message{c.send(e, protocol.Operation{Kind: protocol.Settle, Participant: participant})}
	which := (e.owner - 1) % c.model.scene.owners
	for transfer, there := range c.model.writers(at) {
		other := &c.executors[transfer*c.model.scene.owners+which]
		if kind := c.likeliest(other, there); transfer != e.transfer && kind != protocol.Prepare {
			c.know(other)
			batch = append(batch, c.send(other, protocol.Operation{Kind: kind, Participant: there}))
		}
	}
	c.require(batch)
}

// know gives an executor the posted part of a hold. An executor that settles has claimed
// the transfer, and has read it.
func (c *check) know(e *executor) {
	if posted := c.model.Transfers[e.transfer].Posted; posted != 0 {
		amount := c.model.scene.coin.amount(posted)
		c.bank.attempts[e.owner].Transfer.Posted = &amount
	}
}

// elapse moves the time at which a hold expires into the past, or back into the future.
func (c *check) elapse(*rapid.T) {
	transfer := rapid.IntRange(0, len(c.model.scene.plans)-1).Draw(c.t, "transfer")
	if !c.model.Holds[transfer] || !c.model.Transfers[transfer].Stored {
		return
	}
	expired := !c.model.Expired[transfer]
	c.t.Logf("the hold of transfer %d has expired: %t", transfer, expired)
	c.model.Expired[transfer] = expired
	at := time.Now().Add(time.Hour)
	if expired {
		at = time.Now().Add(-time.Second)
	}
	c.bank.setExpiry(transfer, at)
	c.sameDocuments(nil)
}

// claimHindrances returns the conditions of a claim's filter that are not met.
func (m *model) claimHindrances(message simulate.Message, unmet func(string, bool)) {
	t, hold, expired := &m.Transfers[message.Transfer], m.Holds[message.Transfer], m.Expired[message.Transfer]
	way := message.Op.Claim.String() + ": "
	preparing := t.State == protocol.Preparing
	switch message.Op.Claim {
	case protocol.TakeOver:
		unmet(way+"old enough", !m.tooYoung(message))
		unmet(way+"no hold that may be decided", !preparing || !hold)
		unmet(way+"state", preparing || t.State == protocol.Committed || t.State == protocol.Rollback)
	case protocol.TakeUnheld:
		unmet(way+"old enough", !m.tooYoung(message))
		unmet(way+"state", preparing)
		unmet(way+"a hold", hold)
		unmet(way+"not held", !t.Held)
	case protocol.Post:
		unmet(way+"state", preparing)
		unmet(way+"a hold", hold)
		unmet(way+"held", t.Held)
		unmet(way+"not expired", !hold || !expired)
	case protocol.Expire:
		unmet(way+"state", preparing)
		unmet(way+"a hold", hold)
		unmet(way+"expired", !hold || expired)
	case protocol.Insert, protocol.FromInitiated, protocol.TakeToCancel, protocol.CancelInitiated:
	}
}

// claimConditions are the conditions of which each must have been the only unmet one of a
// claim.
func claimConditions() []string {
	return []string{
		"TakeOver: old enough", "TakeOver: no hold that may be decided", "TakeOver: state",
		"TakeUnheld: old enough", "TakeUnheld: state", "TakeUnheld: a hold", "TakeUnheld: not held",
		"Post: state", "Post: held", "Post: not expired",
		"Expire: state", "Expire: a hold", "Expire: expired",
	}
}
