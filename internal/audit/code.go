package audit

// Code names a kind of finding.
// It is the same in all versions.
type Code string

// About markers.
const (
	// OrphanMarker means that the marker's transfer doesn't exist.
	OrphanMarker Code = "orphanMarker"
	// FinalMarker means that the marker's transfer is final.
	FinalMarker Code = "finalMarker"
	// EarlyMarker means that nobody has claimed the marker's transfer yet.
	EarlyMarker Code = "earlyMarker"
	// ForeignMarker means that the marker's transfer doesn't touch the document.
	ForeignMarker Code = "foreignMarker"
	// WrongMarker means that the marker's amount is not the transfer's.
	WrongMarker Code = "wrongMarker"
	// WrongDone means that a transfer leaves no done mark there.
	WrongDone Code = "wrongDone"
	// MissingMarker means that there must be a marker, and there is none.
	MissingMarker Code = "missingMarker"
	// MissingDocument means that a participant that was prepared is gone.
	MissingDocument Code = "missingDocument"
)

// About accounts.
const (
	// BelowFloor means that the balance is below zero, and no floor is stored that could
	// have been raised since.
	BelowFloor Code = "belowFloor"
	// ClosedMarker means that a transfer is in flight on a closed account.
	ClosedMarker Code = "closedMarker"
	// WrongBalance means that the balance is no exact number, or beyond the limits.
	WrongBalance Code = "wrongBalance"
	// WrongFloor means that the floor is no exact number of the balance's kind.
	WrongFloor Code = "wrongFloor"
	// WrongCurrency means that the currency is no string.
	WrongCurrency Code = "wrongCurrency"
	// WrongPending means that the markers are no map.
	WrongPending Code = "wrongPending"
	// WrongClosed means that the flag closed is no boolean.
	WrongClosed Code = "wrongClosed"
	// WrongFrozen means that the flag frozen is no boolean.
	WrongFrozen Code = "wrongFrozen"
	// WrongID means that the _id is not of the kind that account IDs are stored in.
	WrongID Code = "wrongID"
)

// About transfers.
const (
	// Unreadable means that the document is no transfer, or one of another version.
	Unreadable Code = "unreadable"
	// WrongState means that the state is unknown.
	WrongState Code = "wrongState"
	// WrongEpoch means that epoch, owner and attempts don't belong to the state.
	WrongEpoch Code = "wrongEpoch"
	// WrongOpen means that the flag by which recovery finds unfinished transfers is
	// wrong.
	WrongOpen Code = "wrongOpen"
	// WrongCommit means that the time of the commit doesn't belong to the state.
	WrongCommit Code = "wrongCommit"
	// WrongFailure means that the reason of a failure doesn't belong to the state.
	WrongFailure Code = "wrongFailure"
	// WrongTime means that a time is no date, is past and lies in the future, or is that
	// of a pause and lies too far ahead.
	WrongTime Code = "wrongTime"
	// WrongDigest means that the transfer is not what its digest stands for.
	WrongDigest Code = "wrongDigest"
	// WrongLegs means that the legs could not have been asked for.
	WrongLegs Code = "wrongLegs"
	// WrongHold means that the fields of a hold contradict each other or the state.
	WrongHold Code = "wrongHold"
	// WrongOutbox means that an event can't be delivered, or that nothing keeps the
	// transfer and it is not purged.
	WrongOutbox Code = "wrongOutbox"
	// WrongReversal means that a reversal and its original contradict each other.
	WrongReversal Code = "wrongReversal"
	// Stalled means that the transfer has stood still for too long.
	Stalled Code = "stalled"
	// Unclaimed means that no worker takes a submitted transfer.
	Unclaimed Code = "unclaimed"
)

// About sums.
const (
	// WrongTotal means that a sum is not what the caller expects.
	WrongTotal Code = "wrongTotal"
	// LongTotal means that a sum has more digits than an amount.
	LongTotal Code = "longTotal"
)
