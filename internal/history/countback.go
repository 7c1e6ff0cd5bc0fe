package history

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/wire"
)

// ErrKind is returned for a document that is no account: its balance is no exact number,
// or not of the kind that was moved.
var ErrKind = errors.New("as it is stored")

// storedAccount is what an account's document shows.
type storedAccount struct {
	found  bool
	posted money.Amount // the balance, and the debits in flight
	marked []string     // the transfers that have a marker
}

// readAccount reads the account's document.
func (h *History) readAccount(ctx context.Context, from *mongo.Collection) (storedAccount, error) {
	raw, err := wire.FindOne(ctx, from, bson.D{{Key: "_id", Value: h.key}})
	if wire.NotFound(err) {
		return storedAccount{}, nil
	}
	if err != nil {
		return storedAccount{}, err
	}
	view := h.catalog.Fields.View(raw)
	account, err := view.Account(h.catalog.IDs)
	if err != nil {
		return storedAccount{found: true}, fmt.Errorf("%w: %w", ErrKind, err)
	}
	posted, err := Plus(account.Balance, account.Reserved)
	return storedAccount{found: true, posted: posted, marked: view.InFlight()}, err
}

// Plus adds two amounts of an account.
// The error is ErrKind.
func Plus(a, b money.Amount) (money.Amount, error) {
	sum, err := a.Add(b)
	if err != nil {
		return sum, fmt.Errorf("%w: %w", ErrKind, err)
	}
	return sum, nil
}

// countBack returns the balance that an account had at an instant, which is before it was
// read. It subtracts what was committed since that instant and is in what was read. Of a
// transfer without a marker, isIn says whether it is.
func (h *History) countBack(
	ctx context.Context, stored storedAccount, end time.Time, isIn func(Entry) (bool, error),
) (money.Amount, error) {
	balance := stored.posted
	marked := make(map[string]bool, len(stored.marked))
	for _, id := range stored.marked {
		marked[id] = true
	}
	var failed error
	since := bson.D{{Key: "$gte", Value: end}}
	err := h.find(ctx, since, options.Find(), func(e Entry) bool {
		if marked[e.TransferID] {
			return true
		}
		in, err := isIn(e)
		if err == nil && in {
			balance, err = Plus(balance, e.Amount.Neg())
		}
		failed = err
		return err == nil
	})
	if err = errors.Join(failed, err); err != nil {
		return balance, err
	}
	return h.addMarked(ctx, balance, stored.marked, end)
}

// addMarked adds what the transfers whose markers were read have moved before the end.
func (h *History) addMarked(
	ctx context.Context, balance money.Amount, ids []string, end time.Time,
) (money.Amount, error) {
	if len(ids) == 0 {
		return balance, nil
	}
	decided, err := h.awaitDecisions(ctx, ids, end)
	for _, raw := range decided {
		e, committed, failed := h.entry(raw)
		if failed == nil && committed && e.At.Before(end) {
			balance, failed = Plus(balance, e.Amount)
		}
		if failed != nil {
			return balance, failed
		}
	}
	return balance, err
}
