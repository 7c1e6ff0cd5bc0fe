package protocol

// Start says how an execution begins and what it is for.
type Start struct {
	// Claim is how the execution gets hold of its transfer.
	Claim ClaimKind
	// RollBack, when not 0, is the reason for which a transfer found in Preparing is
	// rolled back instead of resumed.
	RollBack Reason
	// Hold says that the transfer is a hold.
	// An execution that prepares it ends, with the outcome Held, once everything is
	// prepared.
	// It is set for each execution of a hold, whatever that is for: a hold is never
	// committed by fact, so one that rolls it back needs no fence first.
	Hold bool
	// WaitWhileBusy lets the execution wait, before it claims, while a participant has
	// too many transfers in flight, until StopWaiting is called.
	WaitWhileBusy bool
	// Reserve is how many participants, the last ones, are prepared before the others.
	// They are documents, which only one transfer at a time may have:
	//
	//  1. A and B pay one order out of an account that has enough for one of them.
	//  2. A takes the money, B reserves the order.
	//  3. Each is refused what the other one has, and the order is not paid.
	Reserve int
	// Reversal says that the last participant is a transfer which this one reverses.
	// Nothing is looked at or prepared elsewhere before that one is prepared: only one
	// reversal at a time has it, and what another one does meanwhile says nothing about
	// this one.
	//
	//  1. A and B take back 30 each, and the payee has 30.
	//  2. B takes them. A finds no money, and is refused.
	//  3. B is refused by another account, and gives them back.
	//
	// It is set for each execution of a reversal, which is never committed by fact:
	// nothing is owed to the transfer that it reverses, which may be purged at any
	// time.
	//
	//  1. A reserves the original, prepares the money, and reports the commit.
	//  2. The original is purged, and A dies.
	//  3. B takes over, finds no original, which shows no trace either, and rolls back.
	Reversal bool
	// WaitWhileTaken lets a reversal wait, once it has claimed, while another one has
	// reserved the transfer that both reverse, until Postpone is called.
	WaitWhileTaken bool
	// ByRecord says that the transfer was stored by a release which knows no other
	// commit than a stored decision.
	// An execution of that release may be working on it, too, and goes by its own rules.
	//
	//  1. A, of this release, takes the transfer over, knows that everything is prepared,
	//     and reports the commit.
	//  2. B, of the earlier release, takes it over in turn, and rolls it back without a
	//     fence first.
	//
	// So it is set for each execution of such a transfer, which then follows the rules
	// that both releases know: it is never committed by fact, and leaves no done mark.
	ByRecord bool
}

// Outcome is how an execution ended.
type Outcome uint8

const (
	// Running means that Next has something to do.
	Running Outcome = iota + 1
	// Finished means that the transfer is final, in the execution's State.
	Finished
	// NotClaimed means that the transfer exists already, is another's, or is not to be
	// taken over.
	NotClaimed
	// Unclaimable means that the server refuses to store the claim.
	// Nothing was written, unless ClaimInDoubt.
	Unclaimable
	// Held means that everything is prepared for a hold, which is stored.
	// The money waits for a decision.
	Held
	// Overtaken means that another execution has the transfer now.
	// This one writes nothing more.
	Overtaken
	// Gone means that the transfer's document is no longer there.
	Gone
	// Stuck means that a write which must happen can't: a participant is gone, or the
	// server refuses it.
	// The transfer stays as it is until the cause is repaired and recovery takes it over.
	Stuck
	// Postponed means that another reversal has reserved the transfer that this one
	// reverses.
	// Nothing is prepared, and recovery tries it again.
	Postponed
	// Outdated means that a reversal of all that is left was planned when more was left.
	// Nothing is prepared, and nothing that was sent can be prepared any more.
	// A new execution claims it by [Replan], with what is left now.
	Outdated
)
