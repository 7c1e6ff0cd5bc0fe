package conformance

import (
	"time"

	"pgregory.net/rapid"

	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/simulate"
)

// canPost reports whether a part of a transfer can be posted: it is from one account to one other.
func canPost(plan []simulate.Leg) bool {
	money := 0
	for _, leg := range plan {
		if leg.Amount != 0 {
			money++
		}
	}
	return money == 2
}

// posting draws what an owner posts of a hold: all of it, for which 0 stands, or a part.
func (c *check) posting(e *executor) {
	plan := c.model.scene.plans[e.transfer]
	c.model.posted[e.owner], c.bank.works[e.owner].Post = 0, nil
	if !canPost(plan) || rapid.Bool().Draw(c.t, "posts all of it") {
		return
	}
	held := max(plan[0].Amount, -plan[0].Amount)
	part := rapid.Int64Range(1, held).Draw(c.t, "posts")
	amount := c.model.scene.coin.amount(part)
	c.model.posted[e.owner], c.bank.works[e.owner].Post = part, &amount
}

// elapse sets the time at which a hold expires into the past, or back into the future.
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
	way := message.Op.Claiming.String() + ": "
	preparing := t.State == protocol.Preparing
	switch message.Op.Claiming {
	case protocol.TakeOver:
		unmet(way+"old enough", !m.tooYoung(message))
		unmet(way+"no hold that may be decided", !(preparing && hold))
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

// claimConditions are those that each claim must have lacked alone.
func claimConditions() []string {
	return []string{
		"TakeOver: old enough", "TakeOver: no hold that may be decided", "TakeOver: state",
		"TakeUnheld: old enough", "TakeUnheld: state", "TakeUnheld: a hold", "TakeUnheld: not held",
		"Post: state", "Post: a hold", "Post: held", "Post: not expired",
		"Expire: state", "Expire: a hold", "Expire: expired",
	}
}
