package transition

import (
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Decision commits transfers, or rolls one back.
type Decision struct {
	// IDs are those of the transfers.
	IDs []string
	// Epoch is that of their executions.
	Epoch int64
	// To is Committed or Rollback.
	To protocol.State
	// Clean says that they are decided at epoch 1, and every prepare was answered.
	Clean bool
	// Failure is why it is rolled back; a commit has none.
	Failure document.Failure
}

// Write writes the statement. The server stamps its time.
func (d Decision) Write(m *wire.Message) {
	m.Begin("q")
	requireIDs(m, d.IDs)
	m.Text("state", string(protocol.Preparing))
	m.Number("epoch", d.Epoch)
	m.End()
	m.Begin("u")
	m.Begin("$set")
	m.Text("state", string(d.To))
	if d.Clean {
		m.Flag("clean", true)
	}
	if d.To == protocol.Rollback {
		d.Failure.Write(m, "failure")
	}
	m.End()
	m.Begin("$currentDate")
	m.Flag("lastModified", true)
	if d.To == protocol.Committed {
		m.Flag("committedAt", true)
	}
	m.End()
	m.End()
}
