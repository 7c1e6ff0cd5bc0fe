package patterns

import (
	"context"
	"errors"
	"time"

	"github.com/mongotransfer/transfer"
)

// payment asks a bank to pay, with the record's ID as the key under which the bank pays
// once, and reports whether it has. An error means that this is not known yet.
type payment func(ctx context.Context, rec transfer.Record) (paid bool, err error)

// withdraw pays money out of a wallet through a bank. While the bank is asked, the money
// is held: the wallet can't spend it, and nothing is lost if this process dies.
func withdraw(ctx context.Context, coord *transfer.Coordinator, pay payment, id, wallet string, cents int64) error {
	rec, err := coord.Hold(ctx, transfer.Request{
		ID: id, From: wallet, To: "bank", Amount: transfer.Units(cents), Currency: "EUR",
		Metadata: map[string]any{"kind": "withdrawal"},
	}, 30*24*time.Hour)
	if err != nil {
		return err
	}
	return decide(ctx, coord, pay, rec)
}

// decide asks the bank, and moves the money or gives it back. Called again, it asks the
// bank with the same key, and does what is left to be done.
func decide(ctx context.Context, coord *transfer.Coordinator, pay payment, rec transfer.Record) error {
	paid, err := pay(ctx, rec)
	switch {
	case err != nil:
		return err // the money stays held until somebody knows
	case paid:
		_, err = coord.Post(ctx, rec.ID)
	default:
		_, err = coord.Void(ctx, rec.ID)
	}
	return err
}

// resume goes on with all withdrawals that are held. A job calls it every few minutes.
func resume(ctx context.Context, coord *transfer.Coordinator, pay payment) (failures error) {
	held := transfer.Query{Holds: true, Metadata: map[string]any{"kind": "withdrawal"}}
	for rec, err := range coord.List(ctx, held) {
		if err != nil {
			return errors.Join(failures, err)
		}
		failures = errors.Join(failures, decide(ctx, coord, pay, rec))
	}
	return failures
}
