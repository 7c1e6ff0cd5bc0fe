package transition

import (
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Hold marks a hold as held: everything is prepared.
type Hold struct {
	// ID is the transfer's.
	ID string
	// Owner and Epoch are those of its execution.
	Owner string
	Epoch int64
	// Clean says that it is held at epoch 1, and every prepare was answered.
	Clean bool
	// Stamp is the time. It is stamped as by a finish: what is held doesn't stall.
	Stamp Stamp
}

// Write writes the statement.
// It counts its writes, like an [Ownership], so that none of them changes nothing.
func (h Hold) Write(m *wire.Message) {
	m.Begin("q")
	m.Text("_id", h.ID)
	m.Text("state", string(protocol.Preparing))
	m.Number("epoch", h.Epoch)
	m.Text("owner", h.Owner)
	m.End()
	m.Begin("u")
	m.Begin("$set")
	m.Flag("held", true)
	if h.Clean {
		m.Flag("clean", true)
	}
	h.Stamp.setModified(m)
	h.Stamp.Event.start(m, h.Stamp.Now)
	m.End()
	h.Stamp.leaveModified(m)
	unset(m, "stuck", "stuckAt") // what kept it from being held is over
	m.Begin("$inc")
	m.Number("verified", 1)
	m.End()
	m.End()
}
