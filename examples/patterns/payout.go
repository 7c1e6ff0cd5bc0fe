package patterns

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongotransfer/transfer"
)

// payment asks a bank to pay, with the record's ID as the key under which the bank pays
// once, and reports whether it has. An error means that this is not known yet.
type payment func(ctx context.Context, rec transfer.Record) (paid bool, err error)

// withdraw pays money out of a wallet through a bank. While the bank is asked, the money
// is held: the wallet can't spend it, and nothing is lost if this process dies. Where the
// bank doesn't pay, the money goes back, and the error is ErrCancelled.
func withdraw(ctx context.Context, coord *transfer.Coordinator, pay payment, id, wallet string, cents int64) error {
	rec, err := coord.Hold(ctx, transfer.Request{
		ID: id, From: wallet, To: "bank", Amount: transfer.Units(cents), Currency: "EUR",
		Metadata: map[string]any{"kind": "withdrawal"},
	}, 30*24*time.Hour)
	if err != nil {
		return err
	}
	paid, err := decide(ctx, coord, pay, rec)
	if err == nil && !paid {
		return fmt.Errorf("the bank has not paid: %w", transfer.ErrCancelled)
	}
	return err
}

// decide asks the bank, moves the money or gives it back, and reports which of the two.
// Called again, it asks the bank with the same key, and does what is left to be done.
func decide(ctx context.Context, coord *transfer.Coordinator, pay payment, rec transfer.Record) (paid bool, err error) {
	paid, err = pay(ctx, rec)
	switch {
	case err != nil: // the money stays held until somebody knows
	case paid:
		_, err = coord.Post(ctx, rec.ID)
	default:
		_, err = coord.Void(ctx, rec.ID)
	}
	return paid, err
}

// resume goes on with all withdrawals that are held. A job calls it every few minutes.
func resume(ctx context.Context, coord *transfer.Coordinator, pay payment) (failures error) {
	held := transfer.Query{Holds: true, Metadata: map[string]any{"kind": "withdrawal"}}
	for rec, err := range coord.List(ctx, held) {
		if err != nil {
			return errors.Join(failures, err)
		}
		_, err = decide(ctx, coord, pay, rec)
		failures = errors.Join(failures, err)
	}
	return failures
}
