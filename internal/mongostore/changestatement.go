package mongostore

import (
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/transition"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Write writes the change as a statement.
func (c *change) Write(m *wire.Message) {
	a, op := c.calls[0].Attempt, c.calls[0].Op
	switch op.Kind {
	case protocol.Verify:
		a.ownership(op.Epoch, protocol.Preparing).Write(m)
	case protocol.MarkHeld:
		transition.Hold{
			ID: a.Transfer.ID, Owner: a.Owner, Epoch: op.Epoch, Clean: op.Clean, Stamp: c.stamp,
		}.Write(m)
	case protocol.Decide:
		decision := transition.Decision{IDs: c.ids(), Epoch: op.Epoch, To: op.To, Clean: op.Clean}
		if op.To == protocol.Rollback {
			decision.Failure = a.failure(op.Refusal)
		}
		decision.Write(m)
	case protocol.Finish:
		transition.Finish{IDs: c.ids(), To: op.To, Stamp: c.stamp}.Write(m)
	case protocol.Claim, protocol.ReadFence, protocol.ReadTransfer, protocol.LookTransfer,
		protocol.Prepare, protocol.Look, protocol.Pay, protocol.Settle, protocol.Clear, protocol.Undo, protocol.FenceOnly: // of other lanes
	}
	if len(c.calls) > 1 {
		m.Flag("multi", true)
	}
}

// Documents returns how many documents the statement is for.
func (c *change) Documents() int { return len(c.calls) }

// Size bounds the bytes of the statement.
func (c *change) Size() int {
	size := 512
	for _, call := range c.calls {
		size += len(call.Attempt.Transfer.ID) + 16
	}
	if c.calls[0].Op.To == protocol.Rollback {
		size += 2 << 10 // the failure
	}
	return size
}

// ids returns the IDs of the change's transfers.
func (c *change) ids() []string {
	ids := make([]string, len(c.calls))
	for i, call := range c.calls {
		ids[i] = call.Attempt.Transfer.ID
	}
	return ids
}

// ownership is the write to the attempt's transfer by which an execution sees that it is
// still its own, in a state if one is given.
func (a *Attempt) ownership(epoch int64, state protocol.State) transition.Ownership {
	return transition.Ownership{ID: a.Transfer.ID, Owner: a.Owner, Epoch: epoch, State: state}
}
