package tutorial

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongotransfer/transfer"
)

// ErrChanged means that something else has changed a transaction or its accounts.
var ErrChanged = errors.New("somebody else works on the transactions (stop them, and begin again)")

// End brings a transaction to its end: done for Finish and Unmark, canceled for Undo and
// Cancel, and for Ask, which the library is asked for next. It does nothing where that
// was done before.
//
// The state, the balances and the marks change in one transaction of MongoDB's own, and
// each update requires what was read. So these can't go wrong:
//
//  1. The process is killed between two updates: none of them has happened.
//  2. The process is killed while its commit is on the way, and another one begins. The
//     commit comes first, and the other one finds the state that it has set; or the other
//     one's update does, and the commit fails, because both write to the transaction.
func (b *Books) End(ctx context.Context, s Step) error {
	concerns := options.Transaction().SetReadConcern(readconcern.Snapshot()).SetWriteConcern(writeconcern.Majority()).
		SetReadPreference(readpref.Primary())
	session, err := b.Transactions.Database().Client().StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(ctx)
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) { return nil, b.end(ctx, s) }, concerns)
	if err != nil {
		return fmt.Errorf("transaction %s: %w", s.ID, err)
	}
	return nil
}

// end is End in a transaction.
func (b *Books) end(ctx context.Context, s Step) error {
	raw, err := b.Transactions.FindOne(ctx, bson.D{{Key: "_id", Value: s.stored.ID}}).Raw()
	if err != nil {
		return err
	}
	now := decodeTransaction(raw)
	if !now.same(s.stored) {
		return ErrChanged
	}
	if now.State == canceled {
		return nil // an earlier run has taken it over, and not asked
	}
	next, set := done, bson.D{}
	switch s.Action {
	case Ask:
		set = bson.D{{Key: takenOver, Value: bson.D{{Key: "as", Value: s.As}, {Key: "settled", Value: false}}}}
		next = canceled
	case Undo, Cancel:
		next = canceled
	case Finish, Unmark:
	}
	set = append(bson.D{{Key: stateField, Value: next}}, set...)
	was := bson.D{{Key: "_id", Value: s.stored.ID}, {Key: stateField, Value: s.State}}
	update := bson.D{{Key: "$set", Value: set}, {Key: "$currentDate", Value: bson.D{{Key: "lastModified", Value: true}}}}
	if err := changeOne(ctx, b.Transactions, was, update); err != nil {
		return err
	}
	if err := b.endAccount(ctx, s, s.stored.Source, s.Amount.Neg()); err != nil {
		return err
	}
	return b.endAccount(ctx, s, s.stored.Destination, s.Amount)
}

// endAccount does what a step takes on one of its accounts, where amount is what the
// transaction adds to it.
func (b *Books) endAccount(ctx context.Context, s Step, named bson.RawValue, amount transfer.Amount) error {
	if s.Action == Ask || s.Action == Cancel {
		return nil
	}
	raw, err := b.Accounts.FindOne(ctx, bson.D{{Key: b.Key, Value: named}}).Raw()
	if err != nil {
		return err
	}
	a := b.decodeAccount(raw)
	marked := a.marked(s.stored.ID) > 0
	filter, update := bson.D{{Key: "_id", Value: a.id}, {Key: b.Key, Value: named}}, bson.D{}
	switch {
	case marked:
		filter = append(filter, bson.E{Key: marksField, Value: s.stored.ID})
		// $pull would take an _id that is a document for a condition, and remove the
		// marks of other transactions that have more fields in theirs.
		update = append(update, bson.E{Key: "$pullAll", Value: bson.D{{Key: marksField, Value: bson.A{s.stored.ID}}}})
	default:
		filter = append(filter, bson.E{Key: marksField, Value: bson.D{{Key: "$ne", Value: s.stored.ID}}})
	}
	switch {
	case s.Action == Finish && !marked:
		update = append(update, bson.E{Key: "$inc", Value: bson.D{{Key: b.Fields.Balance, Value: amount}}})
	case s.Action == Undo && marked:
		update = append(update, bson.E{Key: "$inc", Value: bson.D{{Key: b.Fields.Balance, Value: amount.Neg()}}})
	case !marked:
		return nil
	}
	return changeOne(ctx, b.Accounts, filter, update)
}

// changeOne changes the document that fits, which has to be there.
func changeOne(ctx context.Context, c *mongo.Collection, filter, update bson.D) error {
	changed, err := c.UpdateOne(ctx, filter, update)
	if err == nil && changed.MatchedCount != 1 {
		err = ErrChanged
	}
	return err
}
