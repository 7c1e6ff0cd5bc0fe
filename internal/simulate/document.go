package simulate

import "github.com/mongotransfer/transfer/internal/protocol"

// MaxAccounts and MaxTransfers bound a world.
// Its documents are kept in arrays, so that versions are compared and forked by value.
const (
	MaxAccounts  = 3
	MaxTransfers = 3
)

// Account is an account as the database stores it, or the document of an effect.
type Account struct {
	// Missing says that the document does not exist.
	Missing bool
	// Purged says that it is missing for good.
	Purged bool
	// Closed says that the account is closed.
	Closed bool
	// Sealed says that it was closed by hand, whatever was in flight.
	Sealed bool
	// Frozen says that no new transfer may touch it, whatever is in flight.
	Frozen bool
	// Foreign says that its currency is not the transfers'.
	Foreign bool
	// Odd says that its balance is not of the amounts' kind.
	Odd bool
	// Balance is its balance.
	Balance int64
	// Floor is what its balance may not fall below.
	Floor int64
	// Fence is the present value of its fence.
	Fence protocol.Fence
	// Traces says what there is of each transfer.
	Traces [MaxTransfers]protocol.Trace
	// Value is that of a document: 0, unmet, or what a transfer's effect has set.
	Value int
	// Room is what is left to be taken back of a transfer that reversals reverse, and
	// Latest is who has taken something back last, as setBy has it.
	Room   int64
	Latest int
}

// unmet is the value of a document that was written from outside.
const unmet = -1

// setBy is the value that a transfer's effect sets.
func setBy(transfer int) int { return transfer + 1 }

// met reports whether a document is as an effect of a transfer requires.
func (a *Account) met(transfer int) bool {
	others := *a
	others.Traces[transfer] = protocol.NoTrace
	return !a.Missing && a.Value == 0 && !others.marked()
}

// marked reports whether a transfer has reserved anything there.
// A done mark reserves nothing.
func (a *Account) marked() bool { return a.inFlight() > 0 }

func (a *Account) inFlight() int {
	count := 0
	for _, trace := range a.Traces {
		if trace == protocol.Reserved {
			count++
		}
	}
	return count
}

// Transfer is a transfer as the database stores it.
type Transfer struct {
	// Stored says that the document exists.
	Stored bool
	// State is its state.
	State protocol.State
	// Epoch is its epoch.
	Epoch int64
	// Owner is the nonce of the execution that has claimed it.
	Owner int
	// Refusal is why it was rolled back.
	Refusal protocol.Refusal
	// Clean says that no prepare could be on its way when it was held or decided.
	Clean bool
	// Held says that it is a hold with everything prepared.
	Held bool
	// Posted is the amount of a hold that was posted.
	Posted int64
	// Planned is what a reversal of all that is left takes back, and Plan counts how
	// often it was planned anew.
	Planned int64
	Plan    int
}

// Version is all that is stored at one moment.
type Version struct {
	// Accounts are the accounts and documents.
	Accounts [MaxAccounts]Account
	// Transfers are the transfers.
	Transfers [MaxTransfers]Transfer
}

// Leg is one participant of a transfer, and what it takes (negative) or gives.
// With an amount of 0 it is an effect.
// An effect requires that the document's value is 0 and that no other transfer has
// reserved it, and sets a value of the transfer's own.
type Leg struct {
	// Account is the index of the account or document.
	Account int
	// Amount is what the participant gets; a negative one is taken.
	Amount int64
	// MayBeGone says that it is no effect: the document is a transfer that this one
	// reverses.
	// It may be removed at any time.
	MayBeGone bool
	// Takes is what is taken back of that transfer.
	Takes int64
}

func (l Leg) effect() bool { return l.Amount == 0 }

// Begin returns an execution of a transfer.
// The transfer's effects are its last legs.
// A start that is by record already is that of an earlier release.
func (w *World) Begin(transfer int, start protocol.Start) *protocol.Execution {
	legs := w.Plans[transfer]
	var losers []int
	for i, leg := range legs {
		if leg.effect() {
			start.Reserve++
		}
		if leg.Amount < 0 {
			losers = append(losers, i)
		}
	}
	start.Hold = start.Hold || w.Holds[transfer]
	start.Reversal = legs[len(legs)-1].MayBeGone
	start.WaitWhileTaken = start.Reversal
	start.ByRecord = start.ByRecord || w.Earlier[transfer]
	return protocol.New(start, len(legs), losers...)
}

func (l Leg) debit() int64  { return max(0, -l.Amount) }
func (l Leg) credit() int64 { return max(0, l.Amount) }

// Message is an operation on its way to the database.
type Message struct {
	// Transfer is the index of the transfer.
	Transfer int
	// Owner is the nonce of the execution that sends the message.
	Owner int
	// Op is the operation.
	Op protocol.Operation
	// Token is the message's own, for a write that replaces a fence.
	Token protocol.Fence
	// Posted is the amount that a claim by Post posts.
	Posted int64
	// Seen is the transfer as its execution knows it: what that was made for, and the
	// epoch and owner that a claim by Replan requires.
	Seen Transfer
}
