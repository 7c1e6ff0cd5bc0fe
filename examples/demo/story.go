package main

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
)

// story is the state of the demo as it runs.
type story struct {
	out   *screen
	uri   string
	db    *mongo.Database
	coord *transfer.Coordinator
	book  *book
}

// run runs the chapters in order, and stops at the first that fails.
func (s *story) run(ctx context.Context) error {
	steps := []func(context.Context) error{
		s.openAccounts,
		s.manyTransfers,
		s.fiveDebits,
		s.crashBeforeRecord,
		s.crashAfterRecord,
		s.check,
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			if ctx.Err() != nil {
				err = errors.Join(context.Cause(ctx), err)
			}
			return err
		}
	}
	return nil
}

// order is a transfer that the story asks for.
type order struct {
	ID, From, To string
	Units        int64
}

// request returns the order as the library wants it.
func (o order) request() transfer.Request {
	return transfer.Request{ID: o.ID, From: o.From, To: o.To, Amount: transfer.Units(o.Units)}
}

// transfer makes a transfer and records the answer in the book.
func (s *story) transfer(ctx context.Context, o order) (transfer.Record, error) {
	rec, err := s.coord.Transfer(ctx, o.request())
	s.book.answered(o, rec.State)
	return rec, err
}
