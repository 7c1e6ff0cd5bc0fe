package protocol

// State is where a transfer stands, spelled as it is stored.
type State string

const (
	// Initiated means stored for a worker, and nothing else: no participant knows of it.
	// A crash leaves it for the next worker.
	Initiated State = "Initiated"
	// Preparing means that an execution of the current epoch is reserving money, or that
	// every participant holds a trace, and the record of that is not stored yet.
	// A crash leaves traces at some participants; recovery prepares the rest, or rolls
	// back if one of them holds none.
	// A hold stays here, prepared, until it is posted, voided or expires.
	Preparing State = "Preparing"
	// Committed means that the transfer will happen: every participant was prepared, and
	// from here each executor only goes forward.
	// A crash leaves markers and done marks; recovery settles and clears them.
	Committed State = "Committed"
	// Success means that every participant is settled and cleared.
	// It is final, and no trace is left anywhere.
	Success State = "Success"
	// Rollback means that the transfer will not happen.
	// A crash leaves markers; recovery undoes them.
	Rollback State = "Rollback"
	// Fail means that nothing moved.
	// It is final, and no marker is left anywhere.
	Fail State = "Fail"
)

// Final reports whether the state never changes again.
func (s State) Final() bool { return s == Success || s == Fail }

// Forward reports whether the transfer was committed.
func (s State) Forward() bool { return s == Committed || s == Success }

// Back reports whether the transfer was rolled back, or is being.
func (s State) Back() bool { return s == Rollback || s == Fail }

// Known reports whether this version of the protocol knows the state.
// States come from the database, and a newer version may have written one.
func (s State) Known() bool {
	switch s {
	case Initiated, Preparing, Committed, Success, Rollback, Fail:
		return true
	}
	return false
}

// Reason says why a transfer is rolled back.
// The refusals stand in the order in which they are reported if several apply.
type Reason uint8

// The refusals, then the reasons that are not the fault of a participant.
const (
	NotFound Reason = iota + 1
	Closed
	Frozen
	CurrencyMismatch
	AmountKind
	Busy
	InsufficientFunds
	Overflow
	RequirementFailed
	AlreadyReversed
	ReversalExceeds
	Unwritable
	Cancelled
	Stalled
	Voided
	Expired
)

// String returns the code under which the reason is stored.
func (r Reason) String() string {
	codes := [...]string{
		NotFound: "accountNotFound", Closed: "accountClosed", Frozen: "accountFrozen",
		CurrencyMismatch: "currencyMismatch", AmountKind: "amountKind", Busy: "accountBusy",
		InsufficientFunds: "insufficientFunds", Overflow: "overflow", RequirementFailed: "requirementFailed",
		AlreadyReversed: "alreadyReversed", ReversalExceeds: "reversalExceeds", Unwritable: "unwritable",
		Cancelled: "cancelled", Stalled: "stalled", Voided: "voided", Expired: "expired",
	}
	if r == 0 || int(r) >= len(codes) {
		return "unknown"
	}
	return codes[r]
}

// Refusal is why a transfer is rolled back, and which participant is the cause.
type Refusal struct {
	// Reason is 0 if nothing is refused.
	Reason Reason
	// Participant is the index of the participant, or NoParticipant.
	Participant int
}

// NoParticipant is the index in operations and refusals that concern the transfer as a
// whole.
const NoParticipant = -1
