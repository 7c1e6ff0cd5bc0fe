package chaos

import "github.com/mongotransfer/transfer"

// What became of holds, payments and reversals, where a run has to have seen some of each.
const (
	holdPosted       = "holds posted"
	holdPart         = "holds posted in part"
	holdVoided       = "holds voided"
	holdExpired      = "holds expired"
	orderPaid        = "orders paid"
	orderRefused     = "payments of orders that were paid, or about to be"
	transferReversed = "transfers reversed"
	reversalRefused  = "reversals refused"
)

// kind returns what became of a transfer at rest; "" of one that is nothing special.
func (t transferDocument) kind() string {
	_, pays := orderOf(t.ID)
	_, reverses := originalOf(t.ID)
	success := t.State == transfer.StateSuccess
	switch code := t.Failure.Code; {
	case t.Hold && success && t.Posted != 0:
		return holdPart
	case t.Hold && success:
		return holdPosted
	case t.Hold && code == "voided":
		return holdVoided
	case t.Hold && code == "expired":
		return holdExpired
	case pays && success:
		return orderPaid
	case pays && code == "requirementFailed":
		return orderRefused
	case reverses && success:
		return transferReversed
	case reverses:
		return reversalRefused
	}
	return ""
}
