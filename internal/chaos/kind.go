package chaos

import (
	"slices"

	"github.com/mongotransfer/transfer"
)

// What became of holds, payments, reversals and exchanges.
// Each run must have seen some of each.
const (
	holdPosted       = "holds posted"
	holdPart         = "holds posted in part"
	holdVoided       = "holds voided"
	holdExpired      = "holds expired"
	orderPaid        = "orders paid"
	orderRefused     = "payments of orders that were paid, or about to be"
	transferReversed = "reversals of all that was left"
	partReversed     = "reversals of a part"
	reversalRefused  = "reversals refused"
	exchanged        = "exchanges"
)

// kind returns what became of a transfer at rest, or "" for an ordinary transfer.
func (t transferDocument) kind() string {
	success := t.State == transfer.StateSuccess
	if t.Hold {
		return t.kindOfHold(success)
	}
	_, pays := orderOf(t.ID)
	_, reverses := originalOf(t.ID)
	switch {
	case pays && success:
		return orderPaid
	case pays && t.Failure.Code == "requirementFailed":
		return orderRefused
	case reverses && success && t.Part:
		return partReversed
	case reverses && success:
		return transferReversed
	case reverses:
		return reversalRefused
	case success && t.exchange():
		return exchanged
	}
	return ""
}

// exchange reports whether the transfer has legs in several currencies.
func (t transferDocument) exchange() bool {
	return slices.ContainsFunc(t.Legs, func(leg legDocument) bool {
		return currencyOf(leg.Account) != currencyOf(t.Legs[0].Account)
	})
}

func (t transferDocument) kindOfHold(success bool) string {
	switch {
	case success && t.Posted != 0:
		return holdPart
	case success:
		return holdPosted
	case t.Failure.Code == "voided":
		return holdVoided
	case t.Failure.Code == "expired":
		return holdExpired
	}
	return ""
}
