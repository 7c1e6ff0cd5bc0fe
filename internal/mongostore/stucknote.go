package mongostore

import (
	"context"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/transition"
	"github.com/mongotransfer/transfer/internal/wire"
)

// StuckReason is what keeps an execution from finishing its transfer.
type StuckReason struct {
	// Attempt is the execution.
	Attempt *Attempt
	// State is the state that the transfer is stuck in.
	State protocol.State
	// Participant is what can't be written; NoParticipant is the transfer's own document.
	Participant int
	// Cause is the server's refusal.
	// Nil: the document is gone, or has a done mark of a transfer that is rolled back.
	Cause error
}

// Reason returns the reason as it is stored and reported.
func (r StuckReason) Reason() document.Failure {
	about := transition.Stuck{State: r.State, What: "the transfer's own document", Gone: protocol.NotFound, Cause: r.Cause}
	if r.Participant != protocol.NoParticipant {
		p := &r.Attempt.participants[r.Participant]
		about.Ledger, about.Account, about.What = p.leg.Ledger, p.leg.Account, r.Attempt.Name(r.Participant)
		if p.effect != nil {
			about.Gone = protocol.RequirementFailed
		}
	}
	return about.Failure()
}

// NoteStuck stores with each transfer why it is stuck, and since when, in one command.
// It returns what became of the first note that was not stored.
// People read that: nothing rests on it, and it is no sign of life.
// Where the same reason is stored already, nothing is sent, and the time stays as it is.
func (s *Store) NoteStuck(ctx context.Context, reasons []StuckReason) (protocol.Result, error) {
	var notes []transition.StuckNote
	for _, r := range reasons {
		reason := r.Reason()
		if known := r.Attempt.Transfer.Stuck; known == nil || *known != reason {
			notes = append(notes, r.note(reason))
		}
	}
	for _, verdict := range wire.UpdateAll(wire.Detached(ctx), s.catalog.Transfers, notes).Verdicts {
		if verdict.Err != nil {
			return verdict.Result, verdict.Err
		}
	}
	for _, r := range reasons {
		reason := r.Reason()
		r.Attempt.Transfer.Stuck = &reason
	}
	return protocol.Applied, nil
}

func (r StuckReason) note(reason document.Failure) transition.StuckNote {
	t := r.Attempt.Transfer
	return transition.StuckNote{ID: t.ID, Owner: r.Attempt.Owner, Epoch: t.Epoch, State: r.State, Reason: reason}
}
