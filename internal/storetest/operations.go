package storetest

import "github.com/mongotransfer/transfer/internal/protocol"

func At(kind protocol.Kind, participant int) protocol.Operation {
	return protocol.Operation{Kind: kind, Participant: participant}
}

func About(kind protocol.Kind) protocol.Operation { return At(kind, protocol.NoParticipant) }

func PrepareWith(participant int, fence protocol.Fence) protocol.Operation {
	op := At(protocol.Prepare, participant)
	op.Fence = fence
	return op
}

func Claim(how protocol.ClaimKind) protocol.Operation {
	op := About(protocol.Claim)
	op.Claim = how
	return op
}

func Decide(to protocol.State, epoch int64) protocol.Operation {
	op := About(protocol.Decide)
	op.To, op.Epoch = to, epoch
	if to == protocol.Rollback {
		op.Refusal = protocol.Refusal{Reason: protocol.InsufficientFunds, Participant: 0}
	}
	return op
}

func Finish(to protocol.State) protocol.Operation {
	op := About(protocol.Finish)
	op.To = to
	return op
}

func Replacing(op protocol.Operation) protocol.Operation {
	op.ReplaceFence = true
	return op
}
