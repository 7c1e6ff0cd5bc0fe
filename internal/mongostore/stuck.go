package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/protocol"
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
func (o StuckReason) Reason() Failure {
	f := Failure{Code: protocol.Unwritable.String()}
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
	if refused := Refused(o.Cause); refused != nil {
		f.Code, f.Message = CodeUnauthorized, refused.Missing()
		return f
	}
	f.Message = what + " can't be written: " + serverTextOf(o.Cause)
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
	for _, v := range updateAll(detached(ctx), s.transfers, notes).verdicts {
		if v.err != nil {
			return v.err
		}
	}
	return nil
}

// note is the write of an obstacle, where the transfer is still unfinished, in the state that it is stuck in, and its execution's. 1. A
// is stuck, and its note hangs in the network. 2. The cause is repaired, and B finishes the transfer. 3. The note arrives: a final
// transfer would be called stuck for ever.
type note struct {
	StuckReason

	reason Failure
}

func (n note) write(m *message) {
	t := n.Work.Transfer
	m.begin("q")
	m.text("_id", t.ID)
	m.flag("open", true)
	m.text("state", string(n.State))
	m.number("epoch", t.Epoch)
	m.text("owner", n.Work.Owner)
	m.end()
	m.begin("u")
	m.begin("$set")
	n.reason.write(m, "stuck")
	m.end()
	m.begin("$currentDate")
	m.flag("stuckAt", true)
	m.end()
	m.end()
}

func (n note) documents() int { return 1 }

func (n note) size() int {
	return 512 + len(n.Work.Transfer.ID) + len(n.Work.Owner) + len(n.reason.Account) + len(n.reason.Message)
}

// isStuck selects, by the index of unfinished work, what an execution has left with a reason.
func isStuck() bson.D {
	return bson.D{
		{Key: "open", Value: true},
		anyHold(),
		{Key: "stuck", Value: bson.D{{Key: "$exists", Value: true}}},
	}
}
