package simulate

import "github.com/mongotransfer/transfer/internal/protocol"

// MaxAccounts and MaxTransfers bound a world. Its documents are kept in arrays, so that versions are compared and forked by value.
const (
	MaxAccounts  = 3
	MaxTransfers = 3
)

// Account is an account as the database stores it.
type Account struct {
	Missing bool
	Closed  bool
	Sealed  bool // it was closed by hand, whatever was in flight
	Foreign bool // its currency is not the transfers'
	Odd     bool // its balance is not of the amounts' kind
	Balance int64
	Floor   int64
	Fence   protocol.Fence
	Markers [MaxTransfers]bool
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
	Clean   bool // it was decided at epoch 1, with every prepare answered
}

// Version is all that is stored at one moment.
type Version struct {
	Accounts  [MaxAccounts]Account
	Transfers [MaxTransfers]Transfer
}

// Leg is one participant of a transfer, and what it takes (negative) or gives.
type Leg struct {
	Account int
	Amount  int64
}

func (l Leg) debit() int64  { return max(0, -l.Amount) }
func (l Leg) credit() int64 { return max(0, l.Amount) }

// Message is an operation on its way to the database.
type Message struct {
	Transfer int
	Owner    int // the nonce of the execution that sends it
	Op       protocol.Operation
	Token    protocol.Fence // of its own, for a write that replaces a fence
}
