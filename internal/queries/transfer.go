package queries

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

// ReadTransfer reads the transfer that a majority has stored, and whether there is one.
func (q *Queries) ReadTransfer(ctx context.Context, id string) (t document.Transfer, found bool, err error) {
	return readTransfer(ctx, q.catalog.Majority, id)
}

// ReadTransferLinearizable is ReadTransfer by a linearizable read, which an old primary
// can't answer.
func (q *Queries) ReadTransferLinearizable(ctx context.Context, id string) (t document.Transfer, found bool, err error) {
	return readTransfer(ctx, q.catalog.Linearizable, id)
}

// ReadLonger is ReadTransferLinearizable for a hold. It finds the hold only while that is
// held and has more than expiresIn left, by the server's clock.
func (q *Queries) ReadLonger(ctx context.Context, id string, expiresIn time.Duration) (t document.Transfer, found bool, err error) {
	return readTransfer(ctx, q.catalog.Linearizable, id, document.Longer(expiresIn)...)
}

func readTransfer(
	ctx context.Context, from *mongo.Collection, id string, more ...bson.E,
) (t document.Transfer, found bool, err error) {
	stored, err := wire.FindOne(wire.Detached(ctx), from, append(bson.D{{Key: "_id", Value: id}}, more...))
	if wire.NotFound(err) {
		return t, false, nil
	}
	if err != nil {
		return t, false, err
	}
	t, err = document.DecodeTransfer(stored)
	return t, true, err
}

// ConfirmMissing reports, by a linearizable read, whether there is no such transfer.
func (q *Queries) ConfirmMissing(ctx context.Context, id string) (bool, error) {
	_, err := wire.FindOne(wire.Detached(ctx), q.catalog.Linearizable, bson.D{{Key: "_id", Value: id}})
	if wire.NotFound(err) {
		return true, nil
	}
	return false, err
}
