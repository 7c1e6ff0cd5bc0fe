package patterns

import (
	"context"
	"errors"

	"github.com/mongotransfer/transfer"
)

// openWallet opens a customer's wallet. One that is open stays as it is.
func openWallet(ctx context.Context, coord *transfer.Coordinator, customer string) error {
	_, err := coord.OpenAccount(ctx, transfer.Account{ID: "wallet:" + customer, Currency: "EUR"})
	if errors.Is(err, transfer.ErrAccountExists) {
		return nil
	}
	return err
}

// topUp puts into a wallet what the bank has received for it. The bank's reference is
// the ID: a message of the bank that comes twice counts once.
func topUp(ctx context.Context, coord *transfer.Coordinator, reference, customer string, cents int64) error {
	_, err := coord.Transfer(ctx, transfer.Request{
		ID: "topup:" + reference, From: "bank", To: "wallet:" + customer,
		Amount: transfer.Units(cents), Currency: "EUR",
	})
	return err
}

// spend pays a shop out of a wallet, and reports whether it has.
func spend(ctx context.Context, coord *transfer.Coordinator, id, customer, shop string, cents int64) (bool, error) {
	_, err := coord.Transfer(ctx, transfer.Request{
		ID: id, From: "wallet:" + customer, To: shop,
		Amount: transfer.Units(cents), Currency: "EUR",
	})
	switch transfer.OutcomeOf(err) {
	case transfer.Moved:
		return true, nil
	case transfer.Failed: // too little money, or a frozen wallet: another try takes another ID
		return false, nil
	default: // ask again with the same ID, unless the request itself is wrong
		return false, err
	}
}
