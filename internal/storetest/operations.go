package storetest

import "github.com/mongotransfer/transfer/internal/protocol"

// At returns an operation on a participant.
func At(kind protocol.Kind, participant int) protocol.Operation {
	return protocol.Operation{Kind: kind, Participant: participant}
}

// About returns an operation on the transfer's own document.
func About(kind protocol.Kind) protocol.Operation { return At(kind, protocol.NoParticipant) }

// PrepareWith returns the prepare of a participant that names the fence.
func PrepareWith(participant int, fence protocol.Fence) protocol.Operation {
	op := At(protocol.Prepare, participant)
	op.Fence = fence
	return op
}

// Claim returns a claim of the given kind.
func Claim(how protocol.ClaimKind) protocol.Operation {
	op := About(protocol.Claim)
	op.Claim = how
	return op
}

// Decide returns a decision at the given epoch.
// A roll-back is for want of funds at participant 0.
func Decide(to protocol.State, epoch int64) protocol.Operation {
	op := About(protocol.Decide)
	op.To, op.Epoch = to, epoch
	if to == protocol.Rollback {
		op.Refusal = protocol.Refusal{Reason: protocol.InsufficientFunds, Participant: 0}
	}
	return op
}

// Finish returns the finish to the given final state.
func Finish(to protocol.State) protocol.Operation {
	op := About(protocol.Finish)
	op.To = to
	return op
}

// Replacing returns the operation, a settle or an undo, with a new fence.
func Replacing(op protocol.Operation) protocol.Operation {
	op.ReplaceFence = true
	return op
}
