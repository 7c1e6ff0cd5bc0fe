package transition

import (
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Postponement puts off a submitted transfer that lacks funds.
//
// It requires that nobody has claimed the transfer or put it off since it was read.
//
//  1. A and B find it due, and its money lacking.
//  2. A puts it off, the money comes in, and a worker claims it.
//  3. B's write arrives: a transfer under way, or a final one, would be called waiting.
//
// It requires the digest, the deadline and the time as well: after a purge the ID may
// stand for another transfer, which doesn't wait, or is not to begin before its time.
type Postponement struct {
	// Transfer is the transfer as the worker has read it.
	Transfer document.Transfer
	// NextTry is when a worker looks at it again.
	NextTry time.Time
	// Reason says whose money is lacking.
	Reason document.Failure
}

// Write writes the statement.
func (p Postponement) Write(m *wire.Message) {
	t := &p.Transfer
	requireAsPutOff(m, t)
	m.Begin("u")
	m.Begin("$set")
	m.Date("notBefore", p.NextTry)
	if t.Postponed == 0 && !t.NotBefore.IsZero() {
		m.Date("askedNotBefore", t.NotBefore)
	}
	p.Reason.Write(m, "waiting")
	m.End()
	m.Begin("$inc")
	m.Number("postponed", 1)
	m.End()
	m.Begin("$currentDate")
	m.Flag("lastModified", true)
	m.End()
	m.End()
}

// Documents returns how many documents the statement is for.
func (p Postponement) Documents() int { return 1 }

// Size bounds the bytes of the statement.
func (p Postponement) Size() int {
	return 512 + len(p.Transfer.ID) + len(p.Reason.Account) + len(p.Reason.Message)
}

// Hastening ends the pause of a transfer that was put off: a worker looks at it at once.
//
// It requires what a Postponement requires.
//
//  1. A has put the transfer off, and sees its money.
//  2. B looks as well, finds the money gone, and puts it off for longer.
//  3. A's write arrives: B's pause would be over before it has begun.
type Hastening struct {
	// Transfer is the transfer as it was put off.
	Transfer document.Transfer
}

// Write writes the statement.
func (h Hastening) Write(m *wire.Message) {
	requireAsPutOff(m, &h.Transfer)
	m.Begin("u")
	m.Begin("$currentDate")
	m.Flag("notBefore", true)
	m.Flag("lastModified", true)
	m.End()
	m.End()
}

// Documents returns how many documents the statement is for.
func (h Hastening) Documents() int { return 1 }

// Size bounds the bytes of the statement.
func (h Hastening) Size() int { return 384 + len(h.Transfer.ID) }

// requireAsPutOff requires that a transfer still waits for funds, and was put off as
// often, and until the same time, as when it was read.
func requireAsPutOff(m *wire.Message, t *document.Transfer) {
	m.Begin("q")
	m.Text("_id", t.ID)
	t.Digest.Write(m, "digest")
	m.Text("state", string(protocol.Initiated))
	m.Date("fundsUntil", t.FundsUntil)
	if t.NotBefore.IsZero() {
		m.Null("notBefore")
	} else {
		m.Date("notBefore", t.NotBefore)
	}
	if t.Postponed == 0 {
		m.Null("postponed")
	} else {
		m.Number("postponed", t.Postponed)
	}
	m.End()
}
