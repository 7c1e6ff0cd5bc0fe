package protocol

// Fence is the value of a participant's fence, opaque and compared for equality only.
// "" means that the participant has none yet, which is a value as good as any other.
type Fence string

// Kind is a kind of operation.
type Kind uint8

const (
	// ReadFence reads a participant by majority, or from what was learned so before.
	ReadFence Kind = iota + 1
	// Claim makes the transfer this execution's: see [ClaimKind].
	Claim
	// ReadTransfer reads the transfer by majority.
	// Its answer may be old.
	ReadTransfer
	// LookTransfer is a deciding read of the transfer.
	LookTransfer
	// Verify writes lastModified where the state is Preparing and epoch and owner are
	// this execution's.
	Verify
	// Prepare reserves: it sets the marker, and takes a debit off the balance, where
	// the fence is the expected one, there is no trace of the transfer and the account
	// can take part.
	Prepare
	// Look is a deciding read of a participant.
	Look
	// MarkHeld stores that everything is prepared for a hold, where the state is
	// Preparing and epoch and owner are this execution's.
	MarkHeld
	// Decide changes Preparing to To where the epoch is this execution's.
	// A decision to commit is the record of a fact, if there was one before.
	Decide
	// Pay turns the marker into the done mark where it is, and adds a credit to the
	// balance, or sets what an effect sets.
	// It is for those that gain, and never sets a fence.
	Pay
	// Settle removes the marker where it is, and adds a credit to the balance, or sets
	// what an effect sets.
	Settle
	// Clear removes the done mark where it is, and nothing else.
	Clear
	// Undo removes the marker where it is, and gives a debit back.
	Undo
	// FenceOnly sets a new fence where there is no trace of the transfer.
	FenceOnly
	// Finish changes Committed to Success or Rollback to Fail.
	Finish
)

// String names the operation, for logs; "" if there is no such kind.
func (k Kind) String() string {
	names := [...]string{
		ReadFence: "ReadFence", Claim: "Claim", ReadTransfer: "ReadTransfer", LookTransfer: "LookTransfer", Verify: "Verify",
		Prepare: "Prepare", Look: "Look", MarkHeld: "MarkHeld", Decide: "Decide", Pay: "Pay", Settle: "Settle", Clear: "Clear",
		Undo: "Undo", FenceOnly: "FenceOnly", Finish: "Finish",
	}
	if int(k) < len(names) {
		return names[k]
	}
	return ""
}

// ClaimKind says how an execution gets hold of its transfer.
type ClaimKind uint8

const (
	// Insert stores a new transfer as Preparing, epoch 1.
	Insert ClaimKind = iota + 1
	// FromInitiated changes a stored transfer from Initiated to Preparing, epoch 1.
	FromInitiated
	// TakeOver raises the epoch of a transfer in Preparing, Committed or Rollback that
	// was not modified for as long as the threshold says, by the server's clock.
	// A hold in Preparing is not one of those.
	TakeOver
	// TakeToCancel raises the epoch of a transfer in Preparing, whatever the threshold.
	TakeToCancel
	// CancelInitiated changes a stored transfer from Initiated to Rollback, epoch 1.
	// Nobody has prepared anything for it.
	CancelInitiated
	// TakeUnheld raises the epoch of a hold in Preparing that is not completely prepared
	// yet, and was not modified for as long as the threshold says.
	TakeUnheld
	// Post changes a hold from Preparing to Committed and raises its epoch, where
	// everything is prepared and the hold has not expired, by the server's clock.
	Post
	// Expire raises the epoch of a hold in Preparing that has expired, by the server's
	// clock.
	Expire
	// Replan raises the epoch of a reversal in Preparing, where epoch and owner are those
	// of an execution that has ended as Outdated, and stores what is left to be moved.
	Replan
)

// String names the way of claiming, for logs; "" if there is no such way.
func (c ClaimKind) String() string {
	switch c {
	case Insert:
		return "Insert"
	case FromInitiated:
		return "FromInitiated"
	case TakeOver:
		return "TakeOver"
	case TakeToCancel:
		return "TakeToCancel"
	case CancelInitiated:
		return "CancelInitiated"
	case TakeUnheld:
		return "TakeUnheld"
	case Post:
		return "Post"
	case Expire:
		return "Expire"
	case Replan:
		return "Replan"
	}
	return ""
}

// takesOver reports whether another execution may have worked on the transfer before.
func (c ClaimKind) takesOver() bool {
	switch c {
	case TakeOver, TakeToCancel, TakeUnheld, Post, Expire, Replan:
		return true
	case Insert, FromInitiated, CancelInitiated:
	}
	return false
}

// decides reports whether the claim is the decision as well.
func (c ClaimKind) decides() bool { return c == CancelInitiated || c == Post }

// Operation is one thing that an execution wants performed.
// Only the fields that its kind speaks of are set.
type Operation struct {
	// Kind says what is to be done.
	Kind Kind
	// Participant is the index of the participant of ReadFence, Prepare, Look, Pay,
	// Settle, Clear, Undo and FenceOnly.
	// It is NoParticipant for the others.
	Participant int

	// Claim is the kind of a Claim.
	Claim ClaimKind
	// Epoch is the epoch that Verify, MarkHeld and Decide expect.
	Epoch int64
	// To is the state that Decide and Finish store.
	To State
	// Refusal is the reason that a Decide to Rollback stores, or a Claim by
	// CancelInitiated.
	Refusal Refusal
	// Clean says, for MarkHeld and Decide, that no prepare can be on its way.
	Clean bool
	// Fence is the value that Prepare requires at the participant.
	Fence Fence
	// Concluding says, for Look, that a trace which is missing counts as removed by
	// others.
	Concluding bool
	// ReplaceFence says, for Settle, Clear and Undo, that the same write sets a new
	// fence.
	ReplaceFence bool

	round int // which call of Next asked for it
}

// Result is what became of an operation.
type Result uint8

const (
	// Unknown means that it may have been applied, may yet be, or may never be.
	Unknown Result = iota + 1
	// Applied means that a write matched and is stored for good, or that a read was
	// answered.
	Applied
	// NotMatched means that the write found nothing that fits its filter, as far as the
	// answer shows.
	NotMatched
	// Failed means that the server refused to apply a write that matched.
	// It certainly changed nothing.
	Failed
	// NotSent means that the operation certainly never left this process.
	NotSent
)

// String names the result, for logs.
func (r Result) String() string {
	switch r {
	case Unknown:
		return "Unknown"
	case Applied:
		return "Applied"
	case NotMatched:
		return "NotMatched"
	case Failed:
		return "Failed"
	case NotSent:
		return "NotSent"
	}
	return ""
}

// Answer is the answer to one operation.
type Answer struct {
	// Result is what became of the operation.
	Result Result
	// Facts answer ReadFence and Look, when Applied.
	Facts Facts
	// Transfer answers ReadTransfer and LookTransfer, and Claim with the document after
	// it, when Applied.
	Transfer Image
}

// Image is what a read or a claim shows of the transfer.
type Image struct {
	// Found says that the document exists.
	Found bool
	// State is its state.
	State State
	// Epoch is its epoch.
	Epoch int64
	// Mine says that the owner is this execution's nonce.
	Mine bool
	// Held says that it is a hold with everything prepared.
	Held bool
	// Clean says, for a hold, that no prepare could be on its way when it was held.
	Clean bool
}

// Trace is what a participant shows of a transfer.
type Trace uint8

const (
	// NoTrace means that the transfer is not prepared there yet, or is over there.
	NoTrace Trace = iota
	// Reserved means that the marker is there: the transfer is prepared, and nothing is
	// paid in yet.
	Reserved
	// Done means that the done mark is there: the transfer is settled and not cleared
	// yet.
	// It reserves nothing.
	Done
	// Illegible means that what is there can't be read, so that it shows neither that
	// there is a trace nor that there is none.
	// The write that needs to know is asked for again, and the performer answers Failed.
	Illegible
)

// there reports whether the transfer is certainly prepared.
func (t Trace) there() bool { return t == Reserved || t == Done }

// String names the trace, for logs.
func (t Trace) String() string {
	switch t {
	case NoTrace:
		return "NoTrace"
	case Reserved:
		return "Reserved"
	case Done:
		return "Done"
	case Illegible:
		return "Illegible"
	}
	return ""
}

// Facts are what a read shows of a participant, each judged for this transfer's amount.
// All but Found, Trace and Fence are conditions of Prepare's filter, which also requires
// that there is no trace.
type Facts struct {
	// Found says that the document exists.
	Found bool
	// Trace says what there is of this transfer.
	Trace Trace
	// Fence is the value that Prepare must name.
	Fence Fence
	// Open says that the account is not closed.
	Open bool
	// Unfrozen says that the account is not frozen.
	Unfrozen bool
	// Currency says that the transfer's currency is the account's.
	Currency bool
	// Kind says that the balance and the floor are exact numbers of the amount's kind.
	Kind bool
	// BelowMarkerLimit says that fewer transfers than the limit are in flight on it.
	// Only reads judge that.
	BelowMarkerLimit bool
	// Funds says that a debit leaves the balance at or above the floor.
	Funds bool
	// WithinLimits says that the balance stays within the limits of what is stored.
	// A debit is taken from a balance beyond the upper limit, too.
	WithinLimits bool
	// Unmet says that the document of an effect is missing, differs from what is
	// required, or is reserved for another transfer.
	Unmet bool
	// MayBeGone says that nothing is owed to the document when it is gone.
	MayBeGone bool
	// Exhausted says that nothing is left to be taken back of the transfer that is to be
	// reversed, and Exceeded that less is left than the reversal was asked to take back.
	// What is left never grows, so both are so for good.
	Exhausted, Exceeded bool
	// Taken says that another reversal has reserved that transfer.
	Taken bool
	// Outdated says that a reversal of all that is left was planned when more was left.
	Outdated bool
}

// Refusal returns the first reason that applies, 0 if the participant can be prepared.
func (f Facts) Refusal() Reason {
	switch {
	case !f.Found && f.Unmet:
		return RequirementFailed
	case !f.Found:
		return NotFound
	case !f.Open:
		return Closed
	case !f.Unfrozen:
		return Frozen
	case !f.Currency:
		return CurrencyMismatch
	case !f.Kind:
		return AmountKind
	case !f.BelowMarkerLimit:
		return Busy
	case !f.Funds:
		return InsufficientFunds
	case !f.WithinLimits:
		return Overflow
	case f.Unmet:
		return RequirementFailed
	case f.Exhausted:
		return AlreadyReversed
	case f.Exceeded:
		return ReversalExceeds
	}
	return 0
}

// postpones reports whether what speaks against a prepare may change.
func (f Facts) postpones() bool { return f.Taken || f.Outdated }
