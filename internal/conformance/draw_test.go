package conformance

import (
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/simulate"
)

// likely returns the first value two times out of three, and another one otherwise.
func likely[T any](t *rapid.T, label string, first T, others ...T) T {
	if rapid.IntRange(0, 2).Draw(t, label+" as it should be") < 2 {
		return first
	}
	return rapid.SampledFrom(others).Draw(t, label)
}

func (c *check) drawExecutor() *executor {
	i := rapid.IntRange(0, len(c.executors)-1).Draw(c.t, "executor")
	return &c.executors[i]
}

// drawExecutors draws executors whose operations are sent together: mostly one of each
// transfer, of one process.
func (c *check) drawExecutors() []*executor {
	owners := c.model.scene.owners
	which := rapid.IntRange(0, owners-1).Draw(c.t, "which of each transfer")
	var who []*executor
	for _, e := range rapid.Permutation(c.executors).Draw(c.t, "executors") {
		if (e.owner-1)%owners == which || rapid.IntRange(0, 7).Draw(c.t, "another one, too") == 7 {
			who = append(who, &c.executors[e.owner-1])
		}
	}
	return who
}

// execution advances an execution of the protocol: it performs what the execution wants,
// and returns the answers to it.
func (c *check) execution(*rapid.T) {
	e := c.drawExecutor()
	c.begin(e)
	for range rapid.IntRange(1, 3).Draw(c.t, "rounds") {
		c.goOn(e)
	}
}

// executions advances several executions, whose operations are sent together.
func (c *check) executions(*rapid.T) {
	who := c.drawExecutors()
	for _, e := range who {
		c.begin(e)
	}
	for range rapid.IntRange(1, 3).Draw(c.t, "rounds") {
		c.goOn(who...)
	}
}

// begin replaces an execution that has ended, and sometimes one that has not.
func (c *check) begin(e *executor) {
	if e.run == nil || e.run.Outcome() != protocol.Running || rapid.IntRange(0, 9).Draw(c.t, "goes on") == 9 {
		start := protocol.Start{Claim: c.drawClaimKind(e.transfer)}
		switch start.Claim {
		case protocol.CancelInitiated, protocol.TakeToCancel:
			start.RollBack = protocol.Cancelled
		case protocol.TakeOver:
			start.RollBack = oneOf(c.t, "policy", 0, protocol.Stalled)
		case protocol.Expire:
			start.RollBack = protocol.Expired
		case protocol.Insert, protocol.TakeUnheld:
			start.Hold = c.model.Holds[e.transfer]
		case protocol.FromInitiated, protocol.Post:
		}
		c.hire(e)
		c.posting(e)
		c.patience(e.owner, 0)
		e.run = c.model.Begin(e.transfer, start)
	}
}

// goOn performs what executions want next, and returns the answers to them.
func (c *check) goOn(who ...*executor) {
	var batch []simulate.Message
	var from []*executor
	for _, e := range who {
		operations, err := e.run.Next()
		require.NoError(c.t, err)
		for _, op := range operations {
			batch, from = append(batch, c.send(e, op)), append(from, e)
		}
	}
	for i, answer := range c.require(batch) {
		from[i].run.Observe(batch[i].Op, answer)
	}
}

// drawClaimKind draws a kind of claim, mostly one that matches.
func (c *check) drawClaimKind(transfer int) protocol.ClaimKind {
	all := []protocol.ClaimKind{
		protocol.Insert, protocol.FromInitiated, protocol.TakeOver, protocol.TakeToCancel, protocol.CancelInitiated,
		protocol.TakeUnheld, protocol.Post, protocol.Expire,
	}
	var likeliest []protocol.ClaimKind
	switch t := &c.model.Transfers[transfer]; {
	case !t.Stored:
		likeliest = []protocol.ClaimKind{protocol.Insert}
	case t.State == protocol.Initiated:
		likeliest = []protocol.ClaimKind{protocol.FromInitiated, protocol.FromInitiated, protocol.CancelInitiated}
	case c.model.Holds[transfer] && t.State == protocol.Preparing:
		likeliest = []protocol.ClaimKind{
			protocol.TakeUnheld, protocol.Post, protocol.Post, protocol.Expire, protocol.TakeToCancel, protocol.TakeOver,
		}
	case c.model.Holds[transfer]:
		likeliest = []protocol.ClaimKind{protocol.TakeOver, protocol.Post, protocol.Expire, protocol.TakeUnheld}
	default:
		likeliest = []protocol.ClaimKind{protocol.TakeOver, protocol.TakeToCancel}
	}
	return likely(c.t, "claiming", rapid.SampledFrom(likeliest).Draw(c.t, "likeliest"), all...)
}

// onTransfer performs an operation on a transfer, which an execution might request or
// not.
func (c *check) onTransfer(*rapid.T) {
	c.require([]simulate.Message{c.drawOn(c.drawExecutor())})
}

// onTransfers performs operations on several transfers together.
func (c *check) onTransfers(*rapid.T) {
	var batch []simulate.Message
	for _, e := range c.drawExecutors() {
		batch = append(batch, c.drawOn(e))
	}
	c.require(batch)
}

// drawOn draws an operation on an executor's transfer.
func (c *check) drawOn(e *executor) simulate.Message {
	t := &c.model.Transfers[e.transfer]
	op := protocol.Operation{Kind: c.drawKind(e.transfer), Participant: protocol.NoParticipant}
	switch op.Kind {
	case protocol.Claim:
		op.Claim = c.drawClaimKind(e.transfer)
		switch op.Claim {
		case protocol.TakeOver, protocol.TakeUnheld:
			c.patience(e.owner, oneOf[time.Duration](c.t, "threshold", 0, hour, century))
		case protocol.Post:
			c.posting(e)
		case protocol.CancelInitiated:
			op.Refusal = c.drawRefusal(e.transfer)
		default:
		}
	case protocol.MarkHeld:
		op.Clean = rapid.Bool().Draw(c.t, "clean")
		op.Epoch = likely(c.t, "epoch", t.Epoch, t.Epoch-1, t.Epoch+1, 0)
		e = c.drawVerifier(e)
	case protocol.Verify:
		op.Epoch = likely(c.t, "epoch", t.Epoch, t.Epoch-1, t.Epoch+1, 0)
		e = c.drawVerifier(e)
	case protocol.Decide:
		op.Epoch = likely(c.t, "epoch", t.Epoch, t.Epoch-1, t.Epoch+1, 0)
		op.To = oneOf(c.t, "to", protocol.Committed, protocol.Rollback)
		op.Clean = rapid.Bool().Draw(c.t, "clean")
		if op.To == protocol.Rollback {
			op.Refusal = c.drawRefusal(e.transfer)
		}
	case protocol.Finish:
		op.To = oneOf(c.t, "to", protocol.Success, protocol.Fail)
	default:
	}
	return c.send(e, op)
}

// drawKind draws a kind of operation on a transfer, mostly one that suits its state.
func (c *check) drawKind(transfer int) protocol.Kind {
	likeliest := protocol.Finish
	switch c.model.Transfers[transfer].State {
	case "", protocol.Initiated:
		likeliest = protocol.Claim
	case protocol.Preparing:
		likeliest = oneOf(c.t, "while preparing", protocol.Verify, protocol.Verify, protocol.Verify, protocol.Verify, protocol.Decide)
		if c.model.Holds[transfer] {
			likeliest = oneOf(c.t, "while held",
				protocol.MarkHeld, protocol.MarkHeld, protocol.Claim, protocol.Claim, protocol.Verify, protocol.Decide)
		}
	case protocol.Committed, protocol.Rollback:
		likeliest = oneOf(c.t, "once decided", protocol.Finish, protocol.Claim)
	case protocol.Success, protocol.Fail:
		likeliest = oneOf(c.t, "in the end", protocol.ReadTransfer, protocol.Claim)
	default:
	}
	return likely(c.t, "kind", likeliest,
		protocol.Claim, protocol.Verify, protocol.MarkHeld, protocol.Decide, protocol.Finish, protocol.ReadTransfer, protocol.LookTransfer)
}

// drawVerifier draws the verifying executor: the owner, or the one that was drawn for the
// same transfer.
func (c *check) drawVerifier(e *executor) *executor {
	owner := c.model.Transfers[e.transfer].Owner
	if owner == 0 || rapid.Bool().Draw(c.t, "whoever it is") {
		return e
	}
	return &c.executors[owner-1]
}

func (c *check) drawRefusal(transfer int) protocol.Refusal {
	return protocol.Refusal{
		Reason:      protocol.Reason(rapid.IntRange(int(protocol.NotFound), int(protocol.Expired)).Draw(c.t, "reason")),
		Participant: rapid.IntRange(protocol.NoParticipant, len(c.model.Plans[transfer])-1).Draw(c.t, "refused by"),
	}
}

// onParticipant performs one operation on a participant.
func (c *check) onParticipant(*rapid.T) {
	e := c.drawExecutor()
	participant := rapid.IntRange(0, len(c.model.Plans[e.transfer])-1).Draw(c.t, "participant")
	kind := likely(c.t, "kind", c.likeliest(e, participant), accountKinds()...)
	c.require([]simulate.Message{c.drawAt(e, kind, participant)})
}

// accountKinds returns the kinds of operations on participants.
func accountKinds() []protocol.Kind {
	return []protocol.Kind{
		protocol.Prepare, protocol.Pay, protocol.Settle, protocol.Clear, protocol.Undo, protocol.FenceOnly,
		protocol.Look, protocol.ReadFence,
	}
}

// likeliest draws a write that finds the trace that it needs.
func (c *check) likeliest(e *executor, participant int) protocol.Kind {
	posted := c.model.Transfers[e.transfer].Posted != 0
	switch c.model.Accounts[c.model.Plans[e.transfer][participant].Account].Traces[e.transfer] {
	case protocol.Reserved:
		if posted {
			return protocol.Settle
		}
		return oneOf(c.t, "clear by", protocol.Settle, protocol.Undo, protocol.Pay)
	case protocol.Done:
		return protocol.Clear
	default:
		return protocol.Prepare
	}
}

// onParticipants performs several operations on participants as one batch.
// Mostly that is one kind of write at each participant of a transfer.
// It may also be several writes to one participant, or of several executions, or writes
// and reads of one execution.
func (c *check) onParticipants(*rapid.T) {
	var batch []simulate.Message
	who := rapid.Permutation(c.executors).Draw(c.t, "executors")
	if c.remembers {
		// The documents are read after each batch, and each fence that a store can
		// remember must be seen.
		who = who[:1]
	}
	who = who[:min(len(who), likely(c.t, "so many of them", 1, 2, 3))]
	for i := range who {
		e := &who[i]
		kind, kinds := c.likeliest(e, 0), accountKinds()
		distinct := rapid.IntRange(0, 3).Draw(c.t, "each participant once") < 3
		if !distinct || len(who) > 1 {
			kinds = slices.DeleteFunc(kinds, reads)
		}
		for i := range c.model.Plans[e.transfer] {
			at := i
			if !distinct {
				at = rapid.IntRange(0, i).Draw(c.t, "participant")
			}
			batch = append(batch, c.drawAt(e, likely(c.t, "this", kind, kinds...), at))
		}
	}
	c.require(batch)
}

// onCrowd performs writes of several transfers together, most of which find the traces
// that they need.
func (c *check) onCrowd(*rapid.T) {
	var batch []simulate.Message
	clearing := oneOf(c.t, "clear by", protocol.Settle, protocol.Undo, protocol.Pay)
	fencing := rapid.IntRange(0, 2).Draw(c.t, "with a new fence") == 2
	clearsOnly := rapid.IntRange(0, 2).Draw(c.t, "clears only") == 2
	for _, e := range c.drawExecutors() {
		for i, leg := range c.model.Plans[e.transfer] {
			kind := protocol.Prepare
			switch trace := c.model.Accounts[leg.Account].Traces[e.transfer]; {
			case trace == protocol.Reserved:
				kind = clearing
			case trace == protocol.Done:
				kind = protocol.Clear
			case clearsOnly:
				continue
			}
			message := c.drawAt(e, likely(c.t, "this", kind, protocol.Prepare, protocol.Pay, protocol.Settle, protocol.Clear,
				protocol.Undo, protocol.FenceOnly), i)
			if message.Op.Kind == kind && replacesFences(kind) {
				message.Op.ReplaceFence = fencing
			}
			batch = append(batch, message)
		}
	}
	c.require(batch)
}

// replacesFences reports whether a kind of write may replace the fence where it removes a
// trace.
func replacesFences(kind protocol.Kind) bool {
	return kind == protocol.Settle || kind == protocol.Clear || kind == protocol.Undo
}

// drawAt draws an operation on a participant.
func (c *check) drawAt(e *executor, kind protocol.Kind, participant int) simulate.Message {
	op := protocol.Operation{Kind: kind, Participant: participant}
	switch kind {
	case protocol.Prepare:
		op.Fence = c.drawFence(c.model.Plans[e.transfer][participant].Account)
	case protocol.Settle, protocol.Clear, protocol.Undo:
		op.ReplaceFence = rapid.Bool().Draw(c.t, "replace fence")
		c.know(e)
	case protocol.Pay:
		c.know(e)
	default:
	}
	return c.send(e, op)
}

// drawFence draws a fence for a prepare: the present one, one that some account has or
// had, none, or one that never existed.
func (c *check) drawFence(account int) protocol.Fence {
	others := []protocol.Fence{"", "never seen"}
	for _, had := range c.model.fences {
		others = append(others, had...)
	}
	return likely(c.t, "fence", c.model.fenceOf(account), others...)
}
