package history

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// ErrKind is returned for a document that is no account: its balance is no exact number,
// or not of the kind that was moved.
var ErrKind = errors.New("as it is stored")

// storedAccount is what an account's document shows.
type storedAccount struct {
	found  bool
	posted money.Amount            // the balance, and the debits in flight
	marked []string                // the transfers that have a marker
	paid   map[string]money.Amount // what those with a done mark have paid in
}

// traces returns the IDs of the transfers that have a marker or a done mark.
func (a storedAccount) traces() []string {
	return slices.AppendSeq(slices.Clone(a.marked), maps.Keys(a.paid))
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
	stored := storedAccount{found: true, marked: view.InFlight(), paid: map[string]money.Amount{}}
	for _, paid := range view.Paid() {
		if stored.paid[paid.Transfer], err = money.FromBSON(paid.Amount); err != nil {
			return stored, fmt.Errorf("%w: done mark %s: %w", ErrKind, words.Quote(paid.Transfer), err)
		}
	}
	stored.posted, err = Plus(account.Balance, account.Reserved)
	return stored, err
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
// transfer without a trace, isIn says whether it is.
func (h *History) countBack(
	ctx context.Context, stored storedAccount, end time.Time, isIn func(Entry) (bool, error),
) (money.Amount, error) {
	balance, traces := stored.posted, stored.traces()
	traced := make(map[string]bool, len(traces))
	for _, id := range traces {
		traced[id] = true
	}
	var failed error
	since := bson.D{{Key: "$gte", Value: end}}
	newestFirst := options.Find().SetSort(bson.D{{Key: "committedAt", Value: int(NewestFirst)}})
	err := h.find(ctx, since, newestFirst, h.amounts(), func(e Entry) bool {
		if traced[e.TransferID] {
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
	if len(traces) == 0 {
		return balance, nil
	}
	decided, barred, err := h.awaitDecisions(ctx, traces, end)
	if err != nil {
		return balance, err
	}
	for _, raw := range decided {
		if balance, err = h.addTraced(balance, stored, raw, end); err != nil {
			return balance, err
		}
	}
	return takeOff(balance, stored.paid, barred)
}

// addTraced makes a balance contain a transfer whose trace was read exactly if it was
// committed before the end. With a marker it is not in what was read, and with a done
// mark it is. What was not committed, and has paid in all the same, stays in: that was
// no transfer, but somebody who writes to the balance.
func (h *History) addTraced(
	balance money.Amount, stored storedAccount, transfer bson.Raw, end time.Time,
) (money.Amount, error) {
	e, committed, err := h.entry(transfer)
	if err != nil || !committed {
		return balance, err
	}
	paid, in := stored.paid[e.TransferID]
	switch before := e.At.Before(end); {
	case before && !in:
		return Plus(balance, e.Amount)
	case !before && in:
		return Plus(balance, paid.Neg())
	}
	return balance, nil
}

// takeOff takes off a balance what transfers have paid in that are committed by fact, and
// whose records come after the end.
func takeOff(balance money.Amount, paid map[string]money.Amount, barred []string) (money.Amount, error) {
	for _, id := range barred {
		amount, in := paid[id]
		if !in {
			continue
		}
		var err error
		if balance, err = Plus(balance, amount.Neg()); err != nil {
			return balance, err
		}
	}
	return balance, nil
}
