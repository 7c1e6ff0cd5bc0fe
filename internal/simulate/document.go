package simulate

import "github.com/mongotransfer/transfer/internal/protocol"

// MaxAccounts and MaxTransfers bound a world. Its documents are kept in arrays, so that versions are compared and forked by value.
const (
	MaxAccounts  = 3
	MaxTransfers = 3
)

// Account is an account as the database stores it, or the document of an effect.
type Account struct {
	Missing bool
	Purged  bool // it is missing for good
	Closed  bool
	Sealed  bool // it was closed by hand, whatever was in flight
	Foreign bool // its currency is not the transfers'
	Odd     bool // its balance is not of the amounts' kind
	Balance int64
	Floor   int64
	Fence   protocol.Fence
	Markers [MaxTransfers]bool
	Value   int // of a document: 0, unmet, or what the effect of a transfer has set
}

// unmet is the value of a document that somebody else has written.
const unmet = -1

// setBy is the value that a transfer's effect sets.
func setBy(transfer int) int { return transfer + 1 }

// met reports whether a document is as an effect requires.
func (a *Account) met(transfer int) bool {
	others := a.Markers
	others[transfer] = false
	return !a.Missing && a.Value == 0 && others == [MaxTransfers]bool{}
}

func (a *Account) marked() bool { return a.Markers != [MaxTransfers]bool{} }

func (a *Account) inFlight() int {
	count := 0
	for _, marker := range a.Markers {
		if marker {
			count++
		}
	}
	return count
}

// Transfer is a transfer as the database stores it.
type Transfer struct {
	Stored  bool
	State   protocol.State
	Epoch   int64
	Owner   int // the nonce of the execution that has it
	Refusal protocol.Refusal
	Clean   bool  // it was held or decided, and no prepare could be on its way
	Held    bool  // a hold of which everything is prepared
	Posted  int64 // of a hold that was posted
}

// Version is all that is stored at one moment.
type Version struct {
	Accounts  [MaxAccounts]Account
	Transfers [MaxTransfers]Transfer
}

// Leg is one participant of a transfer, and what it takes (negative) or gives. With nothing to take or give it is an effect: it requires
// that the document's value is 0 and that nobody else has reserved it, and sets a value of the transfer's own.
type Leg struct {
	Account int
	Amount  int64
	Spare   bool // an effect whose document may be removed at any time
}

func (l Leg) effect() bool { return l.Amount == 0 }

// Begin returns an execution of a transfer, whose effects are its last legs.
func (w *World) Begin(transfer int, start protocol.Start) *protocol.Execution {
	legs := w.Plans[transfer]
	for _, leg := range legs {
		if leg.effect() {
			start.Reserve++
		}
	}
	start.Reversal = legs[len(legs)-1].Spare
	return protocol.New(start, len(legs))
}

func (l Leg) debit() int64  { return max(0, -l.Amount) }
func (l Leg) credit() int64 { return max(0, l.Amount) }

// Message is an operation on its way to the database.
type Message struct {
	Transfer int
	Owner    int // the nonce of the execution that sends it
	Op       protocol.Operation
	Token    protocol.Fence // of its own, for a write that replaces a fence
	Posted   int64          // what a claim by Post posts
}
