package transition

import (
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Ownership writes to an unfinished transfer where it is one execution's, and in the
// given state if there is one.
//
// It counts its writes, because a write that changes nothing is acknowledged without
// asking any other member.
//
//  1. A primary is cut off and replaced.
//  2. It gets the write within the millisecond of the last one: lastModified alone would
//     stay the same.
//  3. It answers "matched" by itself.
type Ownership struct {
	// ID is the transfer's.
	ID string
	// Owner and Epoch are those of the execution.
	Owner string
	Epoch int64
	// State is the required one; "": any.
	State protocol.State
}

// Write writes the statement.
func (o Ownership) Write(m *wire.Message) {
	m.Begin("q")
	m.Text("_id", o.ID)
	m.Number("epoch", o.Epoch)
	m.Text("owner", o.Owner)
	if o.State != "" {
		m.Text("state", string(o.State))
	} else {
		m.Flag("open", true)
	}
	m.End()
	m.Begin("u")
	m.Begin("$inc")
	m.Number("verified", 1)
	m.End()
	m.Begin("$currentDate")
	m.Flag("lastModified", true)
	m.End()
	m.End()
}

// Documents returns how many documents the statement is for.
func (o Ownership) Documents() int { return 1 }

// Size bounds the bytes of the statement.
func (o Ownership) Size() int { return 256 + len(o.ID) + len(o.Owner) }
