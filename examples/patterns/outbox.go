package patterns

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
)

// payOrder pays an order, and notes in the same step that a receipt is due.
func payOrder(ctx context.Context, coord *transfer.Coordinator, id, order, buyer string, cents int64) error {
	_, err := coord.Transfer(ctx, transfer.Request{
		ID: id, From: buyer, To: "shop", Amount: transfer.Units(cents),
		Effects: []transfer.Effect{{
			Documents: "orders", ID: order,
			Require: bson.D{{Key: "status", Value: "UnPaid"}},
			Set:     bson.D{{Key: "status", Value: "Paid"}, {Key: "receipt", Value: "due"}},
		}},
	})
	return err
}

// sendReceipts sends each receipt that is due, at least once: a process that dies after
// sending, and before the note, leaves it to be sent again.
func sendReceipts(ctx context.Context, orders *mongo.Collection, send func(order string) error) error {
	due, err := orders.Find(ctx, bson.D{{Key: "receipt", Value: "due"}})
	if err != nil {
		return err
	}
	var unsent []struct {
		ID string `bson:"_id"`
	}
	if err := due.All(ctx, &unsent); err != nil {
		return err
	}
	for _, order := range unsent {
		if err := send(order.ID); err != nil {
			return err
		}
		sent := bson.D{{Key: "$set", Value: bson.D{{Key: "receipt", Value: "sent"}}}}
		if _, err := orders.UpdateByID(ctx, order.ID, sent); err != nil {
			return err
		}
	}
	return nil
}
