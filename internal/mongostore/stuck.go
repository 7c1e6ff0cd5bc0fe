package mongostore

import (
	"context"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// CodeUnauthorized is the code of what is stored where a right is missing.
const CodeUnauthorized = "unauthorized"

// StuckReason is what keeps an execution from finishing its transfer.
type StuckReason struct {
	Work        *Attempt
	State       protocol.State // that it is stuck in
	Participant int            // NoParticipant: the transfer's own document
	Cause       error          // the server's refusal; nil: the participant's document is gone
}

// Reason returns the obstacle as it is stored and told.
func (o StuckReason) Reason() document.Failure {
	f := document.Failure{Code: protocol.Unwritable.String()}
	what, gone := "the transfer's own document", protocol.NotFound
	if o.Participant != protocol.NoParticipant {
		p := &o.Work.participants[o.Participant]
		f.Ledger, f.Account = p.leg.Ledger, p.leg.Account
		what = o.Work.Name(o.Participant)
		if p.effect != nil {
			gone = protocol.RequirementFailed
		}
	}
	if o.Cause == nil {
		f.Code, f.Message = gone.String(), what+" is gone"
		return f
	}
	if refused := wire.Refused(o.Cause); refused != nil {
		f.Code, f.Message = CodeUnauthorized, refused.Missing()
		return f
	}
	f.Message = what + " can't be written: " + wire.ServerTextOf(o.Cause)
	return f
}

// NoteStuck stores with each transfer why it is stuck, and since when, in one command. It is there to be read by people: nothing rests
// on it, and it is no sign of life. Where the reason is stored already nothing is sent, so that the time is that of the first try.
func (s *Store) NoteStuck(ctx context.Context, obstacles []StuckReason) error {
	var notes []note
	for _, o := range obstacles {
		reason := o.Reason()
		if known := o.Work.Transfer.Stuck; known == nil || *known != reason {
			notes = append(notes, note{o, reason})
			o.Work.Transfer.Stuck = &reason
		}
	}
	for _, v := range wire.UpdateAll(wire.Detached(ctx), s.Transfers, notes).Verdicts {
		if v.Err != nil {
			return v.Err
		}
	}
	return nil
}

// note is the write of an obstacle, where the transfer is still unfinished, in the state that it is stuck in, and its execution's. 1. A
// is stuck, and its note hangs in the network. 2. The cause is repaired, and B finishes the transfer. 3. The note arrives: a final
// transfer would be called stuck for ever.
type note struct {
	StuckReason

	reason document.Failure
}

func (n note) Write(m *wire.Message) {
	t := n.Work.Transfer
	m.Begin("q")
	m.Text("_id", t.ID)
	m.Flag("open", true)
	m.Text("state", string(n.State))
	m.Number("epoch", t.Epoch)
	m.Text("owner", n.Work.Owner)
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

func (n note) Documents() int { return 1 }

func (n note) Size() int {
	return 512 + len(n.Work.Transfer.ID) + len(n.Work.Owner) + len(n.reason.Account) + len(n.reason.Message)
}
