package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/words"
)

// Query selects transfers.
// Its zero value selects all.
type Query struct {
	// States are the states to select.
	// Defaults to all.
	States []State
	// Ledger and Account select transfers that touch an account.
	// A Ledger alone stands for all of its accounts; an Account alone is in the default
	// ledger.
	// Defaults to all accounts.
	Ledger, Account string
	// After and Before bound the creation, both exclusive.
	// The zero time is no bound.
	After, Before time.Time
	// Metadata are top-level keys and the values that they must have.
	// Numbers are compared by value.
	// A list also matches each of its elements, and a map matches one with the same keys
	// and values.
	// Operators are refused with ErrInvalidRequest.
	//
	// There is no index of metadata: without an Account, or a range of times, the server
	// reads every transfer until the limit is reached.
	// Where that is too much, add an index to the collection of transfers:
	// {"metadata.order": 1, createdAt: -1, _id: -1}.
	Metadata map[string]any
	// Stuck selects only what could not be finished when that was last tried.
	// Record.Stuck says why.
	Stuck bool
	// Limit bounds how many transfers are selected.
	// Defaults to 0: no limit.
	Limit int
}

// Get returns a transfer as a majority of the servers has it stored, or
// ErrTransferNotFound.
// While a primary is being replaced the answer may be stale; StateSuccess and StateFail
// never change.
func (c *Coordinator) Get(ctx context.Context, id string) (Record, error) {
	if err := document.CheckID(id); err != nil {
		return Record{}, invalid("transfer: %w", err)
	}
	if err := c.readyToRead(ctx); err != nil {
		return Record{}, err
	}
	stored, err := c.stored(ctx, id)
	if err != nil {
		return Record{}, err
	}
	return recordOf(stored), nil
}

// stored reads a transfer, or returns ErrTransferNotFound.
func (c *Coordinator) stored(ctx context.Context, id string) (document.Transfer, error) {
	return c.storedBy(ctx, id, c.queries.ReadTransfer)
}

// storedBy repeats a read of a transfer until it is answered.
func (c *Coordinator) storedBy(
	ctx context.Context, id string, read func(context.Context, string) (document.Transfer, bool, error),
) (stored document.Transfer, err error) {
	found := false
	err = c.read(ctx, func(ctx context.Context) (done bool, err error) {
		stored, found, err = read(ctx, id)
		return err == nil || errors.Is(err, document.ErrUnreadable), err
	})
	switch {
	case err != nil:
		return stored, aboutTransfer(id, err)
	case !found:
		return stored, aboutTransfer(id, ErrTransferNotFound)
	}
	return stored, nil
}

// List yields the transfers that a query selects, newest first.
// It yields an error for a document that can't be read, and goes on with the rest.
// It ends after any other error.
// It waits for the server as long as ctx lets it: a query without an index takes its
// time.
func (c *Coordinator) List(ctx context.Context, q Query) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		query, err := c.storeQuery(q)
		if err == nil {
			err = c.readyToRead(ctx)
		}
		if err != nil {
			yield(Record{}, err)
			return
		}
		for t, err := range c.queries.List(ctx, query) {
			rec := Record{}
			if err == nil {
				rec = recordOf(t)
			} else {
				err = nothingStored(listError(t.ID, named(err)))
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

// listError names the transfer where one can't be read.
func listError(id string, err error) error {
	if id != "" && errors.Is(err, document.ErrUnreadable) {
		err = aboutTransfer(id, err)
	}
	return fmt.Errorf("list transfers: %w", err)
}

func (c *Coordinator) storeQuery(q Query) (queries.Query, error) {
	query := queries.Query{
		Ledger: q.Ledger, Account: q.Account, ByLedger: q.Ledger != "",
		After: q.After.Truncate(time.Millisecond), Before: roundUp(q.Before), Stuck: q.Stuck, Limit: q.Limit,
	}
	if c.engine.Closed() {
		return query, ErrClosed
	}
	if q.Limit < 0 {
		return query, invalid("the Limit is negative")
	}
	if !c.catalog.HasLedger(q.Ledger) {
		return query, invalid("the ledger %s is not registered: see WithLedger", words.Quote(q.Ledger))
	}
	var err error
	if query.Metadata, err = encodeMetadata(q.Metadata); err != nil {
		return query, err
	}
	if err := cmp.Or(checkEqualities(query.Metadata), checkTimes(q.After, q.Before)); err != nil {
		return query, err
	}
	if q.Account != "" {
		if err := c.checkAccount(q.Account); err != nil {
			return query, invalid("account: %w", err)
		}
	}
	for _, state := range q.States {
		if !protocol.State(state).Known() {
			return query, invalid("%s is no state", words.Quote(string(state)))
		}
		query.States = append(query.States, protocol.State(state))
	}
	return query, nil
}

// checkTime refuses a time that the server can't store, or that another program couldn't
// read: it would be taken for another one.
// The zero time is accepted.
func checkTime(what string, t time.Time) error {
	if year := t.UTC().Year(); year < 0 || year > maxYear {
		return invalid("%s lies beyond the years 0 to %d", what, maxYear)
	}
	return nil
}

// checkTimes refuses bounds that checkTime refuses.
// Bounds with nothing between them select nothing.
func checkTimes(after, before time.Time) error {
	if err := checkTime("After", after); err != nil {
		return err
	}
	return checkTime("Before", before)
}

// roundUp returns a time as a bound of stored times, which are whole milliseconds.
func roundUp(t time.Time) time.Time {
	if whole := t.Truncate(time.Millisecond); whole.Before(t) {
		return whole.Add(time.Millisecond)
	}
	return t
}
