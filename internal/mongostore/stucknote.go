package mongostore

import (
	"context"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// CodeUnauthorized is the code of a stored reason where the client lacks a right.
const CodeUnauthorized = "unauthorized"

// StuckReason is what keeps an execution from finishing its transfer.
type StuckReason struct {
	// Attempt is the execution.
	Attempt *Attempt
	// State is the state that the transfer is stuck in.
	State protocol.State
	// Participant is the document that can't be written.
	// NoParticipant is the transfer's own document.
	Participant int
	// Cause is the server's refusal; nil means that the participant's document is gone.
	Cause error
}

// Reason returns the reason as it is stored and reported.
func (r StuckReason) Reason() document.Failure {
	f := document.Failure{Code: protocol.Unwritable.String()}
	what, gone := "the transfer's own document", protocol.NotFound
	if r.Participant != protocol.NoParticipant {
		p := &r.Attempt.participants[r.Participant]
		f.Ledger, f.Account = p.leg.Ledger, p.leg.Account
		what = r.Attempt.Name(r.Participant)
		if p.effect != nil {
			gone = protocol.RequirementFailed
		}
	}
	if r.Cause == nil {
		f.Code, f.Message = gone.String(), what+" is gone"
		return f
	}
	if refused := wire.Refused(r.Cause); refused != nil {
		f.Code, f.Message = CodeUnauthorized, refused.Missing()
		return f
	}
	f.Message = what + " can't be written: " + wire.ServerTextOf(r.Cause)
	return f
}

// NoteStuck stores with each transfer why it is stuck, and since when, in one command.
// People read that: nothing rests on it, and it is no sign of life.
// Where the same reason is stored already nothing is sent, so that the time stays that of
// the first try.
func (s *Store) NoteStuck(ctx context.Context, reasons []StuckReason) error {
	var notes []stuckNote
	for _, r := range reasons {
		reason := r.Reason()
		if known := r.Attempt.Transfer.Stuck; known == nil || *known != reason {
			notes = append(notes, stuckNote{r, reason})
			r.Attempt.Transfer.Stuck = &reason
		}
	}
	for _, verdict := range wire.UpdateAll(wire.Detached(ctx), s.catalog.Transfers, notes).Verdicts {
		if verdict.Err != nil {
			return verdict.Err
		}
	}
	return nil
}

// stuckNote writes a reason where the transfer is still unfinished, in the state that it
// is stuck in, and its execution's. 1. A is stuck, and its note hangs in the network. 2.
// The cause is repaired, and B finishes the transfer. 3. The note arrives: a final
// transfer would be called stuck for ever.
type stuckNote struct {
	StuckReason

	reason document.Failure
}

// Write writes the statement.
func (n stuckNote) Write(m *wire.Message) {
	t := n.Attempt.Transfer
	m.Begin("q")
	m.Text("_id", t.ID)
	m.Flag("open", true)
	m.Text("state", string(n.State))
	m.Number("epoch", t.Epoch)
	m.Text("owner", n.Attempt.Owner)
	m.End()
	m.Begin("u")
	m.Begin("$set")
	n.reason.Write(m, "stuck")
	m.End()
	m.Begin("$currentDate")
	m.Flag("stuckAt", true)
	m.End()
	m.End()
}

// Documents returns how many documents the statement is for.
func (n stuckNote) Documents() int { return 1 }

// Size bounds the bytes of the statement.
func (n stuckNote) Size() int {
	return 512 + len(n.Attempt.Transfer.ID) + len(n.Attempt.Owner) + len(n.reason.Account) + len(n.reason.Message)
}
