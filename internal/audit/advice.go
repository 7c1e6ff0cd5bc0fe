package audit

import "slices"

// codeAdvice is a code and what to do about it.
type codeAdvice struct {
	code   Code
	advice string
}

// Codes returns all codes.
func Codes() []Code {
	var codes []Code
	for _, e := range allAdvice() {
		codes = append(codes, e.code)
	}
	return codes
}

// advice says what to do next.
func (c Code) advice() string {
	for _, e := range allAdvice() {
		if e.code == c {
			return e.advice
		}
	}
	return ""
}

// adviceByHand says what to do next with a marker that RepairMarker refuses.
func (c Code) adviceByHand() string {
	switch c {
	case OrphanMarker, FinalMarker, ForeignMarker:
		return "No transfer leaves such a marker, and RepairMarker refuses it. Find out who has written it, and what became of the balance. " +
			"Once no process works on such a transfer any more, remove the marker by hand, by $unset, or $unsetField if its key has dots or " +
			"dollars, in an update that requires its value to be still this one."
	default:
		return c.advice()
	}
}

// adviceOnDone says what to do next with the done mark of an account: its amount is on
// the balance already.
func (c Code) adviceOnDone() string {
	const remove = "Then RepairMarker with KeepBalance removes the mark: its amount was paid in when it was set."
	switch c {
	case OrphanMarker:
		return "Find out why the transfer's document is gone. The transfer was committed if nobody has set the mark by hand. Until then " +
			"repeat no request with this ID. " + remove
	case FinalMarker:
		return "The account was restored from a backup, or changed by hand. Find out whether its balance has this transfer in it. " + remove
	case ForeignMarker:
		return "Somebody has set the mark, or changed the transfer's legs, by hand. Find out which. If it was the mark, RepairMarker with " +
			"KeepBalance removes it."
	case WrongMarker:
		return "Somebody has changed the mark, the transfer's legs, or the kind of the balance, by hand. If the legs are right, set the mark " +
			"to their amount, and see that the balance has that amount in it."
	default:
		return c.advice()
	}
}

// adviceOnPaid says what to do next with a participant of which a transfer that has paid
// in elsewhere shows no trace: the transfer is committed, and recovery can't know it.
func (c Code) adviceOnPaid() string {
	const committed = "The transfer is committed, and recovery doesn't know it: it may be carried out there once more, or fail, though " +
		"others are paid. Stop what takes transfers over. "
	if c == MissingDocument {
		return committed + "Bring the document back, with its marker, from where it went."
	}
	return committed + "The document was replaced, restored from a backup, or changed by hand. Find out whether its balance has this " +
		"transfer in it. If so, set the marker again, to the amount of the leg. Otherwise recovery may go on and prepare it there, unless " +
		"its policy is to roll back."
}

// adviceElsewhere says what to do next with a document that is no account: the calls that
// repair are for accounts.
func (c Code) adviceElsewhere() string {
	for _, e := range aboutOthers() {
		if e.code == c {
			return e.advice
		}
	}
	return c.advice()
}

func allAdvice() []codeAdvice {
	return slices.Concat(aboutMarkers(), aboutAccounts(), aboutTransfers(), aboutSums())
}

func aboutMarkers() []codeAdvice {
	const remove = "Then RepairMarker removes the marker, and keeps the balance or pays the marker's amount in."
	return []codeAdvice{
		{OrphanMarker, "Find out why the transfer's document is gone, and whether the transfer has happened. Until then repeat no request " +
			"with this ID. " + remove},
		{FinalMarker, "The account was restored from a backup, or changed by hand. Find out whether its balance has this transfer in it " +
			"already. " + remove},
		{EarlyMarker, "Somebody has set the marker, or has set the transfer back, by hand. Let no worker run the transfer before that is " +
			"set right."},
		{ForeignMarker, "Somebody has set the marker, or changed the transfer's legs, by hand. Find out which. If it was the marker, " +
			"RepairMarker removes it."},
		{WrongMarker, "Somebody has changed the marker, the transfer's legs, or the kind of the balance, by hand. The transfer is settled by " +
			"its legs: if they are right, set the marker to their amount, and marker and balance to their kind, int64 or Decimal128."},
		{WrongDone, "Somebody has set the mark by hand, or the document was restored from a backup. Find out whether its balance has this " +
			"transfer in it, and set right what is wrong. Then remove the mark by hand, by $unset, in an update that requires its value to be " +
			"still this one."},
		{MissingMarker, "The document was replaced, or restored from a backup, while the money was held. Compare its balance with its history " +
			"before you post or void the hold: neither does anything to a document without the marker."},
		{MissingDocument, "Bring the document back, with its marker, from where it went: recovery then finishes the transfer by itself."},
	}
}

func aboutAccounts() []codeAdvice {
	return []codeAdvice{
		{BelowFloor, "No debit does this. If it may be overdrawn, as one that had its debt before the library came, set its floor by " +
			"UpdateAccount, with Floor or NoFloor. Otherwise find out who writes to the balance, or removes floors, besides the library, " +
			"and pay in what is missing."},
		{ClosedMarker, "Somebody has closed the account without CloseAccount. What is in flight is finished all the same. Use CloseAccount."},
		{WrongBalance, "Store it as int32, int64 or Decimal128, with at most 12 digits behind the point, and within 2^62 or 10^21 on either " +
			"side of zero. Until then transfers are refused with ErrAmountKind or ErrOverflow, and those in flight may not be finished."},
		{WrongFloor, "Store an exact number of the balance's kind, or MinKey for none. Until then debits are refused with ErrAmountKind."},
		{WrongCurrency, "Store a string, or nothing. Until then transfers are refused with ErrCurrencyMismatch."},
		{WrongPending, "If it is null or an empty array, RepairPending makes it a map. Otherwise find out who has written it, and what was " +
			"there before."},
		{WrongClosed, "Store true, or nothing. Until then the account counts as open, but for an array that has true in it."},
		{WrongFrozen, "Store true, or nothing. Until then the account counts as not frozen, but for an array that has true in it."},
		{WrongID, "The library can't name this document, so that nobody can move its money: see WithAccountIDs. Move it to where it belongs."},
	}
}

func aboutOthers() []codeAdvice {
	const remove = "Once no process works on the transfer any more, remove the marker by hand, by $unset: nothing but the reservation " +
		"hangs on it."
	return []codeAdvice{
		{OrphanMarker, remove},
		{FinalMarker, remove},
		{ForeignMarker, remove},
		{WrongDone, "Find out whether the transfer's values are set there, and set right what is wrong. Then remove the mark by hand, by " +
			"$unset."},
		{WrongPending, "If it is empty, remove it by hand, by $unset. Otherwise find out who has written it, and what was there before."},
	}
}

func aboutTransfers() []codeAdvice {
	const compare = "No step of the library stores this: the document was changed by hand, or restored from a backup. " +
		"Compare it with its accounts."
	return []codeAdvice{
		{Unreadable, "It is no transfer, was damaged, or was written by another version: audit by the newest version that is in use."},
		{WrongState, "It was damaged, or was written by a newer version: audit by that one. Recovery leaves it alone."},
		{WrongEpoch, compare},
		{WrongOpen, "First set right what else is found about the transfer. Then RepairOpen makes the flag what the state says; without the " +
			"flag recovery doesn't find an unfinished transfer."},
		{WrongCommit, compare},
		{WrongFailure, compare},
		{WrongTime, "Unless the server's clock was set back, no step of the library stores this, and workers, statements, the expiry of " +
			"holds or the server's removal pass such a transfer by. Store a date: the right one, if it is known. As lastModified any past " +
			"one will do. One that waits for funds is run by Transfer with the same ID, whatever money is there."},
		{WrongDigest, "Legs, effects or currency were changed by hand, and recovery leaves the transfer alone. Restore what was asked for."},
		{WrongLegs, "This makes or loses money, and nobody could have asked for it. Find out who has written it."},
		{WrongHold, compare},
		{WrongOutbox, "Somebody has changed it by hand: no worker finds the event, or nothing ever purges the transfer. Tell the consumer " +
			"what the record says, and remove the outbox by $unset; if keepUntil is there, rename it to purgeAt."},
		{WrongReversal, "One of the two was restored or changed by hand, or was removed while others are kept. Compare both with " +
			"their accounts before you reverse anything again."},
		{Stalled, "Remove what stands in its way, if anything is named. Then see that Run or Recover works in a process that knows " +
			"all its ledgers: it is taken up within 64 stall thresholds, and at once by Recover with a threshold of zero."},
		{Unclaimed, "See that a process works with Run, or call Transfer with the same ID, whatever money is there."},
	}
}

func aboutSums() []codeAdvice {
	return []codeAdvice{
		{WrongTotal, "Look at the other findings first, then at who writes to balances besides the library, and at documents that were " +
			"restored. If money was paid in or out on purpose, expect another sum."},
		{LongTotal, "Look for balances that can't be right."},
	}
}
