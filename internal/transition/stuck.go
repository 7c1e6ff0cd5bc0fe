package transition

import (
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Stuck is what keeps a transfer from its end.
type Stuck struct {
	// State is the state that the transfer is stuck in.
	State protocol.State
	// Ledger and Account name the participant, and What names it in words.
	Ledger, Account, What string
	// Gone is the code where its document is gone.
	Gone protocol.Reason
	// Cause is the server's refusal.
	// Nil means that the document is gone, or has a done mark of a transfer that is
	// rolled back.
	Cause error
}

// Failure returns the reason as it is stored and reported.
func (s Stuck) Failure() document.Failure {
	f := document.Failure{Code: protocol.Unwritable.String(), Ledger: s.Ledger, Account: s.Account}
	refused := wire.Denied(s.Cause)
	switch {
	case s.Cause == nil && s.State == protocol.Rollback:
		f.Message = s.What + " has a done mark of this transfer, which is rolled back: it was paid there"
	case s.Cause == nil:
		f.Code, f.Message = s.Gone.String(), s.What+" is gone"
	case refused != nil:
		f.Code, f.Message = document.UnauthorizedCode, refused.Missing()
	default:
		f.Message = s.What + " can't be written: " + wire.ServerTextOf(s.Cause)
	}
	return f
}

// StuckNote writes why a transfer is stuck where it is still unfinished, in the state
// that it is stuck in, and its execution's.
//
//  1. A is stuck, and its note hangs in the network.
//  2. The cause is repaired, and B finishes the transfer.
//  3. The note arrives: a final transfer would be called stuck for ever.
type StuckNote struct {
	// ID is the transfer's.
	ID string
	// Owner and Epoch are those of its execution.
	Owner string
	Epoch int64
	// State is the state that it is stuck in.
	State protocol.State
	// Reason is what keeps it from its end.
	Reason document.Failure
}

// Write writes the statement.
func (n StuckNote) Write(m *wire.Message) {
	m.Begin("q")
	m.Text("_id", n.ID)
	m.Flag("open", true)
	m.Text("state", string(n.State))
	m.Number("epoch", n.Epoch)
	m.Text("owner", n.Owner)
	m.End()
	m.Begin("u")
	m.Begin("$set")
	n.Reason.Write(m, "stuck")
	m.End()
	m.Begin("$currentDate")
	m.Flag("stuckAt", true)
	m.End()
	m.End()
}

// Documents returns how many documents the statement is for.
func (n StuckNote) Documents() int { return 1 }

// Size bounds the bytes of the statement.
func (n StuckNote) Size() int {
	return 512 + len(n.ID) + len(n.Owner) + len(n.Reason.Account) + len(n.Reason.Message)
}
