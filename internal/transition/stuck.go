package transition

import (
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// StuckNote writes why a transfer is stuck where it is still unfinished, in the state
// that it is stuck in, and its execution's. 1. A is stuck, and its note hangs in the
// network. 2. The cause is repaired, and B finishes the transfer. 3. The note arrives: a
// final transfer would be called stuck for ever.
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
