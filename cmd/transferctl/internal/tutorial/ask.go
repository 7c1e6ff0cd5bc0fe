package tutorial

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
)

// Ask asks the library for a transaction that had not begun, and that [Books.End] has
// taken over. It returns the transfer's record, which says whether it was refused.
// It does nothing twice: the transfer's ID is stored with the transaction, and so is, in
// the end, that it has an outcome. From then on nobody asks again, not even after the
// library has forgotten the ID.
func (b *Books) Ask(ctx context.Context, c *transfer.Coordinator, s Step) (transfer.Record, error) {
	rec, err := c.Transfer(ctx, transfer.Request{
		ID: s.As, From: s.from, To: s.to, Amount: s.Amount, Currency: s.currency,
		Metadata: map[string]any{"tutorial": bson.M{"transactions": b.Transactions.Name(), "id": s.stored.ID}},
	})
	switch transfer.OutcomeOf(err) {
	case transfer.Moved, transfer.Failed:
	case transfer.NothingStored, transfer.InDoubt, transfer.Unchanged:
		return rec, fmt.Errorf("transaction %s: %w", s.ID, err)
	}
	if err != nil && rec.ID == "" {
		return rec, errors.Join(err, ErrChanged)
	}
	own := bson.D{{Key: "_id", Value: s.stored.ID}, {Key: takenOver + ".as", Value: s.As}}
	settled := bson.D{{Key: takenOver + ".settled", Value: true}, {Key: takenOver + ".outcome", Value: string(rec.State)}}
	if err := changeOne(ctx, b.Transactions, own, bson.D{{Key: "$set", Value: settled}}); err != nil {
		return rec, fmt.Errorf("transaction %s: %w", s.ID, err)
	}
	return rec, nil
}
