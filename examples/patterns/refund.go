package patterns

import (
	"context"
	"errors"
	"fmt"

	"github.com/mongotransfer/transfer"
)

// refund gives back a part of a payment. However many refunds of a payment race,
// together they never give back more than it moved.
func refund(ctx context.Context, coord *transfer.Coordinator, id, payment string, cents int64) error {
	_, err := coord.Reverse(ctx, transfer.Reversal{ID: id, Of: payment, Amount: transfer.Units(cents)})
	switch {
	case errors.Is(err, transfer.ErrReversalExceeds), errors.Is(err, transfer.ErrAlreadyReversed):
		return fmt.Errorf("less than that is left of the payment: %w", err)
	case errors.Is(err, transfer.ErrInsufficientFunds):
		return fmt.Errorf("the shop has spent the money; later, under another ID: %w", err)
	}
	return err
}
