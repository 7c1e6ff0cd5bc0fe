package patterns

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
)

// deal is a document of the market's own: agreed, then funded, then paid or returned.
type deal struct {
	ID     string `bson:"_id"`
	Buyer  string `bson:"buyer"`
	Seller string `bson:"seller"`
	Price  int64  `bson:"price"`
	State  string `bson:"state"`
}

// escrow keeps the money of all deals in one account. Its coordinator has the deals by
// WithDocuments("deals", …).
type escrow struct{ coord *transfer.Coordinator }

func (e escrow) fund(ctx context.Context, id string, d deal) error {
	return e.move(ctx, id, d, d.Buyer, "escrow", "agreed", "funded")
}

func (e escrow) payOut(ctx context.Context, id string, d deal) error {
	return e.move(ctx, id, d, "escrow", d.Seller, "funded", "paid")
}

func (e escrow) giveBack(ctx context.Context, id string, d deal) error {
	return e.move(ctx, id, d, "escrow", d.Buyer, "funded", "returned")
}

// move moves the price of a deal, and the deal to its next state, in one step. Where the
// deal is not in the state before, that is refused, and nothing moves.
func (e escrow) move(ctx context.Context, id string, d deal, from, to, before, after string) error {
	_, err := e.coord.Transfer(ctx, transfer.Request{
		ID: id, From: from, To: to, Amount: transfer.Units(d.Price),
		Effects: []transfer.Effect{{
			Documents: "deals", ID: d.ID,
			Require: bson.D{{Key: "state", Value: before}},
			Set:     bson.D{{Key: "state", Value: after}},
		}},
	})
	return err
}
